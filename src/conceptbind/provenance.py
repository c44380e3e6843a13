"""What determined a number: versions, device, commit, and digests of data and weights."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def provenance(*, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Describe the software and the machine, ready for JSON.

    Keys: ``conceptbind`` (version), ``commit`` (None outside a checkout of conceptbind), ``dirty`` (True when
    its sources differ from that commit), ``python``, ``versions`` (None for a library that is not installed),
    ``device``, ``threads`` and ``dtype``.
    """
    commit, dirty = _git_state()
    return {
        "conceptbind": versions("conceptbind")["conceptbind"],
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "versions": versions("torch", "numpy", "open_clip_torch"),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
    }


def versions(*distributions: str) -> dict[str, str | None]:
    """Look up the installed version of every named distribution; None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def device_name(device: str | torch.device) -> str:
    """Name a device: ``"cpu (x86_64)"``, ``"cuda (NVIDIA T4)"``."""
    device = torch.device(device)
    if device.type == "cuda" and torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})" if device.type == "cpu" else device.type


def digest(value: Any) -> str:
    """Hash a JSON-able value with sha256; equal values give equal digests, whatever the order of their keys.

    Raises TypeError when the value holds something JSON cannot.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash named tensors with sha256 over names, dtypes, shapes and bytes, in the order of their names."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return sha.hexdigest()


def file_digest(path: Path) -> str:
    """Hash the bytes of a file with sha256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def _git_state() -> tuple[str | None, bool | None]:
    here = Path(__file__).resolve()
    # An installed copy may lie in a virtual environment inside someone else's repository: only a commit that
    # tracks this very file says anything about conceptbind.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None, None
    status = _git(here.parent, "status", "--porcelain", "--", ".")
    return _git(here.parent, "rev-parse", "HEAD"), None if status is None else bool(status)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
