"""Embeddings with the scenes they stand for, and what determined them.

Embeddings are kept as the encoder gave them; normalising is :meth:`EmbeddingSet.normalised`, and recorded.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from conceptbind.cache import cached_rows, replacing
from conceptbind.datasets.labelled import ImageFiles, LabelledScenes
from conceptbind.encoders.base import CheckedEncoder, Encoder, EncoderError
from conceptbind.kernels.encoding import prefetch
from conceptbind.provenance import digest, provenance, tensor_digest, versions
from conceptbind.scenes import ConceptSpace, captions, check_scenes

CAPTIONS_PER_SHARD = 8192
# Bounds the pictures in memory at once: 512 of 320 x 240 are 118 MB.
PICTURES_PER_SHARD = 512
# Picture files may be photographs of 36 MB each once they are open: fewer at once than drawn ones.
FILES_OPEN = 64
FILE_FORMAT = "conceptbind embeddings 1"


@runtime_checkable
class Renderer(Protocol):
    """Draw scenes. A picture depends on the settings, its scene and the copy, not on the other scenes."""

    settings: dict[str, Any]
    """All that determines the pictures beside the scenes, ready for JSON."""

    def render(self, scenes: Int[Tensor, "scene slot concept"], *, copy: int = 0) -> Tensor:
        """Draw a uint8 tensor (n, 3, h, w); ``copy`` 0, 1, ... draws other jitter, where there is any."""
        ...


@dataclass(frozen=True, eq=False)
class EmbeddingSet:
    """Hold one embedding per scene.

    Raises ValueError when shapes disagree, a value lies outside its concept, or a row is not finite.
    """

    embeddings: Float[Tensor, "scene dim"]
    """float32, on the CPU."""
    scenes: Int[Tensor, "_scene slot concept"]
    """One for each embedding; the error below says so better than a shape check would."""
    space: ConceptSpace
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        e, s = self.embeddings, self.scenes
        if not isinstance(e, Tensor):
            raise ValueError(
                f"embeddings must be a float32 tensor (scene, dim); got {type(e).__name__}: use "
                "torch.as_tensor(embeddings).float()"
            )
        if e.ndim != 2 or e.dtype != torch.float32:
            raise ValueError(f"embeddings must be float32 (scene, dim); got {e.dtype} {tuple(e.shape)}")
        check_scenes(self.space, s, may_be_empty=True)
        if len(e) != len(s):
            raise ValueError(f"{len(e)} embeddings but {len(s)} scenes: give one scene for each embedding")
        if not len(e):
            raise ValueError("an embedding set needs at least one scene; got none")
        bad = (~e.isfinite()).any(1).nonzero().squeeze(1).tolist()
        if bad:
            raise ValueError(
                f"{len(bad)} embeddings are NaN or infinite, in rows {_some(bad)}: drop them with their "
                "scenes, or encode them again in fp32"
            )

    @property
    def n_scenes(self) -> int:
        """How many scenes."""
        return len(self.scenes)

    @property
    def dim(self) -> int:
        """How many dimensions an embedding has."""
        return self.embeddings.shape[1]

    @property
    def is_normalised(self) -> bool:
        """Whether :meth:`normalised` made it; an encoder may also give unit vectors by itself."""
        return bool(self.provenance.get("normalised", False))

    def subset(self, keep: Bool[Tensor, "scene"] | Int[Tensor, "kept"]) -> EmbeddingSet:
        """Keep the scenes where a mask is true, or those at the given indices, in their order.

        Raises ValueError when the mask has another length, an index is out of range or repeated, or nothing is
        left.
        """
        if keep.dtype == torch.bool:
            if keep.shape != (self.n_scenes,):
                raise ValueError(f"the mask has shape {tuple(keep.shape)}; expected ({self.n_scenes},)")
            keep = keep.nonzero().squeeze(1)
        if keep.ndim != 1 or not len(keep):
            raise ValueError("the subset is empty: keep at least one scene")
        if int(keep.min()) < 0 or int(keep.max()) >= self.n_scenes:
            raise ValueError(
                f"scene indices run from 0 to {self.n_scenes - 1}; got {int(keep.min())} to {int(keep.max())}"
            )
        if len(keep.unique()) < len(keep):
            raise ValueError(
                f"{len(keep) - len(keep.unique())} scene indices are repeated: give each once. A mask must be bool: "
                "keep.bool()"
            )
        note = {"kept": len(keep), "of": self.n_scenes, "sha256": tensor_digest({"keep": keep})}
        subsets = [*self.provenance.get("subsets", []), note]
        return replace(
            self,
            embeddings=self.embeddings[keep],
            scenes=self.scenes[keep],
            provenance={**self.provenance, "subsets": subsets},
        )

    def normalised(self) -> EmbeddingSet:
        """Scale every embedding to length 1, and record it. Raises ValueError for an embedding of zeros."""
        length = self.embeddings.norm(dim=1, keepdim=True)
        zero = (length.squeeze(1) == 0).nonzero().squeeze(1).tolist()
        if zero:
            raise ValueError(
                f"{len(zero)} embeddings are all zeros and have no direction, rows {_some(zero)}"
            )
        return replace(
            self, embeddings=self.embeddings / length, provenance={**self.provenance, "normalised": True}
        )

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; concept names, provenance and a checksum are JSON in its header.

        Raises ValueError when the name does not end in ``.safetensors``.
        """
        path = Path(path)
        if path.suffix != ".safetensors":
            raise ValueError(f"{path.name} must end in .safetensors")
        tensors = {"embeddings": self.embeddings.contiguous(), "scenes": self.scenes.contiguous()}
        header = {
            "format": FILE_FORMAT,
            "sha256": tensor_digest(tensors),
            "space": json.dumps(
                {"concepts": self.space.concepts, "values": self.space.values}, ensure_ascii=False
            ),
            "provenance": json.dumps(self.provenance, ensure_ascii=False),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata=header)

    @classmethod
    def load(cls, path: str | Path) -> EmbeddingSet:
        """Read what :meth:`save` wrote. Raises ValueError when the file is something else, or damaged."""
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                if header.get("format") != FILE_FORMAT:
                    raise ValueError(
                        f"{path} was not written by EmbeddingSet.save; use conceptbind.files.from_file"
                    )
                tensors = {name: file.get_tensor(name).clone() for name in ("embeddings", "scenes")}
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None
        if tensor_digest(tensors) != header["sha256"]:
            raise ValueError(f"{path} is damaged: its checksum does not match. Copy or compute it again")
        space = json.loads(header["space"])
        return cls(
            space=ConceptSpace(tuple(space["concepts"]), tuple(map(tuple, space["values"]))),
            provenance=json.loads(header["provenance"]),
            **tensors,
        )


