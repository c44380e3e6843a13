"""Concept spaces, scenes, captions and coverage splits (paper, section 2).

An object is one value of every concept; a scene is a tuple of objects. Both are integer arrays:

- objects  ``(object, concept)``: value indices
- scenes   ``(scene, slot, concept)``: value indices; slot i holds the i-th object

An *object index* numbers the |O| = prod_k V_k possible objects in row-major order of their values.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Repeats = Literal["allowed", "distinct objects", "distinct values"]
REPEATS: tuple[Repeats, ...] = ("allowed", "distinct objects", "distinct values")

# More scenes than this are sampled, never listed: 10 million of two objects and two concepts take 0.3 GB, and
# a few times that while they are made.
MAX_ENUMERATED = 10_000_000


@dataclass(frozen=True)
class ConceptSpace:
    """Name the concepts C_1 ... C_K and their values.

    Raises ValueError when names are missing, repeated, or a concept has no value.
    """

    concepts: tuple[str, ...]
    """K concept names, for example ``("colour", "shape")``."""

    values: tuple[tuple[str, ...], ...]
    """For concept k, the names of its V_k values."""

    def __post_init__(self) -> None:
        _not_one_string("concepts", self.concepts)
        for vals in self.values:
            _not_one_string("the values of a concept", vals)
        object.__setattr__(self, "concepts", tuple(self.concepts))
        object.__setattr__(self, "values", tuple(tuple(v) for v in self.values))
        if not self.concepts:
            raise ValueError("a concept space needs at least one concept; got none")
        if len(self.concepts) != len(self.values):
            raise ValueError(
                f"{len(self.concepts)} concepts {self.concepts} but {len(self.values)} lists of values: "
                "give one list of values for each concept"
            )
        _unique("concepts", self.concepts)
        for name, vals in zip(self.concepts, self.values, strict=True):
            if not vals:
                raise ValueError(f"concept {name!r} has no values: give at least one")
            _unique(f"values of concept {name!r}", vals)

    @classmethod
    def of_sizes(cls, *n_values: int) -> ConceptSpace:
        """Build an anonymous space with V_k values per concept, named ``c0`` ... and ``0`` ...."""
        if any(n < 1 for n in n_values):
            raise ValueError(f"every concept needs at least one value; got sizes {n_values}")
        return cls(
            tuple(f"c{k}" for k in range(len(n_values))),
            tuple(tuple(str(v) for v in range(n)) for n in n_values),
        )

    @property
    def n_concepts(self) -> int:
        """K."""
        return len(self.concepts)

    @cached_property
    def n_values(self) -> tuple[int, ...]:
        """V_1 ... V_K."""
        return tuple(len(v) for v in self.values)

    @cached_property
    def n_possible_objects(self) -> int:
        """|O| = prod_k V_k."""
        return math.prod(self.n_values)

    def all_objects(self) -> Int[Tensor, "object concept"]:
        """List every possible object, in the order of the object index.

        Raises ValueError when there are more than 10 million.
        """
        if self.n_possible_objects > MAX_ENUMERATED:
            raise ValueError(
                f"this space has {self.n_possible_objects:,} objects, too many to list: "
                "use objects_from_index for some of them"
            )
        return self.objects_from_index(torch.arange(self.n_possible_objects))

    def object_index(self, objects: Int[Tensor, "*batch concept"]) -> Int[Tensor, "*batch"]:
        """Number objects 0 ... |O|-1: index = sum_k c_k prod_{j>k} V_j.

        Raises ValueError when a value index lies outside its concept.
        """
        self.check(objects)
        return (objects * self._strides.to(objects.device)).sum(-1)

    def objects_from_index(self, index: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch concept"]:
        """Invert :meth:`object_index`. Raises ValueError for an index outside 0 ... |O|-1."""
        if index.numel() and not (0 <= int(index.min()) and int(index.max()) < self.n_possible_objects):
            raise ValueError(
                f"object indices run from 0 to {self.n_possible_objects - 1}; "
                f"got {int(index.min())} to {int(index.max())}"
            )
        sizes = torch.tensor(self.n_values, device=index.device)
        return index.unsqueeze(-1) // self._strides.to(index.device) % sizes

    def scene_index(self, scenes: Int[Tensor, "*batch slot concept"]) -> Int[Tensor, "*batch"]:
        """Number scenes 0 ... |O|^m - 1, the last slot running fastest (the order of factorial_scenes).

        Raises ValueError for a value outside its concept, or when |O|^m does not fit 64 bits.
        """
        n_slots = scenes.shape[-2]
        self._check_index_fits(n_slots)
        powers = _powers(self.n_possible_objects, n_slots).to(scenes.device)
        return (self.object_index(scenes) * powers).sum(-1)

    def scenes_from_index(
        self, index: Int[Tensor, "*batch"], n_objects: int
    ) -> Int[Tensor, "*batch slot concept"]:
        """Invert :meth:`scene_index` for scenes of ``n_objects`` objects.

        Raises ValueError for an index outside 0 ... |O|^m - 1, or when |O|^m does not fit 64 bits.
        """
        _at_least_one_object(n_objects)
        self._check_index_fits(n_objects)
        n_all = self.n_possible_objects
        if index.numel() and not (0 <= int(index.min()) and int(index.max()) < n_all**n_objects):
            raise ValueError(
                f"scene indices run from 0 to {n_all**n_objects - 1}; "
                f"got {int(index.min())} to {int(index.max())}"
            )
        powers = _powers(n_all, n_objects).to(index.device)
        return self.objects_from_index(index.unsqueeze(-1) // powers % n_all)

    def check(self, objects: Int[Tensor, "*batch concept"]) -> None:
        """Raise ValueError unless the last axis has K value indices, each within its concept."""
        if objects.shape[-1] != self.n_concepts:
            raise ValueError(
                f"expected {self.n_concepts} concepts {self.concepts} on the last axis; "
                f"got shape {tuple(objects.shape)}"
            )
        if not objects.numel():
            return
        flat = objects.reshape(-1, self.n_concepts)
        low, high = flat.amin(0).tolist(), flat.amax(0).tolist()
        for name, size, lo, hi in zip(self.concepts, self.n_values, low, high, strict=True):
            if lo < 0 or hi >= size:
                raise ValueError(
                    f"concept {name!r} has {size} values, indices 0 to {size - 1}; got {lo} to {hi}"
                )

    def describe(self, obj: Int[Tensor, "concept"]) -> str:
        """Name one object: ``"red circle"``."""
        self.check(obj)
        return " ".join(vals[int(v)] for vals, v in zip(self.values, obj, strict=True))

    def subset(self, **keep: Sequence[str]) -> ConceptSpace:
        """Keep only the named values of the named concepts, in the order given.

        Raises ValueError for an unknown concept or value.
        """
        unknown = set(keep) - set(self.concepts)
        if unknown:
            raise ValueError(f"unknown concepts {sorted(unknown)}; this space has {self.concepts}")
        for name, vals in keep.items():
            _not_one_string(f"the values of {name!r} to keep", vals)
            known = self.values[self.concepts.index(name)]
            missing = [v for v in vals if v not in known]
            if missing:
                raise ValueError(f"concept {name!r} has no values {missing}; it has {known}")
        return ConceptSpace(
            self.concepts,
            tuple(tuple(keep.get(name, vals)) for name, vals in zip(self.concepts, self.values, strict=True)),
        )

    def _check_index_fits(self, n_objects: int) -> None:
        if self.n_possible_objects**n_objects >= 2**63:
            raise ValueError(
                f"{self.n_possible_objects:,} objects in {n_objects} slots make more scenes than 64 bits can "
                "number: use fewer slots, or the object_index of every slot"
            )

    @cached_property
    def _strides(self) -> Int[Tensor, "concept"]:
        if self.n_possible_objects >= 2**63:
            raise ValueError(
                f"{self.n_concepts} concepts make {self.n_possible_objects:,} objects, more than 64 bits can "
                "number: use fewer concepts or values"
            )
        return torch.tensor([math.prod(self.n_values[k + 1 :]) for k in range(self.n_concepts)])


def check_scenes(space: ConceptSpace, scenes: object, *, may_be_empty: bool = False) -> None:
    """Raise ValueError unless these are scenes of the space: int64 (scene, slot, concept), in range."""
    wanted = "scenes must be an int64 tensor (scene, slot, concept)"
    if not isinstance(scenes, Tensor):
        raise ValueError(f"{wanted}; got {type(scenes).__name__}: use torch.as_tensor(scenes).long()")
    if scenes.dtype != torch.int64:
        raise ValueError(f"{wanted}; got {scenes.dtype} {tuple(scenes.shape)}: use scenes.long()")
    if scenes.ndim != 3:
        advice = ". Objects become scenes of one slot by objects[:, None, :]" if scenes.ndim == 2 else ""
        raise ValueError(f"{wanted}; got {scenes.dtype} {tuple(scenes.shape)}{advice}")
    if not scenes.shape[1]:
        raise ValueError(f"a scene needs at least one object; got shape {tuple(scenes.shape)}")
    if not (may_be_empty or len(scenes)):
        raise ValueError(f"no scene was given, shape {tuple(scenes.shape)}: give at least one")
    space.check(scenes)


def factorial_scenes(
    space: ConceptSpace, n_objects: int, *, repeats: Repeats = "allowed"
) -> Int[Tensor, "scene slot concept"]:
    """List every ordered scene of ``n_objects`` objects.

    ``repeats``: ``"allowed"`` (|O|^m scenes), ``"distinct objects"`` (no object twice) or
    ``"distinct values"`` (no two objects share any value, as in PUG:SPARE).
    Raises ValueError when no such scene exists, or when there are more than 10 million tuples to list
    (use :func:`sample_scenes`).
    """
    _check_request(space, n_objects, repeats)
    n_tuples = space.n_possible_objects**n_objects
    if n_tuples > MAX_ENUMERATED:
        raise ValueError(
            f"{space.n_possible_objects} objects in {n_objects} slots make {n_tuples:,} scenes, too many to "
            "list: draw some with sample_scenes(space, n_objects, n_scenes, seed=...)"
        )
    scenes = space.scenes_from_index(torch.arange(n_tuples), n_objects)
    return scenes[_keeps(space, scenes, repeats)]


def sample_scenes(
    space: ConceptSpace,
    n_objects: int,
    n_scenes: int,
    *,
    seed: int,
    repeats: Repeats = "allowed",
    objects: Int[Tensor, "object concept"] | None = None,
) -> Int[Tensor, "scene slot concept"]:
    """Draw distinct ordered scenes uniformly, without replacement.

    ``objects`` restricts the scenes to these objects. The order of the scenes is random.
    Raises ValueError when fewer than ``n_scenes`` such scenes exist.
    """
    _check_request(space, n_objects, repeats)
    if n_scenes < 1:
        raise ValueError(f"n_scenes must be at least 1; got {n_scenes}")
    if objects is None:
        space._check_index_fits(1)
        n_pool = space.n_possible_objects
    else:
        space.check(objects)
        pool = objects.cpu().unique(dim=0)
        n_pool = len(pool)

    def of_pool(picks: Int[Tensor, "scene slot"]) -> Int[Tensor, "scene slot concept"]:
        return space.objects_from_index(picks) if objects is None else pool[picks]

    n_tuples = n_pool**n_objects
    generator = torch.Generator().manual_seed(seed)
    if n_tuples > 50 * n_scenes or n_tuples > MAX_ENUMERATED:
        # Few out of many: draw with replacement, drop repeats, draw again until enough are distinct.
        found = torch.empty(0, n_objects, dtype=torch.int64)
        for _ in range(100):
            picks = torch.randint(n_pool, (2 * n_scenes, n_objects), generator=generator)
            picks = picks[_keeps(space, of_pool(picks), repeats)]
            found = torch.cat([found, picks]).unique(dim=0)
            if len(found) >= n_scenes:
                return of_pool(found[torch.randperm(len(found), generator=generator)[:n_scenes]])
        if n_tuples > MAX_ENUMERATED:
            raise ValueError(
                f"asked for {n_scenes:,} scenes of {n_objects} out of {n_pool:,} objects with "
                f"repeats={repeats!r}, but only {len(found):,} were found in {200 * n_scenes:,} draws: "
                "ask for fewer"
            )
    picks = torch.arange(n_tuples).unsqueeze(-1) // _powers(n_pool, n_objects) % max(n_pool, 1)
    scenes = of_pool(picks)
    scenes = scenes[_keeps(space, scenes, repeats)]
    if len(scenes) < n_scenes:
        raise ValueError(
            f"asked for {n_scenes:,} scenes of {n_objects} out of {n_pool:,} objects with "
            f"repeats={repeats!r}, but only {len(scenes):,} exist: ask for fewer"
        )
    return scenes[torch.randperm(len(scenes), generator=generator)[:n_scenes]]


def single_object_scenes(space: ConceptSpace) -> Int[Tensor, "scene slot concept"]:
    """List the |O| scenes that hold one object each."""
    return space.all_objects().unsqueeze(1)


def captions(
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    *,
    template: str | None = None,
    joiner: str = " and ",
) -> list[str]:
    """Write the caption of every scene: one phrase an object, joined.

    ``template`` names concepts in braces; the default is ``"a {first} {second} ..."`` in concept order,
    so a 20 x 20 caption reads "a red circle and a blue square" (paper, section 4).
    Raises ValueError when the template cannot be read, names an unknown concept or leaves one out, or when
    two objects get the same phrase.
    """
    check_scenes(space, scenes, may_be_empty=True)
    shown, place = space.object_index(scenes).unique(return_inverse=True)
    phrases = [_phrase(space, obj, template) for obj in space.objects_from_index(shown).tolist()]
    if template is not None and not phrases:
        _phrase(space, [0] * space.n_concepts, template)
    first_with: dict[str, int] = {}
    for i, phrase in enumerate(phrases):
        j = first_with.setdefault(phrase, i)
        if j != i:
            a, b = (space.objects_from_index(shown[k]).tolist() for k in (j, i))
            raise ValueError(
                f"objects {a} and {b} are both written {phrase!r}: captions would not tell them apart; "
                "rename values, or give a template that separates the concepts"
            )
    return [joiner.join(phrases[i] for i in row) for row in place.tolist()]


def _phrase(space: ConceptSpace, obj: Sequence[int], template: str | None) -> str:
    names = [vals[i] for vals, i in zip(space.values, obj, strict=True)]
    if template is None:
        return "a " + " ".join(names)
    wanted = f"name every concept of {space.concepts} once or more, in braces"
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as err:
        raise ValueError(f"the template {template!r} cannot be read ({err}): {wanted}") from None
    unknown = [f for f in fields if f not in space.concepts]
    if unknown:
        raise ValueError(f"the template {template!r} names unknown concepts {unknown}: {wanted}")
    left_out = [c for c in space.concepts if c not in fields]
    if left_out:
        raise ValueError(
            f"the template {template!r} leaves out {left_out}, so captions would not tell scenes apart: "
            f"{wanted}"
        )
    return template.format_map(dict(zip(space.concepts, names, strict=True)))


class SceneKind(IntEnum):
    """Say how a scene relates to an object-level split."""

    TRAIN = 0
    """Every object is a training object."""
    MIXED = 1
    """At least one training object and at least one held-out object."""
    HELD_OUT = 2
    """Every object is held out."""


@dataclass(frozen=True, eq=False)
class ObjectSplit:
    """Hold the training objects of one space; the rest are held out.

    Raises ValueError unless ``is_train`` has one bool for every possible object.
    """

    space: ConceptSpace
    is_train: Bool[Tensor, "object"]
    """Indexed by object index."""

    def __post_init__(self) -> None:
        if not isinstance(self.is_train, Tensor) or self.is_train.dtype != torch.bool:
            found = getattr(self.is_train, "dtype", type(self.is_train).__name__)
            raise ValueError(
                f"is_train must be a bool tensor, true for training objects; got {found}: numbers would be taken "
                "for indices"
            )
        if self.is_train.shape != (self.space.n_possible_objects,):
            raise ValueError(
                f"is_train needs one entry for each of the {self.space.n_possible_objects:,} possible "
                f"objects; got shape {tuple(self.is_train.shape)}"
            )

    @property
    def coverage(self) -> float:
        """rho: the share of all possible objects that training scenes are made of."""
        return float(self.is_train.double().mean())

    @property
    def train_objects(self) -> Int[Tensor, "object concept"]:
        """The objects that training scenes are made of."""
        return self.space.all_objects()[self.is_train]

    @property
    def held_out_objects(self) -> Int[Tensor, "object concept"]:
        """The objects that no training scene contains."""
        return self.space.all_objects()[~self.is_train]

    def kinds(self, scenes: Int[Tensor, "scene slot concept"]) -> Int[Tensor, "scene"]:
        """Give the :class:`SceneKind` of every scene."""
        check_scenes(self.space, scenes, may_be_empty=True)
        seen = self.is_train.to(scenes.device)[self.space.object_index(scenes)]
        kinds = torch.full((len(scenes),), int(SceneKind.MIXED), device=scenes.device)
        kinds[seen.all(1)] = int(SceneKind.TRAIN)
        kinds[~seen.any(1)] = int(SceneKind.HELD_OUT)
        return kinds


def object_split(space: ConceptSpace, coverage: float, *, seed: int, every_value: bool = True) -> ObjectSplit:
    """Draw round(coverage * |O|) training objects such that every concept value occurs among them.

    A value that no training object shows could not be learned at all, so one random object per value is
    placed first (max_k V_k objects in all), the rest are drawn uniformly. Splits of one seed are nested: a larger
    coverage only adds objects.
    ``every_value=False`` also accepts a coverage of fewer objects than that, at least one; they then show as many
    values as they can.
    Raises ValueError when coverage leaves no held-out object, or too few training objects to show every
    value.
    """
    n_all, n_min = space.n_possible_objects, max(space.n_values)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is a share strictly between 0 and 1; got {coverage}")
    n_train = round(coverage * n_all)
    if n_min == n_all:
        raise ValueError(
            f"the values of this space can only be shown by all of its {n_all} objects, so none can be held "
            "out: a split needs two concepts of two or more values"
        )
    if n_train < n_min and every_value:
        raise ValueError(
            f"coverage {coverage} of {n_all} objects trains on {n_train}, but {n_min} are needed to show "
            f"every value once: use at least {math.ceil(100 * n_min / n_all) / 100:.2f}, or every_value=False"
        )
    if n_train < 1:
        raise ValueError(
            f"coverage {coverage} of {n_all} objects leaves none to train on: use at least 1/{n_all}"
        )
    if n_train >= n_all:
        raise ValueError(
            f"coverage {coverage} of {n_all} objects leaves none held out: use at most {n_all - 1}/{n_all}"
        )
    generator = torch.Generator().manual_seed(seed)
    # Column k runs through concept k's values in one random order after another, so all are shown.
    first = torch.stack(
        [
            torch.cat([torch.randperm(v, generator=generator) for _ in range(-(-n_min // v))])[:n_min]
            for v in space.n_values
        ],
        dim=1,
    )
    is_train = torch.zeros(n_all, dtype=torch.bool)
    is_train[space.object_index(first[:n_train])] = True
    rest = (~is_train).nonzero().squeeze(1)
    extra = max(0, n_train - n_min)
    is_train[rest[torch.randperm(len(rest), generator=generator)[:extra]]] = True
    return ObjectSplit(space, is_train)


def scene_split(n_scenes: int, *, train_fraction: float = 0.4, seed: int) -> Bool[Tensor, "scene"]:
    """Mark round(train_fraction * n_scenes) random scenes as training scenes (the probe split).

    Raises ValueError when either side would be empty.
    """
    n_train = round(train_fraction * n_scenes)
    if not 0 < n_train < n_scenes:
        raise ValueError(
            f"train_fraction {train_fraction} of {n_scenes} scenes leaves {n_train} to train on and "
            f"{n_scenes - n_train} to test on: both sides need at least one"
        )
    generator = torch.Generator().manual_seed(seed)
    is_train = torch.zeros(n_scenes, dtype=torch.bool)
    is_train[torch.randperm(n_scenes, generator=generator)[:n_train]] = True
    return is_train


def _unique(what: str, names: tuple[str, ...]) -> None:
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"{what} must differ; repeated: {repeated}")


def _not_one_string(what: str, names: object) -> None:
    if isinstance(names, str):
        raise ValueError(
            f"{what} must be a sequence of names, for example ({names!r},); got the text {names!r}"
        )


def _powers(base: int, n: int) -> Int[Tensor, "slot"]:
    return torch.tensor([base ** (n - 1 - i) for i in range(n)])


def _keeps(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], repeats: Repeats
) -> Bool[Tensor, "scene"]:
    keep = torch.ones(len(scenes), dtype=torch.bool)
    if repeats == "allowed":
        return keep
    for i in range(scenes.shape[1]):
        for j in range(i):
            same = scenes[:, i] == scenes[:, j]
            keep &= ~(same.all(-1) if repeats == "distinct objects" else same.any(-1))
    return keep


def _at_least_one_object(n_objects: int) -> None:
    if n_objects < 1:
        raise ValueError(f"a scene needs at least one object; got n_objects={n_objects}")


def _check_request(space: ConceptSpace, n_objects: int, repeats: Repeats) -> None:
    _at_least_one_object(n_objects)
    if repeats not in REPEATS:
        raise ValueError(f"repeats must be one of {REPEATS}; got {repeats!r}")
    if repeats == "distinct objects" and n_objects > space.n_possible_objects:
        raise ValueError(
            f"{n_objects} distinct objects asked for, but only {space.n_possible_objects} exist: "
            "use fewer slots, or repeats='allowed'"
        )
    if repeats == "distinct values" and n_objects > min(space.n_values):
        smallest = min(range(space.n_concepts), key=lambda k: space.n_values[k])
        raise ValueError(
            f"{n_objects} objects that share no value asked for, but concept {space.concepts[smallest]!r} "
            f"has only {space.n_values[smallest]} values: use fewer slots, or repeats='distinct objects'"
        )
