"""What determines a trained model: one frozen dataclass, and its smoke, laptop and paper presets."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import torch

from conceptbind.presets import choose
from conceptbind.scenes import ConceptSpace, ObjectSplit, object_split

Form = Literal["query", "clip"]
Tokens = Literal["paper", "compact"]
Architecture = Literal["transformer", "objects", "additive", "product"]
Repeats = Literal["allowed", "distinct objects"]
CaptionOrder = Literal["scene", "random"]
Number = Literal["float32", "float64", "bfloat16"]

PER_MODEL = (
    "coverage",
    "seed",
    "split_seed",
    "linear_scale",
    "embedding_scale",
    "rate",
    "weight_decay",
    "temperature",
)
"""Settings in which models that are trained together may differ; all others are shapes, or part of the program."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Hold all that determines a trained model. Raises ValueError for settings that do not fit together."""

    sizes: tuple[int, ...] = (24, 24)
    """V_1 ... V_K, the number of values of every concept."""
    n_objects: int = 2
    """Objects in a scene, m."""
    coverage: float = 0.7
    """rho: the share of all possible objects that training scenes are made of."""
    seed: int = 0
    """Of the weights and the data; of the split, too, unless that has its own."""
    split_seed: int | None = None
    """Of the training objects; None for ``seed``."""
    repeats: Repeats = "distinct objects"
    """Whether a scene may show an object twice."""

    form: Form = "query"
    """"query": scenes against the objects and concept values in them. "clip": scenes against their captions, which are
    the same scenes in another vocabulary."""
    tokens: Tokens = "compact"
    """What a transformer reads. "paper": start-of-object, values, end-of-object for every object, then end-of-scene,
    where the embedding is read. "compact": the values only; the embedding is their mean."""
    architecture: Architecture = "transformer"
    """Of the scene encoder. "objects": a perceptron of every object, summed. "additive": a sum of concept vectors.
    "product": that plus products within each object, through a linear readout."""
    query_architecture: Architecture | None = None
    """Of the query (or caption) encoder; None for that of the scene encoder."""
    width: int = 128
    """Of tokens, or of the value vectors of a perceptron, or the number of products."""
    depth: int = 2
    """Blocks of a transformer, hidden layers of a perceptron."""
    n_heads: int = 4
    feed_forward: int = 512
    """Width of the hidden layer of a block, or of the perceptron's."""
    dim: int = 128
    """Of the embeddings, d."""
    linear_scale: float = 2.0
    """Standard deviation of a linear layer at the start, times the root of its fan-in. It decides what is learned: at 1
    a transformer fits objects badly, while perceptrons and products generalise the better the smaller they start, as
    long as they fit at all."""
    embedding_scale: float = 1.0
    """Standard deviation of embeddings of values and tokens at the start, and the size of the factors of products."""

    batch: int = 512
    """Scenes a step."""
    n_steps: int = 4000
    rate: float = 1e-3
    """Learning rate of AdamW at its highest."""
    weight_decay: float = 0.1
    """Of matrices and tables; biases and the temperature have none."""
    warm_up: float = 0.05
    """Share of the steps in which the rate rises."""
    final_rate: float = 0.02
    """What the cosine ends at, as a share of ``rate``."""
    temperature: float = 0.05
    """At the start; it is learned, and no lower than .01."""

    object_queries: int = 4096
    """All training objects are queries when there are at most so many. Else so many a step: the objects of its scenes,
    or of the first ones that fit, and random others."""
    concept_weight: float = 1.0
    """Of the loss over concept values; that over objects has 1."""
    swap_negatives: bool = True
    """Whether the objects, or captions, with two values exchanged are negatives. Where all training objects are queries
    anyway this makes a difference to held-out ones only."""
    held_out_negatives: bool = False
    """Whether they may be objects that are held out, as in the released code: models then learn that such objects are
    never there."""
    caption_order: CaptionOrder = "scene"
    """Form "clip": whether a caption names the objects in the order of the scene."""
    single_share: float = 0.0
    """Form "clip": share of a batch that are scenes of one object. Without any, a caption of one object, as object
    recognition asks with, is new to the model."""
    dtype: Number = "float32"
    """"bfloat16": weights, optimiser and loss in float32, the encoders' products in bfloat16 (autocast)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            # one setting, one value, of one type: equal models have equal names
            object.__setattr__(self, field.name, _typed(field.name, field.type, getattr(self, field.name)))
        _check(self)

    @classmethod
    def of_space(cls, space: ConceptSpace, **settings: Any) -> TrainingConfig:
        """Train on the scenes of a space. Only its sizes matter."""
        return cls(sizes=space.n_values, **settings)

    @cached_property
    def space(self) -> ConceptSpace:
        """The concepts and their values."""
        return ConceptSpace.of_sizes(*self.sizes)

    @cached_property
    def split(self) -> ObjectSplit:
        """The training objects."""
        seed = self.seed if self.split_seed is None else self.split_seed
        return object_split(self.space, self.coverage, seed=seed)

    @property
    def n_training_objects(self) -> int:
        """How many objects training scenes are made of."""
        return round(self.coverage * self.space.n_possible_objects)

    @property
    def asks_every_object(self) -> bool:
        """Whether all training objects are queries of every step."""
        return self.n_training_objects <= self.object_queries

    @property
    def n_singles(self) -> int:
        """Scenes of one object in a batch of the form "clip"."""
        return round(self.single_share * self.batch)

    @property
    def swaps(self) -> bool:
        """Whether a step has swapped negatives: they need two objects and two concepts."""
        return self.swap_negatives and self.n_objects > 1 and len(self.sizes) > 1

    def architecture_of(self, side: str) -> Architecture:
        """Give the architecture of the "scene" or the "query" encoder."""
        return self.architecture if side == "scene" else self.query_architecture or self.architecture

    @property
    def weight_dtype(self) -> torch.dtype:
        """The type of weights, of the optimiser's moments and of the loss."""
        return torch.float64 if self.dtype == "float64" else torch.float32

    def settings(self) -> dict[str, Any]:
        """Give all settings for a table row, ready for JSON."""
        return {**asdict(self), "sizes": list(self.sizes)}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> TrainingConfig:
        """Invert :meth:`settings`. Raises ValueError for a setting that does not exist."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(settings.keys() - known):
            raise ValueError(f"unknown settings {unknown}: a model is determined by {sorted(known)}")
        given = settings.get("sizes", cls.sizes)
        return cls(**{**settings, "sizes": tuple(given) if isinstance(given, list) else given})

    def shared(self) -> dict[str, Any]:
        """Give what models must have in common to be trained together."""
        kept = {k: v for k, v in self.settings().items() if k not in PER_MODEL}
        return {**kept, "asks_every_object": self.form == "query" and self.asks_every_object}


def check_together(configs: Sequence[TrainingConfig]) -> None:
    """Raise ValueError unless the models can be trained as one batched computation."""
    if not configs:
        raise ValueError("there is nothing to train: give at least one TrainingConfig")
    first = configs[0].shared()
    for i, config in enumerate(configs):
        other = config.shared()
        if differ := sorted(k for k in first if first[k] != other[k]):
            raise ValueError(
                f"models 0 and {i} cannot be trained together, they differ in {', '.join(differ)}: train them one "
                f"after the other, or group them with training_jobs; one batch may differ in {', '.join(PER_MODEL)}"
            )


def config_of(preset: str, **changes: Any) -> TrainingConfig:
    """Give the configuration of a preset, with changes.

    "smoke": seconds; 36 objects. "laptop": about a minute on one core, a perceptron of every object, 576 objects.
    "paper": the paper's sizes, two transformers of 19 million parameters on 125,000 objects, for a GPU; number of
    steps, batch and rate are ours.
    Raises ValueError for another preset, and as :class:`TrainingConfig` does.
    """
    objects = TrainingConfig(architecture="objects", batch=1024, n_steps=800, rate=2e-3)
    laptop = replace(objects, linear_scale=0.3, embedding_scale=0.1)
    paper = TrainingConfig(
        sizes=(50, 50, 50),
        coverage=0.5,
        tokens="paper",
        width=512,
        depth=6,
        n_heads=8,
        feed_forward=2048,
        dim=512,
        batch=1024,
        n_steps=40_000,
        rate=3e-4,
        dtype="bfloat16",
    )
    small = replace(objects, sizes=(6, 6), width=32, feed_forward=64, dim=32, batch=128, n_steps=100)
    return replace(choose(preset, {"smoke": small, "laptop": laptop, "paper": paper}), **changes)


def _typed(name: str, kind: Any, value: Any) -> Any:
    """Give a setting in its own type; a whole number will do for any number, but no bool and no text does."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_whole = is_number and isinstance(value, numbers.Integral)
    if kind == "float":
        if not is_number:
            raise ValueError(f"{name} is a number; got {value!r}")
        return float(value) + 0.0  # -0.0 is 0.0
    if kind in ("int", "int | None"):
        if value is None and kind == "int | None":
            return None
        if not is_whole:
            raise ValueError(f"{name} is a whole number{' or None' if 'None' in kind else ''}; got {value!r}")
        return int(value)
    if kind == "bool" and not isinstance(value, bool):
        raise ValueError(f"{name} is True or False; got {value!r}")
    if kind == "tuple[int, ...]":
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ValueError(f"{name} are the numbers of values of one or more concepts; got {value!r}")
        return tuple(_typed(f"every one of {name}", "int", v) for v in value)
    return value


