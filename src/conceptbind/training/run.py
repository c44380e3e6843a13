"""Train models, many of one shape as one batched computation; stop at any moment and go on later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from conceptbind.scenes import ObjectSplit, check_scenes
from conceptbind.training.checkpoints import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from conceptbind.training.config import TrainingConfig, check_together
from conceptbind.training.data import Data
from conceptbind.training.gradients import loss_and_gradients
from conceptbind.training.models import Parameters, Side, encode, encode_values, initialise, scale
from conceptbind.training.optimiser import StackedAdamW, zero_moments

Watch = Callable[[int, "TrainedModels"], None]
ROWS = 8192
"""Scenes that are embedded at a time."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Hold one model: two encoders."""

    config: TrainingConfig
    parameters: Parameters
    """With a leading axis ``model`` of length 1."""
    losses: Float[Tensor, "step"]
    """The loss on the batch of every step."""

    @property
    def split(self) -> ObjectSplit:
        """The objects it was trained on."""
        return self.config.split

    @property
    def temperature(self) -> float:
        """What cosines are divided by, as learned."""
        return 1 / float(scale(self.parameters))

    def scenes(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes by the scene encoder.

        They have the model's number of objects, or one where it was trained on scenes of one, too (``single_share``):
        others would be new to it.
        Raises ValueError for scenes of another space or number of objects.
        """
        return self._embedded("scene", scenes, self._trained_sizes)

    def captions(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"] | None:
        """Embed the captions of scenes, the objects named in the order of the slots; None with form "query".

        Scenes as of :meth:`scenes`.
        """
        if self.config.form == "query":
            return None
        return self._embedded("query", scenes, self._trained_sizes)

    def objects(self, index: Int[Tensor, "object"]) -> Float[Tensor, "object dim"]:
        """Embed objects, by object index, as queries: as scenes, or captions, of one object."""
        return self._embedded("query", self.config.space.objects_from_index(index).unsqueeze(1), {1})

    @torch.no_grad()
    def values(self) -> Float[Tensor, "value dim"]:
        """Embed the values of concept 1, ..., of concept K, as queries.

        A model of the form "clip" knows no captions of values: the query of a value is then the mean of the normalised
        captions of the training objects that show it.
        """
        if self.config.form == "query":
            return encode_values(self.config, self.parameters).squeeze(0)
        index = self.split.is_train.nonzero().squeeze(1)
        shown = self.config.space.objects_from_index(index)
        captions = torch.nn.functional.normalize(self.objects(index), dim=-1)
        marks = torch.cat(
            [torch.nn.functional.one_hot(shown[:, k], v) for k, v in enumerate(self.config.sizes)], 1
        )
        share = (marks / marks.sum(0)).to(captions)
        return share.T @ captions

    def save(self, path: str | Path) -> None:
        """Write the model as one safetensors file, its settings in the header."""
        write_checkpoint(Path(path), Checkpoint((self.config,), self.parameters, {}, self.losses[:, None]))

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> TrainedModel:
        """Read a model that :meth:`save` wrote.

        Raises FileNotFoundError when there is none, CheckpointError when the file is damaged or holds anything else,
        also a model whose training was stopped.
        """
        found = read_checkpoint(Path(path), device=device)
        if len(found.configs) != 1:
            raise CheckpointError(
                f"{path} is a checkpoint of {len(found.configs)} models in training: give the file of one model, which "
                "TrainedModel.save writes"
            )
        config, n_done = found.configs[0], len(found.losses)
        if n_done < config.n_steps:
            raise CheckpointError(
                f"{path} was stopped after {n_done} of {config.n_steps} steps: finish its training first"
            )
        return cls(config, found.parameters, found.losses[:, 0])

    @property
    def _trained_sizes(self) -> set[int]:
        """The numbers of objects of the scenes that it was trained on."""
        c = self.config
        return {c.n_objects, 1} if c.form == "clip" and c.n_singles else {c.n_objects}

    @torch.no_grad()
    def _embedded(self, side: Side, scenes: Tensor, sizes: set[int]) -> Float[Tensor, "scene dim"]:
        check_scenes(self.config.space, scenes)
        if scenes.shape[1] not in sizes:
            raise ValueError(
                f"the model was trained on scenes of {' or '.join(map(str, sorted(sizes)))} objects; got scenes of "
                f"{scenes.shape[1]}"
            )
        device = next(iter(self.parameters.values())).device
        parts = [
            encode(self.config, self.parameters, side, part[None].to(device)).squeeze(0)
            for part in scenes.split(ROWS)
        ]
        return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """Hold models that were trained together."""

    configs: tuple[TrainingConfig, ...]
    parameters: Parameters
    losses: Float[Tensor, "step model"]

    def __len__(self) -> int:
        return len(self.configs)

    def model(self, index: int) -> TrainedModel:
        """Take one of them out."""
        weights = {name: w[index : index + 1] for name, w in self.parameters.items()}
        return TrainedModel(self.configs[index], weights, self.losses[:, index])


def train(
    configs: Sequence[TrainingConfig],
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    stop_after: int | None = None,
    watch: Watch | None = None,
    watch_every: int = 500,
    progress: bool = False,
) -> TrainedModels:
    """Train models that share their shapes (see TrainingConfig.shared), all at once.

    ``checkpoint``: a file to go on from if it is there, and to write to every ``checkpoint_every`` steps and at the
    end. On the CPU, of one machine and with one number of threads, a run that was stopped and goes on gives the losses
    and weights of one that was not, bit for bit; on a GPU up to rounding, since sums there have no fixed order.
    ``stop_after``: stop when so many steps are done, as if the process had ended then; the rate follows ``n_steps``.
    ``watch`` gets (steps done, models) after every ``watch_every`` steps, and must not keep the weights, which go on
    changing.
    Raises ValueError for models of different shapes, CheckpointError for a checkpoint of other settings or a damaged
    one, FloatingPointError when a loss is not finite.
    """
    check_together(configs)
    if checkpoint_every < 1 or watch_every < 1:
        raise ValueError(
            f"checkpoint_every and watch_every are at least 1; got {checkpoint_every} and {watch_every}"
        )
    path = None if checkpoint is None else Path(checkpoint)
    state = _start(configs, device, path)
    parameters, n_done = state.parameters, len(state.losses)
    config, n_steps = configs[0], configs[0].n_steps
    losses = torch.empty(n_steps, len(configs), dtype=config.weight_dtype, device=device)
    losses[:n_done] = state.losses.to(losses)
    if n_done < n_steps:
        data = Data(configs, device=device)
        optimiser = StackedAdamW(configs, parameters, state.moments, n_done)
        end = n_steps if stop_after is None else min(stop_after, n_steps)
        for step in tqdm(
            range(n_done, end), initial=n_done, total=n_steps, disable=not progress, unit=" steps"
        ):
            # the same storage, so that the optimiser's steps in place are seen
            weights = {name: p.detach().requires_grad_() for name, p in parameters.items()}
            losses[step], gradients = loss_and_gradients(config, weights, data, step)
            optimiser.step(step, gradients)
            n_done = step + 1
            saves = path is not None and (n_done % checkpoint_every == 0 or n_done == n_steps)
            if saves or n_done % 100 == 0 or n_done == end:
                _check_finite(losses[:n_done], configs)
            if path is not None and saves:
                moments = {} if n_done == n_steps else optimiser.moments
                write_checkpoint(path, Checkpoint(tuple(configs), parameters, moments, losses[:n_done]))
            if watch is not None and n_done % watch_every == 0:
                watch(n_done, TrainedModels(tuple(configs), parameters, losses[:n_done]))
    return TrainedModels(tuple(configs), parameters, losses[:n_done].cpu())


def _start(configs: Sequence[TrainingConfig], device: torch.device | str, path: Path | None) -> Checkpoint:
    if path is not None and path.exists():
        return read_checkpoint(path, device=device, configs=configs)
    parameters = initialise(configs, device=device)
    nothing = torch.empty(0, len(configs), dtype=configs[0].weight_dtype)
    return Checkpoint(tuple(configs), parameters, zero_moments(parameters), nothing)


def _check_finite(losses: Float[Tensor, "step model"], configs: Sequence[TrainingConfig]) -> None:
    broken = ~losses.isfinite()
    if bool(broken.any()):
        step, model = broken.nonzero()[0].tolist()
        raise FloatingPointError(
            f"the loss of model {model} (seed {configs[model].seed}, rate {configs[model].rate}) is not finite at step "
            f"{step}: lower the rate, or lengthen the warm-up"
        )
