"""Keep rows of embeddings on disk, in shards that are complete and checked, or absent.

Every shard is one safetensors file named by the sha256 of all that determines its rows; the JSON in its
header holds a checksum of the rows and a description for people. It is written beside its place and moved
there in one step, so a killed run leaves whole shards only, a second run continues after them, and two runs
at once can only replace a shard by an equal one.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from conceptbind.provenance import digest, tensor_digest

FORMAT = 1


def default_cache_dir() -> Path:
    """Give ``$CONCEPTBIND_CACHE``, or ``~/.cache/conceptbind``."""
    return Path(os.environ.get("CONCEPTBIND_CACHE") or Path.home() / ".cache" / "conceptbind")


def cached_rows(
    n_rows: int,
    describe: Callable[[int, int], dict[str, Any]],
    compute: Callable[[int, int], Float[Tensor, "row dim"]],
    *,
    shard_rows: int,
    cache_dir: str | Path | None = None,
    use: bool = True,
    progress: bool = False,
    what: str = "rows",
) -> Float[Tensor, "row dim"]:
    """Compute rows shard by shard, or read the shards that are on disk.

    ``describe(low, high)`` says, ready for JSON, all that determines rows low ... high-1. A damaged shard is
    reported with a warning and computed again; when the folder cannot be written a warning says so and the
    result is still returned.
    """
    folder = (Path(cache_dir) if cache_dir is not None else default_cache_dir()) / "embeddings"
    out: Tensor | None = None
    with tqdm(total=n_rows, disable=not progress, unit=f" {what}", desc="encoding") as bar:
        for low in range(0, n_rows, shard_rows):
            high = min(low + shard_rows, n_rows)
            rows = None
            if use:
                about = {"format": FORMAT, **describe(low, high)}
                key = digest(about)
                path = folder / key[:2] / f"{key}.safetensors"
                rows = read_shard(path, high - low)
            if rows is None:
                rows = compute(low, high)
                if len(rows) != high - low:
                    raise ValueError(
                        f"expected {high - low} rows for {what} {low} to {high - 1}; got {len(rows)}"
                    )
                if use:
                    write_shard(path, rows, about)
            if out is None:
                out = torch.empty(n_rows, rows.shape[1])
            out[low:high] = rows
            bar.update(high - low)
    assert out is not None, "callers refuse empty inputs"
    return out


def read_shard(path: Path, n_rows: int) -> Float[Tensor, "row dim"] | None:
    """Read a shard; None when it is absent, or damaged (with a warning)."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            expected = (file.metadata() or {}).get("sha256")
            rows = file.get_tensor("rows").clone()
    except (SafetensorError, OSError) as error:
        problem = str(error)
    else:
        if rows.ndim == 2 and len(rows) == n_rows and tensor_digest({"rows": rows}) == expected:
            return rows
        problem = "its checksum does not match its content"
    warnings.warn(f"cached embeddings {path} are damaged ({problem}); computing them again", stacklevel=3)
    return None


def write_shard(path: Path, rows: Float[Tensor, "row dim"], about: dict[str, Any]) -> None:
    """Write a shard in one step. A folder that cannot be written is a warning, not an error."""
    rows = rows.contiguous()
    header = {"sha256": tensor_digest({"rows": rows}), "about": json.dumps(about, ensure_ascii=False)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            save_file({"rows": rows}, temporary, metadata=header)
    except (OSError, SafetensorError) as error:
        warnings.warn(
            f"cannot write the cache file {path} ({error}); the result is computed but not kept. Set "
            "CONCEPTBIND_CACHE to a folder with space",
            stacklevel=3,
        )


@contextlib.contextmanager
def replacing(path: Path):
    """Give a temporary path beside ``path``, moved onto it on success and removed on failure."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