def encode_captions(
    encoder: Encoder,
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    *,
    template: str | None = None,
    joiner: str = " and ",
    cache: bool = True,
    cache_dir: str | Path | None = None,
    progress: bool = False,
    batch_size: int | None = None,
) -> EmbeddingSet:
    """Embed the caption of every scene (see :func:`conceptbind.scenes.captions`).

    Results are kept in ``cache_dir``, by default ``$CONCEPTBIND_CACHE`` or ``~/.cache/conceptbind``, in
    shards of 8,192 captions: a run that was stopped continues there. ``batch_size`` is no part of the key; it
    changes results by rounding only. Encoders whose weights cannot be identified are not cached.
    """
    _require(encoder, "text")
    check_scenes(space, scenes)
    texts = captions(space, scenes, template=template, joiner=joiner)
    position = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    unique = list(position)
    rows = cached_rows(
        len(unique),
        lambda low, high: {
            "encoder": encoder.provenance,
            "texts": {"n": high - low, "first": unique[low], "sha256": digest(unique[low:high])},
        },
        lambda low, high: encoder.encode_texts(unique[low:high], batch_size=batch_size),
        shard_rows=CAPTIONS_PER_SHARD,
        cache_dir=cache_dir,
        use=cache and _identified(encoder),
        progress=progress,
        what="captions",
    )
    data = {
        "kind": "captions",
        "n_scenes": len(scenes),
        "first": texts[0],
        "captions_sha256": digest(texts),
        "template": template,
        "joiner": joiner,
    }
    if len(unique) != len(texts):
        rows = rows[torch.tensor([position[text] for text in texts])]
    return EmbeddingSet(rows, scenes, space, _record(encoder, data))


def encode_pictures(
    encoder: Encoder,
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    renderer: Renderer,
    *,
    copy: int = 0,
    cache: bool = True,
    cache_dir: str | Path | None = None,
    progress: bool = False,
    batch_size: int | None = None,
) -> EmbeddingSet:
    """Draw every scene and embed the picture, 512 scenes at a time.

    ``copy``: 0, 1, ... give pictures of the same scenes with other jitter.
    Cached as in :func:`encode_captions`; the key holds the renderer's class and settings, the copy and the
    scenes.
    Raises ValueError when ``renderer.settings`` cannot be written as JSON, or the renderer has another space.
    """
    _require(encoder, "image")
    check_scenes(space, scenes)
    drawn_space = getattr(renderer, "space", space)
    if drawn_space != space:
        raise ValueError(
            f"the renderer draws the space {drawn_space}, the scenes are labelled by {space}: give both one space"
        )
    drawn_by = {"class": f"{type(renderer).__module__}.{type(renderer).__qualname__}", **renderer.settings}
    try:
        digest(drawn_by)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the settings of {drawn_by['class']} cannot be written as JSON ({error}): use numbers, strings, "
            "lists and dicts only"
        ) from None
    names = {"concepts": space.concepts, "values": space.values}

    def describe(low: int, high: int) -> dict[str, Any]:
        return {
            "encoder": encoder.provenance,
            "renderer": drawn_by,
            "space": names,
            "copy": copy,
            "scenes": {"n": high - low, "sha256": tensor_digest({"scenes": scenes[low:high]})},
        }

    rows = cached_rows(
        len(scenes),
        describe,
        lambda low, high: encoder.encode_images(
            renderer.render(scenes[low:high], copy=copy), batch_size=batch_size
        ),
        shard_rows=PICTURES_PER_SHARD,
        cache_dir=cache_dir,
        use=cache and _identified(encoder),
        progress=progress,
        what="pictures",
    )
    data = {
        "kind": "pictures",
        "n_scenes": len(scenes),
        "renderer": drawn_by,
        "copy": copy,
        "scenes_sha256": tensor_digest({"scenes": scenes}),
    }
    return EmbeddingSet(rows, scenes, space, _record(encoder, data))


