"""What the paper's released experiment code would report (F6): the published protocol, for comparison only.

Re-implemented from facts about that code, not from the code. What is kept of it:

- full-batch Adam at a constant learning rate of 1e-2 (its cosine schedule is never stepped), 4,000 steps;
- targets as the encoder gave them: neither scaled nor centred; the loss is their mean squared error;
- the reported epoch is the one with the best *held-out* object recognition: it is selected on the test scenes;
- R² is centred with the mean of all scenes, those that are not trained on among them.

What the facts do not say is our choice: an embedding of 64 numbers for every value, shared by all slots; two hidden
layers with ReLU; in the other model, products that are of each slot's own; torch's default initialisation. The training
loop is what a PyTorch user would write, one fit at a time, with nothing done for speed: benchmarks compare with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from conceptbind.analysis.fixed_probes import FixedProbes
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, Embedded
from conceptbind.analysis.recognition import Recognition
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind

ReleasedModel = Literal["MLP", "sum+product"]
MODELS: tuple[ReleasedModel, ...] = ("MLP", "sum+product")

LEARNING_RATE = 1e-2
N_STEPS = 4000
VALUE_DIM = 64
"""Numbers that stand for a value at the entrance of the MLP; our choice."""
DEPTH = 2
"""Hidden layers of the MLP; our choice."""


@dataclass(frozen=True)
class ReleasedStep:
    """Hold what was measured after one step of training."""

    step: int
    """Counted from 1."""
    loss: float
    """Mean squared error over training scenes and dimensions, before this step's update."""
    r2: float
    """On the training scenes, around their own mean."""
    r2_as_released: float
    """On the training scenes, around the mean of all scenes."""
    concepts: Recognition
    """Of all concepts, on held-out scenes, by the given probes."""
    objects: Recognition
    """Of objects, likewise."""


