"""Embeddings and labels that someone computed elsewhere: no model, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from conceptbind.embeddings import FILE_FORMAT, EmbeddingSet
from conceptbind.labels import COLUMNS, read_labels
from conceptbind.provenance import provenance, tensor_digest
from conceptbind.scenes import ConceptSpace

SUFFIXES = (".npz", ".npy", ".safetensors")


def from_file(
    embeddings: str | Path,
    labels: str | Path | Any = None,
    *,
    space: ConceptSpace | None = None,
    concepts: Sequence[str] | None = None,
    columns: str | Sequence[Sequence[str]] = COLUMNS,
    name: str | None = None,
) -> EmbeddingSet:
    """Read embeddings, and the scene behind every row.

    ``embeddings``: an .npy file (scene, dim), or an .npz or .safetensors file with an array ``embeddings``
    and perhaps one ``scenes`` (scene, slot, concept); a file of :meth:`EmbeddingSet.save` needs nothing else.
    ``labels``: an integer array (scene, slot, concept), or a CSV file with a line for every embedding, in
    their order, and a column ``object1_<concept>``, ``object2_<concept>``, ... for every concept; other
    columns are ignored. Cells are value names, or value indices when ``space`` is given. Without ``space``
    the values are those that occur, sorted.
    ``concepts`` and ``columns``: for other column names; see :func:`conceptbind.labels.match_columns`.
    Raises FileNotFoundError for a missing file, and ValueError, naming file, line and column, for anything
    that does not fit.
    """
    path = Path(embeddings)
    arrays = _read_arrays(path)
    if isinstance(arrays, EmbeddingSet):
        if labels is not None:
            raise ValueError(f"{path} holds its own scenes: leave out labels")
        return arrays
    if labels is None:
        labels = arrays.get("scenes")
    if labels is None:
        raise ValueError(f"{path} holds no array 'scenes': give labels, a CSV file or an integer array")
    rows = torch.from_numpy(np.ascontiguousarray(arrays["embeddings"], dtype=np.float32))
    if isinstance(labels, str | Path):
        scenes, space = read_labels(labels, space=space, concepts=concepts, columns=columns)
    else:
        scenes, space = _scenes_of_array(labels, space)
    if len(rows) != len(scenes):
        raise ValueError(
            f"{path} has {len(rows)} embeddings, the labels have {len(scenes)} rows: they must match"
        )
    record = {
        "encoder": {"spec": name or path.stem, "weights_sha256": None},
        "data": {
            "kind": "file",
            "file": path.name,
            "n_scenes": len(rows),
            "stored_as": str(arrays["embeddings"].dtype),
            "sha256": tensor_digest({"embeddings": rows, "scenes": scenes}),
        },
        "normalised": False,
        "software": provenance(),
    }
    return EmbeddingSet(rows, scenes, space, record)


def _read_arrays(path: Path) -> dict[str, np.ndarray] | EmbeddingSet:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} is no file of embeddings we read: expected one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise FileNotFoundError(f"no file of embeddings at {path.absolute()}")
    try:
        if path.suffix == ".npy":
            arrays = {"embeddings": np.load(path, allow_pickle=False)}
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files if name in ("embeddings", "scenes")}
        else:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("format") == FILE_FORMAT:
                    return EmbeddingSet.load(path)
                wanted = [n for n in file.keys() if n in ("embeddings", "scenes")]
                tensors = {n: file.get_tensor(n) for n in wanted}
                arrays = {n: (t.float() if t.is_floating_point() else t).numpy() for n, t in tensors.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read (arrays of Python objects are refused): {error}") from None
    if "embeddings" not in arrays:
        raise ValueError(f"{path} has no array named 'embeddings'")
    found = arrays["embeddings"]
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.floating):
        raise ValueError(
            f"'embeddings' in {path} must be floats (scene, dim); got {found.dtype} {found.shape}"
        )
    return arrays


def _scenes_of_array(
    labels: Any, space: ConceptSpace | None
) -> tuple[Int[Tensor, "scene slot concept"], ConceptSpace]:
    scenes = torch.as_tensor(np.asarray(labels))
    if scenes.ndim != 3 or scenes.is_floating_point() or not scenes.numel():
        raise ValueError(
            f"labels must be integers (scene, slot, concept); got {scenes.dtype} {tuple(scenes.shape)}. "
            "Scenes of one object have one slot: labels[:, None, :]"
        )
    scenes = scenes.long()
    if space is None:
        if int(scenes.min()) < 0:
            raise ValueError(f"value indices start at 0; got {int(scenes.min())}")
        space = ConceptSpace.of_sizes(*(int(n) + 1 for n in scenes.flatten(0, 1).amax(0)))
    return scenes, space
