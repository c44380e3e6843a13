"""Embeddings and labels that someone computed elsewhere: no model, no network."""

from __future__ import annotations

import zipfile
import zlib
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
    path = Path(embeddings).expanduser()
    arrays = _read_arrays(path)
    if isinstance(arrays, EmbeddingSet):
        if labels is not None:
            raise ValueError(f"{path} holds its own scenes: leave out labels")
        if space is not None and space != arrays.space:
            raise ValueError(
                f"{path} holds scenes of {arrays.space}, not of {space}: leave out space, or give that"
            )
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
        names, arrays = _of_safetensors(path) if path.suffix == ".safetensors" else _of_numpy(path)
    except (SafetensorError, OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        # numpy takes whatever it does not know for a pickle, and advises to allow those.
        if "Object arrays" in str(error):
            raise ValueError(f"{path} cannot be read: arrays of Python objects are refused") from None
        detail = "" if "pickle" in str(error) else f" ({error})"
        raise ValueError(f"{path} is damaged, or no {path.suffix} file{detail}: write it again") from None
    if arrays is None:
        return EmbeddingSet.load(path)
    if "embeddings" not in arrays:
        raise ValueError(f"{path} has no array named 'embeddings'; it has {names}")
    found = arrays["embeddings"]
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.floating):
        raise ValueError(
            f"'embeddings' in {path} must be floats (scene, dim); got {found.dtype} {found.shape}"
        )
    return arrays


def _of_numpy(path: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    with path.open("rb") as file:  # given a path, numpy leaves a damaged file open
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return ["embeddings"], {"embeddings": loaded}
        return loaded.files, {n: loaded[n] for n in loaded.files if n in ("embeddings", "scenes")}


def _of_safetensors(path: Path) -> tuple[list[str], dict[str, np.ndarray] | None]:
    """Give the names and the arrays, or None for a file of our own."""
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        if (file.metadata() or {}).get("format") == FILE_FORMAT:
            return names, None
        tensors = {n: file.get_tensor(n) for n in names if n in ("embeddings", "scenes")}
    return names, {n: (t.float() if t.is_floating_point() else t).numpy() for n, t in tensors.items()}


def _scenes_of_array(
    labels: Any, space: ConceptSpace | None
) -> tuple[Int[Tensor, "scene slot concept"], ConceptSpace]:
    try:
        found = np.asarray(labels)
    except ValueError:
        raise ValueError(
            "labels must be integers (scene, slot, concept); got lists of unequal lengths: give every scene the "
            "same number of objects"
        ) from None
    if found.ndim != 3 or not np.issubdtype(found.dtype, np.integer) or not found.size:
        raise ValueError(
            f"labels must be integers (scene, slot, concept); got {found.dtype} {found.shape}. "
            "Scenes of one object have one slot: labels[:, None, :]; names of values belong in a CSV file"
        )
    scenes = torch.from_numpy(found.astype(np.int64))
    if space is None:
        if int(scenes.min()) < 0:
            raise ValueError(f"value indices start at 0; got {int(scenes.min())}")
        space = ConceptSpace.of_sizes(*(int(n) + 1 for n in scenes.flatten(0, 1).amax(0)))
    return scenes, space