def _check(c: TrainingConfig) -> None:
    if not c.sizes or min(c.sizes) < 1:
        raise ValueError(f"sizes are the numbers of values of one or more concepts; got {c.sizes}")
    choices = {
        "repeats": Repeats,
        "form": Form,
        "tokens": Tokens,
        "architecture": Architecture,
        "caption_order": CaptionOrder,
        "dtype": Number,
    }
    for name, allowed in choices.items():
        if getattr(c, name) not in get_args(allowed):
            raise ValueError(f"{name} is one of {', '.join(get_args(allowed))}; got {getattr(c, name)!r}")
    if c.query_architecture not in (None, *get_args(Architecture)):
        raise ValueError(
            f"query_architecture is one of {', '.join(get_args(Architecture))}, or None for that of the scene "
            f"encoder; got {c.query_architecture!r}"
        )
    for name in (
        "n_objects",
        "width",
        "depth",
        "n_heads",
        "feed_forward",
        "dim",
        "batch",
        "n_steps",
        "object_queries",
    ):
        if getattr(c, name) < 1:
            raise ValueError(f"{name} is a whole number of at least 1; got {getattr(c, name)!r}")
    for name in ("linear_scale", "embedding_scale", "rate", "temperature"):
        if not 0 < getattr(c, name) < math.inf:
            raise ValueError(f"{name} is a positive number; got {getattr(c, name)!r}")
    for name in ("weight_decay", "concept_weight"):
        if not 0 <= getattr(c, name) < math.inf:
            raise ValueError(f"{name} is a number of at least 0; got {getattr(c, name)!r}")
    for name in ("warm_up", "final_rate", "single_share"):
        if not 0 <= getattr(c, name) <= 1:
            raise ValueError(f"{name} is a share, 0 to 1; got {getattr(c, name)!r}")
    _check_together(c)
    _check_split(c)


