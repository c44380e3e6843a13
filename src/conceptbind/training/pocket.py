"""Train a pocket CLIP: open_clip's own model and loss on a CPU, in a few minutes; interrupted runs go on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from conceptbind.cache import replacing
from conceptbind.encoders.pocket import CONFIG, FORMAT, PREPROCESSING, build_pocket
from conceptbind.encoders.pocket_words import WORDS
from conceptbind.provenance import provenance, tensor_digest
from conceptbind.training.checkpoints import CheckpointError
from conceptbind.training.pocket_data import PocketData

MAX_LOG_SCALE = math.log(100)  # open_clip's bound on the logit scale


@dataclass(frozen=True)
class Optimiser:
    """Say how the weights follow the gradients: AdamW with a warm-up and a cosine to zero."""

    rate: float = 1e-3
    weight_decay: float = 0.1
    """Of matrices; gains, biases, positions and the temperature do not decay."""
    betas: tuple[float, float] = (0.9, 0.98)
    warm_up: float = 0.05
    """The share of all steps in which the rate rises to its height."""

    def rate_at(self, step: int, n_steps: int) -> float:
        """Give the rate of step 0 ... n_steps - 1."""
        n_warm = max(1, round(self.warm_up * n_steps))
        if step < n_warm:
            return self.rate * (step + 1) / n_warm
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - n_warm) / max(1, n_steps - n_warm)))


def train_pocket(
    data: PocketData,
    *,
    optimiser: Optimiser | None = None,
    checkpoint: Path | None = None,
    every: int = 50,
    stop_after: int | None = None,
    tell: Callable[[int, float], None] | None = None,
) -> tuple[nn.Module, list[float]]:
    """Train on ``data`` for the steps of its recipe; give the model and the loss of every step.

    The weights at the start depend on the data's seed only, so variants of one seed start alike. With ``checkpoint``
    the state is written there every ``every`` steps, and a run that finds it goes on to the same weights.
    ``stop_after``: stop early after this step, with a checkpoint, as an interrupted run would. ``tell`` is called
    with every step and its loss.
    Raises CheckpointError when the checkpoint is damaged or of other settings.
    """
    from open_clip.loss import ClipLoss

    optimiser = optimiser or Optimiser()
    settings = {
        "config": CONFIG,
        "words": WORDS,
        "data": data.describe(),
        "seed": data.seed,
        "optimiser": vars(optimiser),
    }
    model = build_pocket(seed=data.seed).train()
    adam = _adam(model, optimiser)
    loss_of = ClipLoss()
    losses: list[float] = []
    if checkpoint is not None and checkpoint.exists():
        losses = _resume(checkpoint, model, adam, settings)
    n_steps = data.recipe.steps
    for step in range(len(losses), n_steps):
        batch = data.batch(step)
        for group in adam.param_groups:
            group["lr"] = optimiser.rate_at(step, n_steps)
        images = model.encode_image(PREPROCESSING.normalise(batch.pictures), normalize=True)
        texts = model.encode_text(batch.tokens, normalize=True)
        loss = loss_of(images, texts, model.logit_scale.exp())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOG_SCALE)
        losses.append(loss.item())
        if tell is not None:
            tell(step, losses[-1])
        stop = stop_after is not None and step + 1 >= stop_after
        if checkpoint is not None and (stop or (step + 1) % every == 0):
            _write(checkpoint, model, adam, losses, settings)
        if stop:
            break
    return model.eval(), losses


def save_pocket(
    path: Path, model: nn.Module, data: PocketData, *, variant: str, steps: int, command: str
) -> None:
    """Write the weights of a trained model as float16 safetensors, with all that describes them as JSON.

    float16 halves the file; :func:`conceptbind.encoders.load` gives float32, and what is measured is measured with
    the weights so rounded. Raises OSError when the folder cannot be written.
    """
    tensors = {n: t.detach().half().contiguous() for n, t in model.state_dict().items()}
    described = {
        "variant": variant,
        "seed": data.seed,
        "steps": steps,
        "config": CONFIG,
        "words": WORDS,
        "optimiser": vars(Optimiser()),
        "command": command,
        "provenance": provenance(),
        **data.describe(),
    }
    header = {
        "format": FORMAT,
        "sha256": tensor_digest(tensors),
        **{k: json.dumps(v) for k, v in described.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def _adam(model: nn.Module, optimiser: Optimiser) -> torch.optim.AdamW:
    decays = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    positions = {id(model.positional_embedding), id(model.visual.positional_embedding)}
    groups = [
        {"params": [p for p in decays if id(p) not in positions], "weight_decay": optimiser.weight_decay},
        {"params": [*others, *(p for p in decays if id(p) in positions)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=optimiser.rate, betas=optimiser.betas)


def _write(
    path: Path,
    model: nn.Module,
    adam: torch.optim.AdamW,
    losses: list[float],
    settings: dict[str, Any],
) -> None:
    tensors: dict[str, Tensor] = {f"weight.{n}": p.detach() for n, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        tensors |= {f"moment.{key}.{name}": value for key, value in adam.state[parameter].items()}
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors = {n: t.contiguous() for n, t in tensors.items()}
    header = {"sha256": tensor_digest(tensors), "settings": json.dumps(settings)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def _resume(path: Path, model: nn.Module, adam: torch.optim.AdamW, settings: dict[str, Any]) -> list[float]:
    anew = "move it away to start anew"
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged ({error}): {anew}") from error
    if header.get("settings") != json.dumps(settings):
        raise CheckpointError(f"{path} is a checkpoint of other settings or data: {anew}")
    if tensor_digest(tensors) != header.get("sha256"):
        raise CheckpointError(f"the checkpoint {path} is damaged, its checksum does not match: {anew}")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"weight.{name}"])
            adam.state[parameter] = {
                key: tensors[f"moment.{key}.{name}"].clone() for key in ("step", "exp_avg", "exp_avg_sq")
            }
    return tensors["losses"].tolist()