@dataclass(frozen=True)
class ReleasedRun:
    """Hold one fit of the released protocol."""

    model: str
    width: int
    seed: int
    n_parameters: int
    n_train: int
    """Training scenes."""
    n_held_out: int
    """Held-out scenes."""
    steps: tuple[ReleasedStep, ...]
    """Those that were evaluated, the last step of training among them."""

    @property
    def selected(self) -> ReleasedStep:
        """The "best test epoch": the first step with the best held-out object recognition."""
        return max(self.steps, key=lambda s: s.objects.accuracy)

    @property
    def last(self) -> ReleasedStep:
        """The end of training."""
        return self.steps[-1]

    @property
    def r2_best(self) -> float:
        """The largest training R² at an evaluated step: what the optimiser came past, if it did not stay."""
        return max(s.r2 for s in self.steps)

    @property
    def r2_median(self) -> float:
        """The median training R² of the later half of the evaluated steps: at a constant rate the last is chance."""
        return median(s.r2 for s in self.steps[len(self.steps) // 2 :])

    def as_dict(self) -> dict[str, Any]:
        """Give a row of a table: both steps side by side, without the steps between."""
        row = {name: value for name, value in vars(self).items() if name != "steps"}
        for when, at in (("selected", self.selected), ("last", self.last)):
            row[f"step_{when}"] = at.step
            row[f"r2_{when}"] = at.r2
            row[f"r2_as_released_{when}"] = at.r2_as_released
            row[f"concepts_{when}"] = at.concepts.accuracy
            row[f"objects_{when}"] = at.objects.accuracy
        row |= {"r2_best": self.r2_best, "r2_median": self.r2_median}
        return {
            **row,
            "concepts_chance": self.last.concepts.chance,
            "objects_chance": self.last.objects.chance,
        }


class ReleasedMLP(nn.Module):
    """Predict an embedding from the concatenated embeddings of a scene's values.

    ``width``: of each of ``depth`` hidden layers.
    """

    def __init__(
        self,
        space: ConceptSpace,
        n_slots: int,
        dim: int,
        width: int,
        *,
        depth: int = DEPTH,
        value_dim: int = VALUE_DIM,
    ) -> None:
        super().__init__()
        self.values = nn.ModuleList(nn.Embedding(v, value_dim) for v in space.n_values)
        layers: list[nn.Module] = []
        n_in = n_slots * space.n_concepts * value_dim
        for _ in range(depth):
            layers += [nn.Linear(n_in, width), nn.ReLU()]
            n_in = width
        self.layers = nn.Sequential(*layers, nn.Linear(n_in, dim))

    def forward(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes."""
        parts = [table(scenes[:, :, k]) for k, table in enumerate(self.values)]
        return self.layers(torch.cat(parts, dim=2).flatten(1))


class SumPlusProduct(nn.Module):
    """Predict an embedding as a linear map of sum_i sum_k u_{k,c_ik} + sum_i prod_k v_{i,k,c_ik}.

    ``width``: of u and v. The functional form is that of the paper's probes (section 2, F8). All u and v begin as
    standard normal numbers, torch's default: then, at the released rate, R² never settles (see ``r2_median``).
    """

    def __init__(self, space: ConceptSpace, n_slots: int, dim: int, width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Embedding(v, width) for v in space.n_values)
        self.factors = nn.ModuleList(
            nn.ModuleList(nn.Embedding(v, width) for v in space.n_values) for _ in range(n_slots)
        )
        self.head = nn.Linear(width, dim)

    def forward(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes."""
        hidden = sum(table(scenes[:, :, k]).sum(1) for k, table in enumerate(self.parts))
        for slot, tables in enumerate(self.factors):
            product = 1.0
            for k, table in enumerate(tables):
                product = product * table(scenes[:, slot, k])
            hidden = hidden + product
        return self.head(hidden)


def build_model(
    model: str, space: ConceptSpace, n_slots: int, dim: int, *, width: int, seed: int
) -> ReleasedMLP | SumPlusProduct:
    """Build "MLP" or "sum+product" with weights drawn from ``seed``. Raises ValueError for another name."""
    if model not in MODELS:
        raise ValueError(f"model must be one of {MODELS}; got {model!r}")
    # torch's layers draw from the global generator only: it is put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make = ReleasedMLP if model == "MLP" else SumPlusProduct
        return make(space, n_slots, dim, width)


def plain_fit(
    model: nn.Module,
    scenes: Int[Tensor, "scene slot concept"],
    targets: Float[Tensor, "scene dim"],
    *,
    n_steps: int = N_STEPS,
    learning_rate: float = LEARNING_RATE,
    every: int = 100,
    callback: Callable[[int, float], None] | None = None,
) -> float:
    """Train a model in place by full-batch Adam on the mean squared error; give the loss of the last step.

    ``callback(step, loss)`` is called after every ``every`` steps and after the last one, with the step counted from 1
    and the loss before its update.
    Raises ValueError when ``n_steps`` or ``every`` is below 1.
    """
    if n_steps < 1 or every < 1:
        raise ValueError(f"n_steps and every are at least 1; got {n_steps} and {every}")
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for step in range(1, n_steps + 1):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(scenes), targets)
        loss.backward()
        optimiser.step()
        if callback is not None and (step % every == 0 or step == n_steps):
            callback(step, loss.item())
    return loss.item()


def released_protocol(
    data: Embedded,
    split: ObjectSplit,
    probes: FixedProbes,
    *,
    model: str = "MLP",
    width: int = 1024,
    n_steps: int = N_STEPS,
    evaluate_every: int = 100,
    seed: int,
) -> ReleasedRun:
    """Fit one model as the released code does, and measure at every ``evaluate_every`` steps and the last.

    ``probes``: the ruler, put to the predicted embeddings of all held-out scenes. As there, it may have been fitted to
    the real embeddings of some of them. With several seeds, recognition is their mean.
    Raises ValueError for an unknown model, a split or probes of another space, or a split that leaves no training
    scene or no held-out scene.
    """
    space, scenes = data.space, data.scenes
    if split.space != space or probes.space != space:
        raise ValueError("the data, the split and the probes must belong to one concept space")
    z = data.embeddings.float()
    kinds = split.kinds(scenes)
    train, held_out = kinds == SceneKind.TRAIN, kinds == SceneKind.HELD_OUT
    if not bool(train.any()) or not bool(held_out.any()):
        raise ValueError(
            f"coverage {split.coverage:.2f} leaves {int(train.sum())} training and {int(held_out.sum())} held-out "
            f"scenes among {len(scenes)}: both are needed; use another coverage, or more scenes"
        )
    seen, unseen = scenes[train].to(z.device), scenes[held_out].to(z.device)
    targets = z[train.to(z.device)]
    judged = torch.ones(probes.n_fits, len(unseen), dtype=torch.bool)
    mean_of_all = z.mean(0, dtype=torch.float64)
    network = build_model(model, space, scenes.shape[1], z.shape[1], width=width, seed=seed).to(z.device)
    steps: list[ReleasedStep] = []

    @torch.no_grad()
    def evaluate(step: int, loss: float) -> None:
        predicted = network(seen)
        found = probes.judge(network(unseen), unseen.cpu(), judged)
        steps.append(
            ReleasedStep(
                step,
                loss,
                _r_squared(predicted, targets, targets.mean(0, dtype=torch.float64)),
                _r_squared(predicted, targets, mean_of_all),
                found[ALL_CONCEPTS],
                found[OBJECTS],
            )
        )

    plain_fit(network, seen, targets, n_steps=n_steps, every=evaluate_every, callback=evaluate)
    n_parameters = sum(p.numel() for p in network.parameters())
    return ReleasedRun(model, width, seed, n_parameters, int(train.sum()), int(held_out.sum()), tuple(steps))


def _r_squared(
    predicted: Float[Tensor, "scene dim"], targets: Float[Tensor, "scene dim"], centre: Float[Tensor, "dim"]
) -> float:
    """Give 1 - sum |z - prediction|² / sum |z - centre|², in float64; NaN where all z are the centre."""
    residual = float((targets.double() - predicted.double()).square().sum())
    total = float((targets.double() - centre).square().sum())
    return 1 - residual / total if total > 0 else torch.nan