def _check_together(c: TrainingConfig) -> None:
    if "transformer" in (c.architecture, c.query_architecture) and c.width % c.n_heads:
        raise ValueError(
            f"the width of a transformer is a multiple of its heads; got width {c.width} and {c.n_heads} heads"
        )
    if c.held_out_negatives and not c.swap_negatives:
        raise ValueError(
            "held-out objects come in as swapped negatives only: held_out_negatives needs swap_negatives=True"
        )
    if c.form == "query" and (c.single_share or c.caption_order != "scene"):
        raise ValueError(
            'single_share and caption_order belong to form="clip"; with form="query" leave them as they are'
        )
    if c.form == "query" and c.object_queries < c.n_objects:
        raise ValueError(
            f"object_queries is at least the number of objects in a scene, {c.n_objects}; got {c.object_queries}"
        )
    if c.form == "clip" and c.n_singles and c.n_objects == 1:
        raise ValueError("scenes have one object each already: leave out single_share")
    if c.form == "clip" and c.batch < 2:
        raise ValueError(f"a caption needs others to be told from: batch is at least 2; got {c.batch}")


def _check_split(c: TrainingConfig) -> None:
    if c.space.n_possible_objects >= 2**31:
        raise ValueError(
            f"sizes {c.sizes} make {c.space.n_possible_objects:,} objects: training is for fewer than 2**31"
        )
    if sum(v > 1 for v in c.sizes) < 2:
        raise ValueError(
            "a split shows every value in training and holds objects out: that takes two concepts of two or more "
            f"values; got sizes {c.sizes}"
        )
    if not 0 < c.coverage < 1:
        raise ValueError(f"coverage is a share strictly between 0 and 1; got {c.coverage}")
    n = c.n_training_objects
    if not max(c.sizes) <= n < c.space.n_possible_objects:
        raise ValueError(
            f"coverage {c.coverage} of {c.space.n_possible_objects} objects trains on {n}: at least {max(c.sizes)} "
            "are needed to show every value, and at least one must be held out"
        )
    if c.repeats == "distinct objects" and n < c.n_objects:
        larger = "a larger coverage" if c.n_objects < c.space.n_possible_objects else "larger sizes"
        raise ValueError(
            f"{n} training objects cannot fill scenes of {c.n_objects} different ones: use {larger}, or "
            "repeats='allowed'"
        )
