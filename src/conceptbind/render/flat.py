"""Flat anti-aliased shapes on a plain ground: CLEVR-2D and its relatives (paper, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from torch import Tensor

from conceptbind.render.occlusion import MAX_TURN, offset_that_hides
from conceptbind.render.placement import as_places, fixed_places, occlusion_range
from conceptbind.render.shapes import REACH, SHAPES, mask
from conceptbind.scenes import ConceptSpace
from conceptbind.spaces import CLEVR_2D, CLEVR_COLOURS

VERSION = 1
"""Part of the settings: raised whenever the same settings would give other pixels."""

PLACES: dict[int, tuple[tuple[float, float], ...]] = {
    1: ((0.5, 0.5),),
    2: ((0.25, 0.5), (0.75, 0.5)),
    3: ((0.25, 0.25), (0.75, 0.25), (0.5, 0.75)),
    4: ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)),
}
"""For scenes of 1 to 4 objects, every slot's centre (x, y) in shares of the picture, in reading order."""

# Placements tried for one scene before it is called impossible.
_TRIES = 200_000

_COLOUR_NAMES = ("colour", "color")


class _Placed(NamedTuple):
    centres: Int[np.ndarray, "slot 2"]
    sides: Float[np.ndarray, "slot"]
    order: Sequence[int]
    """The slots as they are drawn, the last one in front."""
    hidden: float = 0.0
    """In an occluded scene, the share of the back object's area that the front one hides."""


