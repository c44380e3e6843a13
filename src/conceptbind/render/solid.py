"""Matte solids on a plain ground, rendered with Mitsuba 3: CLEVR and its relatives (paper, section 4).

Mitsuba is an optional extra. The sets of pictures that come with the package need no renderer: see
:mod:`conceptbind.datasets.rendered`.

The ground is the plane z = 0, its unit about an object's width; x points right and y away from the camera.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from conceptbind.provenance import versions
from conceptbind.render.placement import as_places, fixed_places, occlusion_range
from conceptbind.scenes import ConceptSpace
from conceptbind.spaces import CLEVR, CLEVR_COLOURS

VERSION = 1
"""Part of the settings: raised whenever the same settings would give other pixels."""

PLACES: dict[int, tuple[tuple[float, float], ...]] = {
    1: ((0.0, 0.0),),
    2: ((-1.25, 0.0), (1.25, 0.0)),
    3: ((-1.65, 0.95), (1.65, 0.95), (0.0, -1.5)),
}
"""For scenes of 1 to 3 objects, every slot's place (x, y) on the ground; no object hides part of another."""

SOLIDS: tuple[str, ...] = ("cube", "cylinder", "sphere")
"""What can be rendered."""

SPHERE_RADIUS = 0.74
CYLINDER_RADIUS, CYLINDER_HEIGHT = 0.62, 1.2
CUBE_EDGE, CUBE_DEGREES = 1.07, 30.0
"""Sizes that look alike: at one place the silhouettes differ in area by 15 per cent at most."""

CAMERA, TARGET, DEGREES_OF_VIEW = (0.0, -9.6, 5.0), (0.0, 0.1, 0.5), 26.0
"""Where the camera is, the point it looks at, and how wide it sees (both ways, pictures are square)."""

LAMP, LAMP_EDGE, LAMP_RADIANCE, SKY_RADIANCE, GROUND_REFLECTANCE = (-7.0, -4.6, 8.6), 2.4, 54.0, 0.36, 0.62
"""A square lamp front left for soft shadows, and faint even light from everywhere."""

DEPTH = 0.75
"""In occluded scenes the front object is at y = -DEPTH and the other at y = DEPTH."""

_STEPS_PER_UNIT = 100  # occluded objects stand at multiples of this part of a unit
_MAX_APART = 2.0
_MASK_SAMPLES = 4


