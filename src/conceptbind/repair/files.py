"""Repairs of texts on disk: one safetensors file, settings and a checksum as JSON in its header."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from conceptbind.cache import replacing
from conceptbind.provenance import provenance, tensor_digest
from conceptbind.repair.adapter import ProductAdapter, ReluAdapter
from conceptbind.repair.linear_map import LinearMap

FORMAT = "conceptbind repair 1"
KINDS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (LinearMap, ProductAdapter, ReluAdapter)}


def save_repair(repair: nn.Module, path: str | Path) -> None:
    """Write a repair of texts in one step.

    Raises ValueError for anything but a LinearMap, ProductAdapter or ReluAdapter, or another ending than
    ``.safetensors``.
    """
    path, kind = Path(path), type(repair).__name__
    if KINDS.get(kind) is not type(repair):
        raise ValueError(f"only {', '.join(KINDS)} can be saved; got {kind}")
    if path.suffix != ".safetensors":
        raise ValueError(f"{path.name} must end in .safetensors")
    tensors = {name: w.detach().cpu().contiguous() for name, w in repair.state_dict().items()}
    header = {
        "format": FORMAT,
        "kind": kind,
        "settings": json.dumps(repair.settings),
        "sha256": tensor_digest(tensors),
        "provenance": json.dumps(provenance()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def load_repair(path: str | Path) -> nn.Module:
    """Read what :func:`save_repair` wrote, on the CPU.

    Raises FileNotFoundError when there is none, ValueError when the file is something else, or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no repair at {path}: give the file that save_repair wrote")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from None
    if header.get("format") != FORMAT or header.get("kind") not in KINDS:
        raise ValueError(f"{path} holds no repair of this version: give a file that save_repair wrote")
    if tensor_digest(tensors) != header.get("sha256"):
        raise ValueError(f"{path} is damaged: its checksum does not match. Copy it again, or train anew")
    repair = KINDS[header["kind"]](**json.loads(header["settings"]))
    repair.load_state_dict(tensors)
    return repair
