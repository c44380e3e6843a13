"""The sets of 3-D pictures that come with the package, rendered once by ``tools/render_sets.py``.

Every set is a zip file of WebP pictures and a manifest, which says what each shows and how it was rendered.
``index.json`` holds the checksums of the files.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from conceptbind.provenance import versions
from conceptbind.scenes import ConceptSpace, check_scenes

FOLDER = Path(__file__).resolve().parent / "pictures"
INDEX = FOLDER / "index.json"
MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class RenderedSet:
    """Hold scenes and one picture of each; give it to ``encode_pictures`` as the renderer of its scenes."""

    name: str
    about: str
    """What the pictures show, in words."""
    space: ConceptSpace
    scenes: Int[Tensor, "scene slot concept"]
    places: Float[Tensor, "scene slot 2"]
    """Where each object stands on the ground, (x, y): x points right, y away from the camera."""
    settings: dict[str, Any]
    """What determines the pixels, ready for JSON: the file's sha256, and the library that decodes it."""
    front: Int[Tensor, "scene"] | None = None
    """The slot of the front object, where one hides part of the other."""
    hidden: Float[Tensor, "scene"] | None = None
    """The share of the back object's area that the front one hides."""
    encoded: bytes = field(default=b"", repr=False)
    """The zip file."""

    def render(
        self, scenes: Int[Tensor, "scene slot concept"], *, copy: int = 0
    ) -> UInt8[Tensor, "scene 3 height width"]:
        """Look up the picture of every scene.

        Raises ValueError for a scene that the set does not hold, and for a ``copy`` other than 0: there is one
        picture of each.
        """
        if copy != 0:
            raise ValueError(
                f"{self.name} has one picture of every scene, copy=0; got copy={copy}: render others with "
                "SolidRenderer, or use copy=0"
            )
        check_scenes(self.space, scenes, may_be_empty=True)
        n_slots = self.scenes.shape[1]
        if scenes.shape[1] != n_slots:
            raise ValueError(
                f"{self.name} shows scenes of {n_slots} objects; got scenes of {scenes.shape[1]}: use another "
                f"set of {rendered_sets()}"
            )
        rows = []
        for scene, index in zip(scenes, self.space.scene_index(scenes).tolist(), strict=True):
            if index not in self._rows:
                shown = " and ".join(self.space.describe(obj) for obj in scene)
                raise ValueError(
                    f"{self.name} has no picture of {shown}: it shows {len(self.scenes)} scenes, those of .scenes"
                )
            rows.append(self._rows[index])
        with zipfile.ZipFile(io.BytesIO(self.encoded)) as archive:
            pictures = [_decoded(archive.read(f"{row:04}.webp")) for row in rows]
        size = self.settings["pictures"]["renderer"]["size"]
        stacked = np.stack(pictures) if pictures else np.empty((0, size, size, 3), dtype=np.uint8)
        return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {index: row for row, index in enumerate(self.space.scene_index(self.scenes).tolist())}


def rendered_sets() -> tuple[str, ...]:
    """Name the sets that come with the package."""
    return tuple(_index())


def load_rendered(name: str) -> RenderedSet:
    """Load one set of 224 x 224 pictures, after checking its sha256.

    ``clevr_3d``: all 576 ordered pairs of the 24 CLEVR objects, slot 0 left and slot 1 right; the paper's
    CLEVR, rendered by us.
    ``clevr_3d_left``, ``clevr_3d_right``: the 24 objects alone at the place of slot 0, or of slot 1.
    ``clevr_3d_occluded``: the 576 pairs, one object hiding 20 to 35 per cent of the other.
    ``clevr_3d_three``: 288 scenes of three objects, ``sample_scenes(CLEVR, 3, 288, seed=0)``.

    Raises ValueError for an unknown name, and for a file that is not as it was packed; FileNotFoundError when
    the file is missing.
    """
    index = _index()
    if name not in index:
        raise ValueError(f"no set of pictures {name!r} comes with conceptbind; there are {tuple(index)}")
    path, expected = FOLDER / f"{name}.zip", index[name]["sha256"]
    if not path.is_file():
        raise FileNotFoundError(f"the pictures {path} are missing: {_REPAIR}")
    encoded = path.read_bytes()
    found = hashlib.sha256(encoded).hexdigest()
    if found != expected:
        raise ValueError(
            f"the pictures {path} are damaged: expected sha256 {expected[:12]}…, {index[name]['bytes']:,} bytes; "
            f"found {found[:12]}…, {len(encoded):,} bytes: {_REPAIR}"
        )
    with zipfile.ZipFile(io.BytesIO(encoded)) as archive:
        about = json.loads(archive.read(MANIFEST))
    pictures = {"sha256": found, "renderer": about["renderer"], "encoding": about["encoding"]}
    return RenderedSet(
        name=name,
        about=about["about"],
        space=ConceptSpace(tuple(about["concepts"]), tuple(map(tuple, about["values"]))),
        scenes=torch.tensor(about["scenes"]),
        places=torch.tensor(about["places"]),
        settings={"renderer": "rendered set", "set": name, "pictures": pictures, **versions("pillow")},
        front=torch.tensor(about["front"]) if "front" in about else None,
        hidden=torch.tensor(about["hidden"]) if "hidden" in about else None,
        encoded=encoded,
    )


_REPAIR = "install conceptbind again, or make them with tools/render_sets.py of the repository"


def _index() -> dict[str, dict[str, Any]]:
    try:
        return json.loads(INDEX.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"the index of the pictures {INDEX} is missing: {_REPAIR}") from None


def _decoded(content: bytes) -> UInt8[np.ndarray, "height width 3"]:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))