def encode_folder(
    encoder: Encoder,
    data: LabelledScenes,
    *,
    cache: bool = True,
    cache_dir: str | Path | None = None,
    progress: bool = False,
    batch_size: int | None = None,
) -> EmbeddingSet:
    """Embed the picture files of a folder (see :mod:`conceptbind.datasets`), a few open at a time.

    Cached as in :func:`encode_captions`, 512 pictures a shard; the key holds the bytes of the files, not
    their names or labels, so relabelling computes nothing again and editing one picture computes its shard.
    ``batch_size`` also bounds how many pictures are open at once (None: 64, and as many read ahead).
    An encoder without preprocessing of its own (a function) gets uint8 tensors, and so needs pictures of one
    size; all others get PIL images. Raises ValueError, naming the file, for a picture that cannot be read.
    """
    _require(encoder, "image")
    n_pictures, images = len(data.images), data.images
    contents = functools.cache(images.sha256)
    opened_by = {"as": "8-bit RGB, upright", **versions("pillow")}

    def describe(low: int, high: int) -> dict[str, Any]:
        files = [contents(i) for i in range(low, high)]
        return {
            "encoder": encoder.provenance,
            "opened": opened_by,
            "files": {"n": high - low, "sha256": digest(files)},
        }

    def compute(low: int, high: int) -> Float[Tensor, "picture dim"]:
        as_tensors = encoder.provenance.get("preprocessing") is None
        opened = prefetch(_opened(images[low:high], batch_size or FILES_OPEN, as_tensors), depth=1)
        return torch.cat([encoder.encode_images(some, batch_size=batch_size) for some in opened])

    rows = cached_rows(
        n_pictures,
        describe,
        compute,
        shard_rows=PICTURES_PER_SHARD,
        cache_dir=cache_dir,
        use=cache and _identified(encoder),
        progress=progress,
        what="pictures",
    )
    record = {
        "kind": "folder",
        "n_scenes": n_pictures,
        "folder": data.settings,
        "notes": list(data.notes),
        "opened": opened_by,
        "files_sha256": digest([contents(i) for i in range(n_pictures)]),
    }
    return EmbeddingSet(rows, data.scenes, data.space, _record(encoder, record))


def _opened(files: ImageFiles, at_once: int, as_tensors: bool) -> Iterator[list[Image.Image] | Tensor]:
    at_once = max(1, at_once)  # what is no batch size is for the encoder to refuse
    for low in range(0, len(files), at_once):
        some = files[low : low + at_once]
        yield _stacked(some) if as_tensors else list(some)


def _stacked(files: ImageFiles) -> UInt8[Tensor, "picture 3 h w"]:
    pictures = list(files)
    for path, picture in zip(files.paths, pictures, strict=True):
        if picture.size != pictures[0].size:
            raise ValueError(
                f"the picture {path} is {picture.width} x {picture.height}, {files.paths[0].name} is "
                f"{pictures[0].width} x {pictures[0].height}: a function encodes pictures of one size only; "
                "resize them, or use an encoder that has its own preprocessing"
            )
    return torch.from_numpy(np.stack([np.asarray(p) for p in pictures])).permute(0, 3, 1, 2).contiguous()


def _record(encoder: Encoder, data: dict[str, Any]) -> dict[str, Any]:
    changed = _changes(encoder)
    return {
        "encoder": {**encoder.provenance, **({"changed": changed} if changed else {})},
        "data": data,
        "normalised": False,
        "software": provenance(device=encoder.device),
    }


def _identified(encoder: Encoder) -> bool:
    changed = _changes(encoder)
    if changed is not None:
        warnings.warn(
            f"{encoder.name} is no longer what was loaded: {changed}. Its embeddings are computed, and neither "
            "read from the cache nor kept there",
            stacklevel=3,
        )
    return changed is None and encoder.provenance.get("weights_sha256") is not None


def _changes(encoder: Encoder) -> str | None:
    return encoder.changes() if isinstance(encoder, CheckedEncoder) else None


def _require(encoder: Encoder, modality: str) -> None:
    if modality not in encoder.modalities:
        raise EncoderError(
            f"{encoder.name} does not encode {modality}s, only {' and '.join(sorted(encoder.modalities))}s"
        )


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return shown if len(rows) <= 5 else f"{shown} and {len(rows) - 5} more"