@dataclass(frozen=True)
class SolidRenderer:
    """Render scenes of a space with the concepts ``colour`` and ``shape``: CLEVR colours and solids.

    A lit surface that faces the lamp has about the RGB of its colour. Light falls directly and after one
    bounce, so objects tint the ground and each other.

    Raises ValueError when the space has a concept, colour or shape that cannot be rendered, or a setting is
    out of range. Rendering, not making one, needs Mitsuba: ``pip install 'conceptbind[render]'``.
    """

    space: ConceptSpace = CLEVR
    size: int = 224
    """Width and height in pixels."""
    placement: Literal["fixed", "occluded"] = "fixed"
    """``"fixed"``: slot i at the i-th of ``places``. ``"occluded"``: two objects, slot 0 to the left of slot
    1, one before the other; which one is drawn at random for every scene."""
    places: tuple[tuple[float, float], ...] | None = None
    """Fixed places (x, y) on the ground; None takes ``PLACES`` for the number of objects."""
    occlusion: tuple[float, float] = (0.2, 0.35)
    """For every occluded scene, the hidden share of the back object's area is uniform in this range."""
    samples: int = 16
    """Light paths a pixel; the noise falls with its square root, the time grows with it."""
    variant: Literal["scalar_rgb", "llvm_ad_rgb"] = "scalar_rgb"
    """Of Mitsuba: the first runs everywhere, the second is about three times as fast and needs LLVM 16 or newer,
    which Mitsuba finds on the system or at ``$DRJIT_LIBLLVM_PATH``. Their noise differs."""
    seed: int = 0
    """Determines the noise and what is drawn for occluded scenes, together with the scene and the copy."""

    def __post_init__(self) -> None:
        if self.places is not None:
            object.__setattr__(self, "places", as_places(self.places))
        names = self.space.concepts
        if set(names) != {"colour", "shape"}:
            raise ValueError(
                f"the solid renderer renders the concepts 'colour' and 'shape', nothing else; this space has {names}"
            )
        for concept, known in (("colour", tuple(CLEVR_COLOURS)), ("shape", SOLIDS)):
            unknown = [v for v in self.space.values[names.index(concept)] if v not in known]
            if unknown:
                raise ValueError(f"cannot render the {concept}s {unknown}; can render {known}")
        if self.size < 8:
            raise ValueError(f"size is a number of pixels, at least 8; got {self.size}")
        if self.placement not in ("fixed", "occluded"):
            raise ValueError(f"placement must be 'fixed' or 'occluded'; got {self.placement!r}")
        if self.placement == "occluded" and self.places is not None:
            raise ValueError(
                "places belong to placement='fixed': leave them out, occlusion places the objects"
            )
        object.__setattr__(self, "occlusion", occlusion_range(self.occlusion))
        if self.samples < 1:
            raise ValueError(f"samples must be 1 or more; got {self.samples}")
        if self.variant not in ("scalar_rgb", "llvm_ad_rgb"):
            raise ValueError(f"variant must be 'scalar_rgb' or 'llvm_ad_rgb'; got {self.variant!r}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more; got {self.seed}")

    @property
    def settings(self) -> dict[str, Any]:
        """Give everything that determines the pixels of a scene, ready for JSON."""
        colours = self.space.values[self.space.concepts.index("colour")]
        placed = {"places": None if self.places is None else [list(p) for p in self.places]}
        if self.placement == "occluded":
            placed = {"occlusion": list(self.occlusion)}
        return {
            "renderer": "solid",
            "version": VERSION,
            **versions("mitsuba"),
            "concepts": list(self.space.concepts),
            "values": [list(v) for v in self.space.values],
            "size": self.size,
            "placement": self.placement,
            **placed,
            "samples": self.samples,
            "variant": self.variant,
            "colours": {name: list(CLEVR_COLOURS[name]) for name in colours},
            "seed": self.seed,
        }

    def render(
        self, scenes: Int[Tensor, "scene slot concept"], *, copy: int = 0
    ) -> UInt8[Tensor, "scene 3 size size"]:
        """Render every scene; the picture depends on the settings, the scene and ``copy`` only.

        ``copy``: 0, 1, ... give other noise for the same scene, and another occlusion.
        A picture of 224 x 224 takes 0.15 MB and, with 16 samples, about a second of one core.
        Raises ModuleNotFoundError when Mitsuba is not installed; ValueError when the objects cannot be placed.
        """
        self.space.check(scenes)
        pictures = np.empty((len(scenes), self.size, self.size, 3), dtype=np.uint8)
        for picture, scene in zip(pictures, scenes, strict=True):
            places = self.layout(scene, copy=copy)
            # Drawn apart from the occlusion, so that it has one place in its own stream.
            noise = int(self._rng(scene, copy, 1).integers(2**31))
            with _mitsuba(self.variant) as mi:
                lit = _lit_scene(mi, self._objects(scene), places, self.size, self.samples)
                light = np.array(mi.render(mi.load_dict(lit), seed=noise)).astype(float)
            picture[:] = np.rint(255 * _to_srgb(np.clip(light, 0, 1)))
        return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()

    def layout(self, scene: Int[Tensor, "slot concept"], *, copy: int = 0) -> Float[np.ndarray, "slot 2"]:
        """Give where :meth:`render` puts the objects of one scene, (x, y) on the ground.

        Raises as :meth:`render` does.
        """
        self.space.check(scene)
        if copy < 0:
            raise ValueError(f"copy must be 0 or more; got {copy}")
        if self.placement == "occluded":
            return np.array(self._occluded(scene, copy)[0])
        return fixed_places(len(scene), self.places, PLACES)

    def hidden(self, scene: Int[Tensor, "slot concept"], *, copy: int = 0) -> tuple[int, float]:
        """Give the front slot of one occluded scene, and the share of the other object's area it hides.

        Measured on masks of the objects: 1 - (area seen behind the front object) / (area seen alone).
        Raises ValueError unless placement is ``"occluded"``.
        """
        if self.placement != "occluded":
            raise ValueError(f"placement {self.placement!r} hides nothing: use placement='occluded'")
        self.space.check(scene)
        return self._occluded(scene, copy)[1:]

    def masks(
        self, scene: Int[Tensor, "slot concept"], *, copy: int = 0
    ) -> Float[np.ndarray, "slot size size"]:
        """Give how much of each pixel every object of one scene covers, 0 to 1, less what is hidden.

        Raises as :meth:`render` does, and ValueError for more than three objects.
        """
        places = tuple(map(tuple, self.layout(scene, copy=copy).tolist()))
        return _masks(self._shapes(scene), places, self.size)

    def _objects(self, scene: Int[Tensor, "slot concept"]) -> list[tuple[str, tuple[int, int, int]]]:
        colour, shape = (self.space.concepts.index(name) for name in ("colour", "shape"))
        return [
            (self.space.values[shape][obj[shape]], CLEVR_COLOURS[self.space.values[colour][obj[colour]]])
            for obj in scene.tolist()
        ]

    def _shapes(self, scene: Int[Tensor, "slot concept"]) -> tuple[str, ...]:
        return tuple(shape for shape, _ in self._objects(scene))

    def _occluded(
        self, scene: Int[Tensor, "slot concept"], copy: int
    ) -> tuple[tuple[tuple[float, float], ...], int, float]:
        if len(scene) != 2:
            raise ValueError(
                f"an occluded scene has two objects, these have {len(scene)}: use placement='fixed'"
            )
        rng = self._rng(scene, copy, 0)
        front, wanted = int(rng.integers(2)), float(rng.uniform(*self.occlusion))
        shapes = self._shapes(scene)
        # Farther apart hides less: the last step that hides at least the wanted share, or the next.
        low, high = 1, int(_MAX_APART * _STEPS_PER_UNIT)
        most = _hidden_share(shapes, front, low, self.size)
        if most < wanted:
            raise ValueError(
                f"a {shapes[front]} before a {shapes[1 - front]} hides at most {most:.2f} of it, "
                f"{wanted:.2f} is wanted: use a lower occlusion than {self.occlusion}"
            )
        while high - low > 1:
            middle = (low + high) // 2
            if _hidden_share(shapes, front, middle, self.size) >= wanted:
                low = middle
            else:
                high = middle
        step = min((low, high), key=lambda s: abs(_hidden_share(shapes, front, s, self.size) - wanted))
        return _places_apart(front, step), front, _hidden_share(shapes, front, step, self.size)

    def _rng(self, scene: Int[Tensor, "slot concept"], copy: int, stream: int) -> np.random.Generator:
        # One stream a scene, so that a picture does not depend on its batch. The length comes first: numpy
        # treats seeds that differ by trailing zeros alike.
        return np.random.default_rng([len(scene), stream, self.seed, copy, *scene.flatten().tolist()])