@dataclass(frozen=True)
class FlatRenderer:
    """Draw scenes of a space with the concepts ``colour`` (or ``color``) and ``shape``.

    All shapes have the same area, ``(object_size * size)`` squared, and are centred on their centre of area.
    A place is rounded to whole pixels, an object's side to quarter pixels. Where an object may be depends on
    its side, never on its shape: the farthest-reaching shape of the space decides for all.

    Raises ValueError when the space has a concept, colour or shape that cannot be drawn, a colour could be
    lost on the background, or a setting is out of range.
    """

    space: ConceptSpace = CLEVR_2D
    size: int = 224
    """Width and height in pixels."""
    placement: Literal["fixed", "free", "occluded"] = "fixed"
    """``"fixed"``: slot i at the i-th of ``places``. ``"free"``: uniform over all layouts in the picture.
    ``"occluded"``: two objects about the middle, slot 0 to the left of slot 1, one drawn over the other; which
    one, and how steep the line between them is, is drawn at random for every scene."""
    places: tuple[tuple[float, float], ...] | None = None
    """Fixed centres (x, y) in shares of the picture; None takes ``PLACES`` for the number of objects."""
    object_size: float = 0.2
    """Side of the square with an object's area, in shares of the picture."""
    place_jitter: float = 0.0
    """Fixed places move by up to this share of the picture in x and in y."""
    size_jitter: float = 0.0
    """Objects are scaled by a factor uniform in 1 - size_jitter ... 1 + size_jitter."""
    background: tuple[int, int, int] = (220, 220, 220)
    """RGB 0-255."""
    background_jitter: int = 0
    """Every channel of the background moves by up to this much, within 0-255."""
    overlap: bool = False
    """Whether objects may overlap; later slots are then drawn over earlier ones and may hide them."""
    occlusion: tuple[float, float] = (0.2, 0.35)
    """For every occluded scene, the hidden share of the back object's area is uniform in this range, and met
    to half a pixel, 0.012 at the default sizes. Two objects of one colour run into one another."""
    colours: Mapping[str, tuple[int, int, int]] = field(default_factory=lambda: CLEVR_COLOURS, hash=False)
    """RGB 0-255 by name."""
    seed: int = 0
    """Determines all jitter and free placement, together with the scene and the copy."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "colours", {n: _rgb(f"colour {n!r}", c) for n, c in self.colours.items()})
        object.__setattr__(self, "background", _rgb("background", self.background))
        if self.places is not None:
            object.__setattr__(self, "places", as_places(self.places))
        self._check_space()
        if self.size < 8:
            raise ValueError(f"size is a number of pixels, at least 8; got {self.size}")
        if self.placement not in ("fixed", "free", "occluded"):
            raise ValueError(f"placement must be 'fixed', 'free' or 'occluded'; got {self.placement!r}")
        if self.placement != "fixed" and (self.places is not None or self.place_jitter):
            how = "are uniform over the picture" if self.placement == "free" else "follow from the occlusion"
            raise ValueError(
                "places and place_jitter belong to placement='fixed': "
                f"leave them out, {self.placement} places {how}"
            )
        if self.placement == "occluded" and self.overlap:
            raise ValueError(
                "overlap is for placement='fixed' or 'free': leave it out, occluded objects overlap"
            )
        object.__setattr__(self, "occlusion", occlusion_range(self.occlusion))
        for name, value, top in (
            ("object_size", self.object_size, 1.0),
            ("size_jitter", self.size_jitter, 1.0),
            ("place_jitter", self.place_jitter, 0.5),
            ("background_jitter", self.background_jitter, 256),
        ):
            if not 0 <= value < top:
                raise ValueError(f"{name} must be at least 0 and below {top:g}; got {value}")
        if self.object_size * (1 - self.size_jitter) * self.size < 2:
            raise ValueError(
                f"objects must be two pixels wide or more; object_size {self.object_size:g}, size_jitter "
                f"{self.size_jitter:g} and size {self.size} allow smaller ones"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more; got {self.seed}")

    @property
    def settings(self) -> dict[str, object]:
        """Give everything that determines the pixels of a scene, ready for JSON."""
        colours = self.space.values[self._colour_concept]
        return {
            "renderer": "flat",
            "version": VERSION,
            "concepts": list(self.space.concepts),
            "values": [list(v) for v in self.space.values],
            "size": self.size,
            "placement": self.placement,
            "places": None if self.places is None else [list(p) for p in self.places],
            "object_size": self.object_size,
            "place_jitter": self.place_jitter,
            "size_jitter": self.size_jitter,
            "background": list(self.background),
            "background_jitter": self.background_jitter,
            "overlap": self.overlap,
            "colours": {name: list(self.colours[name]) for name in colours},
            "seed": self.seed,
            # Last and only where it matters, so that what was known of other placements stays so.
            **({"occlusion": list(self.occlusion)} if self.placement == "occluded" else {}),
        }

    def render(
        self, scenes: Int[Tensor, "scene slot concept"], *, copy: int = 0
    ) -> UInt8[Tensor, "scene 3 size size"]:
        """Draw every scene; the picture depends on the settings, the scene and ``copy`` only.

        ``copy``: 0, 1, ... give other jitter and other free places for the same scene.
        A picture of 224 x 224 takes 0.15 MB: draw a large set in pieces.
        Raises ValueError when the objects cannot be placed.
        """
        if copy < 0:
            raise ValueError(f"copy must be 0 or more; got {copy}")
        self.space.check(scenes)
        pictures = np.empty((len(scenes), self.size, self.size, 3), dtype=np.uint8)
        for picture, scene in zip(pictures, scenes.tolist(), strict=True):
            self._draw(picture, scene, copy)
        return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()

    def layout(
        self, scene: Int[Tensor, "slot concept"], *, copy: int = 0
    ) -> tuple[Int[np.ndarray, "slot 2"], Float[np.ndarray, "slot"]]:
        """Give where :meth:`render` puts the objects of one scene, in pixels.

        First the centres (x, y), each the corner between pixels x - 1 and x, y - 1 and y; then the sides.
        """
        self.space.check(scene)
        placed = self._place(scene.tolist(), self._rng(scene.tolist(), copy))
        return placed.centres, placed.sides

    def hidden(self, scene: Int[Tensor, "slot concept"], *, copy: int = 0) -> tuple[int, float]:
        """Give the front slot of one occluded scene, and the share of the other object's area it hides.

        Raises ValueError unless placement is ``"occluded"``, or when the objects cannot be placed.
        """
        if self.placement != "occluded":
            raise ValueError(f"placement {self.placement!r} says nothing of this: use placement='occluded'")
        self.space.check(scene)
        placed = self._place(scene.tolist(), self._rng(scene.tolist(), copy))
        return placed.order[-1], placed.hidden

    def _draw(self, picture: UInt8[np.ndarray, "size size 3"], scene: list[list[int]], copy: int) -> None:
        rng = self._rng(scene, copy)
        placed = self._place(scene, rng)
        shift = rng.integers(-self.background_jitter, self.background_jitter, size=3, endpoint=True)
        picture[:] = np.clip(np.add(self.background, shift), 0, 255)
        for slot in placed.order:
            (x, y), side, obj = placed.centres[slot], placed.sides[slot], scene[slot]
            colour, shape = (
                self.space.values[k][obj[k]] for k in (self._colour_concept, self._shape_concept)
            )
            alpha = mask(shape, float(side)).astype(np.int32)[:, :, None]
            half = len(alpha) // 2
            # The empty rim of a mask may stick out of the picture.
            top, left = max(y - half, 0), max(x - half, 0)
            part = picture[top : y + half, left : x + half]
            alpha = alpha[top - (y - half) :, left - (x - half) :][: part.shape[0], : part.shape[1]]
            part[:] = (part * (255 - alpha) + np.array(self.colours[colour]) * alpha + 127) // 255

    def _place(self, scene: list[list[int]], rng: np.random.Generator) -> _Placed:
        n_objects = len(scene)
        scale = rng.uniform(1 - self.size_jitter, 1 + self.size_jitter, size=n_objects)
        sides = np.rint(4 * scale * self.object_size * self.size) / 4
        reach = sides * max(REACH[shape] for shape in self.space.values[self._shape_concept])
        low, high = np.ceil(reach)[:, None], np.floor(self.size - reach)[:, None]
        objects = f"{n_objects} objects of object_size {self.object_size:g}"
        jitters = [name for name in ("size_jitter", "place_jitter") if getattr(self, name)]
        advice = "use a smaller " + " or ".join(["object_size", *jitters])
        if self.placement == "fixed":
            jitter = rng.uniform(-self.place_jitter, self.place_jitter, size=(n_objects, 2))
            centres = np.rint((fixed_places(n_objects, self.places, PLACES) + jitter) * self.size).astype(
                np.int64
            )
            if (centres < low).any() or (centres > high).any():
                raise ValueError(f"{objects} stick out of the picture at their fixed places: {advice}")
            if not self.overlap and not _apart(centres[None], reach)[0]:
                raise ValueError(f"{objects} overlap at their fixed places: {advice}, or overlap=True")
            return _Placed(centres, sides, range(n_objects))
        if self.placement == "occluded":
            placed = self._occluded(scene, sides, rng)
            if (placed.centres < low).any() or (placed.centres > high).any():
                raise ValueError(f"{objects} stick out of the picture: {advice}")
            return placed
        if (low > high).any():
            raise ValueError(f"{objects} are larger than the picture: {advice}")
        # Whole layouts are drawn until one has no overlap: one object after another would not be uniform.
        n_tried, n_block = 0, 16
        while n_tried < _TRIES:
            centres = rng.integers(
                low.astype(np.int64), high.astype(np.int64), size=(n_block, n_objects, 2), endpoint=True
            )
            good = np.ones(n_block, dtype=bool) if self.overlap else _apart(centres, reach)
            if good.any():
                return _Placed(centres[good.argmax()], sides, range(n_objects))
            n_tried, n_block = n_tried + n_block, min(4 * n_block, 16384)
        raise ValueError(
            f"{objects} found no places without overlap in {n_tried:,} tries: {advice}, or overlap=True"
        )

    def _occluded(
        self, scene: list[list[int]], sides: Float[np.ndarray, "slot"], rng: np.random.Generator
    ) -> _Placed:
        if len(scene) != 2:
            raise ValueError(
                f"an occluded scene has two objects, these have {len(scene)}: use placement='fixed' or 'free'"
            )
        front = int(rng.integers(2))
        wanted, angle = float(rng.uniform(*self.occlusion)), float(rng.uniform(-MAX_TURN, MAX_TURN))
        shapes = [self.space.values[self._shape_concept][obj[self._shape_concept]] for obj in scene]
        one, other = ((shapes[slot], float(sides[slot])) for slot in (front, 1 - front))
        try:
            offset, hidden = offset_that_hides(one, other, wanted, angle=angle)
        except ValueError as error:
            raise ValueError(f"{error}: use a lower occlusion than {self.occlusion}") from None
        if front == 0:
            offset = offset * (-1, 1)
        # The middle of the two, to the pixel, is the middle of the picture.
        back_at = self.size // 2 - offset // 2
        centres = np.empty((2, 2), dtype=np.int64)
        centres[front], centres[1 - front] = back_at + offset, back_at
        return _Placed(centres, sides, (1 - front, front), hidden)

    def _rng(self, scene: list[list[int]], copy: int) -> np.random.Generator:
        # One stream a scene, so that a picture does not depend on its batch. The length comes first: numpy
        # treats seeds that differ by trailing zeros alike.
        words = [len(scene), len(self.space.concepts), self.seed, copy, *(v for obj in scene for v in obj)]
        return np.random.default_rng(words)

    @property
    def _colour_concept(self) -> int:
        return next(k for k, name in enumerate(self.space.concepts) if name in _COLOUR_NAMES)

    @property
    def _shape_concept(self) -> int:
        return self.space.concepts.index("shape")

    def _check_space(self) -> None:
        names = self.space.concepts
        if len(names) != 2 or "shape" not in names or not set(names) & set(_COLOUR_NAMES):
            raise ValueError(
                "the flat renderer draws the concepts 'colour' and 'shape', nothing else; "
                f"this space has {names}"
            )
        colours, shapes = self.space.values[self._colour_concept], self.space.values[self._shape_concept]
        unknown = [v for v in shapes if v not in SHAPES]
        if unknown:
            raise ValueError(f"cannot draw the shapes {unknown}; can draw {SHAPES}")
        unknown = [v for v in colours if v not in self.colours]
        if unknown:
            raise ValueError(
                f"cannot draw the colours {unknown}; can draw {tuple(self.colours)}: "
                "give the RGB of others in colours={...}"
            )
        for name in colours:
            difference = max(abs(a - b) for a, b in zip(self.colours[name], self.background, strict=True))
            if difference <= self.background_jitter:
                raise ValueError(
                    f"colour {name!r} {self.colours[name]} could be lost on the background {self.background} "
                    f"with background_jitter {self.background_jitter}: choose another background"
                )


def to_pil(images: UInt8[Tensor, "scene 3 height width"]) -> list[Image.Image]:
    """Turn pictures into PIL images."""
    return [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).cpu().numpy()]


def _apart(
    centres: Int[np.ndarray, "layout slot 2"], reach: Float[np.ndarray, "slot"]
) -> Bool[np.ndarray, "layout"]:
    """Say which layouts keep the circles around all objects apart by a pixel or more."""
    i, j = np.triu_indices(len(reach), 1)
    distance = np.hypot(*np.moveaxis(centres[:, i] - centres[:, j], -1, 0))
    return (distance >= reach[i] + reach[j] + 1).all(1)


def _rgb(what: str, colour: object) -> tuple[int, int, int]:
    try:
        rgb = tuple(int(c) for c in colour)
    except (TypeError, ValueError):
        rgb = ()
    if len(rgb) != 3 or not all(0 <= c <= 255 for c in rgb):
        raise ValueError(f"{what} must be three whole numbers from 0 to 255 (RGB); got {colour!r}")
    return rgb