def _places_apart(front: int, step: int) -> tuple[tuple[float, float], ...]:
    half = step / (2 * _STEPS_PER_UNIT)
    return tuple((x, -DEPTH if slot == front else DEPTH) for slot, x in enumerate((-half, half)))


@lru_cache(maxsize=8192)
def _hidden_share(shapes: tuple[str, ...], front: int, step: int, size: int) -> float:
    back, places = 1 - front, _places_apart(front, step)
    seen = _masks(shapes, places, size)[back].sum()
    return float(1 - seen / _area(shapes[back], places[back], size))


@lru_cache(maxsize=8192)
def _area(shape: str, place: tuple[float, ...], size: int) -> float:
    return float(_masks((shape,), (place,), size).sum())


def _masks(
    shapes: tuple[str, ...], places: tuple[tuple[float, ...], ...], size: int
) -> Float[np.ndarray, "slot size size"]:
    """Render every object glowing in a colour channel of its own, in the dark."""
    if len(shapes) > 3:
        raise ValueError(f"masks are known for up to three objects; got {len(shapes)}")
    # Always one variant, so that where objects stand depends on no other.
    with _mitsuba("scalar_rgb") as mi:
        parts = {}
        for slot, (shape, place) in enumerate(zip(shapes, places, strict=True)):
            glow = {"type": "area", "radiance": {"type": "rgb", "value": np.eye(3)[slot].tolist()}}
            parts |= _solid(mi, f"object_{slot}", shape, place, {"emitter": glow})
        film = _sensor(mi, size, _MASK_SAMPLES, {"type": "box"})
        scene = {"type": "scene", "integrator": {"type": "path", "max_depth": 1}, "sensor": film, **parts}
        channels = np.array(mi.render(mi.load_dict(scene), seed=0))
    return channels.transpose(2, 0, 1)[: len(shapes)].astype(float)


def _lit_scene(
    mi: Any,
    objects: list[tuple[str, tuple[int, int, int]]],
    places: Float[np.ndarray, "slot 2"],
    size: int,
    samples: int,
) -> dict[str, Any]:
    to_world = mi.ScalarTransform4f()
    scene = {
        "type": "scene",
        "integrator": {"type": "path", "max_depth": 3},
        "sensor": _sensor(mi, size, samples, {"type": "gaussian"}),
        "ground": {"type": "rectangle", "to_world": to_world.scale(60.0), "bsdf": _matte(GROUND_REFLECTANCE)},
        # No samples are sent to the sky: those that leave a matte surface find it, with less noise.
        "sky": {
            "type": "constant",
            "sampling_weight": 0.0,
            "radiance": {"type": "rgb", "value": SKY_RADIANCE},
        },
        "lamp": {
            "type": "rectangle",
            "to_world": to_world.look_at(origin=list(LAMP), target=[0, 0, 0], up=[0, 0, 1]).scale(
                LAMP_EDGE / 2
            ),
            "emitter": {"type": "area", "radiance": {"type": "rgb", "value": LAMP_RADIANCE}},
            "bsdf": _matte(0.0),
        },
    }
    for slot, ((shape, colour), place) in enumerate(zip(objects, places.tolist(), strict=True)):
        matte = _matte(_to_linear(np.array(colour) / 255).tolist())
        scene |= _solid(mi, f"object_{slot}", shape, tuple(place), {"bsdf": matte})
    return scene


def _sensor(mi: Any, size: int, samples: int, rfilter: dict[str, Any]) -> dict[str, Any]:
    look = mi.ScalarTransform4f().look_at(origin=list(CAMERA), target=list(TARGET), up=[0, 0, 1])
    return {
        "type": "perspective",
        "fov": DEGREES_OF_VIEW,
        "to_world": look,
        "sampler": {"type": "multijitter", "sample_count": samples},
        "film": {
            "type": "hdrfilm",
            "width": size,
            "height": size,
            "pixel_format": "rgb",
            "component_format": "float32",
            "rfilter": rfilter,
        },
    }


def _solid(mi: Any, name: str, shape: str, place: tuple[float, ...], how: dict[str, Any]) -> dict[str, Any]:
    """Describe one object that stands on the ground; ``how`` is its material or its glow."""
    x, y = place
    at = mi.ScalarTransform4f().translate
    if shape == "sphere":
        parts = [{"type": "sphere", "center": [x, y, SPHERE_RADIUS], "radius": SPHERE_RADIUS}]
    elif shape == "cube":
        half = CUBE_EDGE / 2
        turned = at([x, y, half]).rotate([0, 0, 1], CUBE_DEGREES).scale(half)
        parts = [{"type": "cube", "to_world": turned}]
    else:
        top = [x, y, CYLINDER_HEIGHT]
        parts = [
            {"type": "cylinder", "p0": [x, y, 0.0], "p1": top, "radius": CYLINDER_RADIUS},
            {"type": "disk", "to_world": at(top).scale(CYLINDER_RADIUS)},
        ]
    return {f"{name}_{i}": {**part, **how} for i, part in enumerate(parts)}


def _matte(reflectance: float | list[float]) -> dict[str, Any]:
    return {"type": "diffuse", "reflectance": {"type": "rgb", "value": reflectance}}


def _to_linear(value: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """Undo the transfer function of sRGB (IEC 61966-2-1), 0 to 1."""
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _to_srgb(value: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    return np.where(value <= 0.0031308, value * 12.92, 1.055 * value ** (1 / 2.4) - 0.055)


@contextlib.contextmanager
def _mitsuba(variant: str) -> Iterator[Any]:
    """Give Mitsuba in one of its variants; afterwards it is in the variant it was in."""
    try:
        import mitsuba as mi
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "SolidRenderer needs Mitsuba 3, which is not installed: pip install 'conceptbind[render]'. The "
            "pictures that come with conceptbind need no renderer: conceptbind.datasets.load_rendered('clevr_3d')"
        ) from error
    before = mi.variant()
    mi.set_variant(variant)
    try:
        yield mi
    finally:
        if before not in (None, variant):
            mi.set_variant(before)
