"""Checkpoints of training: one safetensors file with JSON in its header, there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from conceptbind.cache import replacing
from conceptbind.provenance import provenance, tensor_digest
from conceptbind.training.config import TrainingConfig

FORMAT = "conceptbind training 1"
"""Raised when a change makes other numbers of the same settings."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or belongs to other settings."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Hold all that training goes on from; the data needs nothing, it is a function of the step."""

    configs: tuple[TrainingConfig, ...]
    parameters: dict[str, Tensor]
    moments: dict[str, Tensor]
    """Of the optimiser; empty when training is over."""
    losses: Float[Tensor, "step model"]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint beside its place and move it there in one step.

    Raises OSError when the folder cannot be written.
    """
    tensors = {f"weight.{n}": w for n, w in checkpoint.parameters.items()}
    tensors |= {f"moment.{n}": w for n, w in checkpoint.moments.items()}
    tensors["losses"] = checkpoint.losses
    tensors = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    header = {
        "format": FORMAT,
        "sha256": tensor_digest(tensors),
        "configs": json.dumps([c.settings() for c in checkpoint.configs]),
        "provenance": json.dumps(_made_by(checkpoint)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=header)


def read_checkpoint(
    path: Path,
    *,
    device: torch.device | str = "cpu",
    configs: Sequence[TrainingConfig] | None = None,
) -> Checkpoint:
    """Read a checkpoint. With ``configs``, it must be of these.

    Raises FileNotFoundError when there is none, CheckpointError when the file is damaged, no checkpoint, or of other
    settings.
    """
    with _opened(path) as (file, header):
        found = _configs(header)
        # settings first: those of another run are told before its weights are read
        if configs is not None and tuple(configs) != found:
            raise CheckpointError(_difference(path, list(configs), list(found)))
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        losses = tensors["losses"]
    if tensor_digest(tensors) != header.get("sha256"):
        raise CheckpointError(
            f"the checkpoint {path} is damaged, its checksum does not match its content: move it away to start anew"
        )

    def part(prefix: str) -> dict[str, Tensor]:
        return {
            n.removeprefix(prefix): t.to(device, copy=True)
            for n, t in tensors.items()
            if n.startswith(prefix)
        }

    return Checkpoint(found, part("weight."), part("moment."), losses.clone())


def read_progress(path: Path) -> tuple[tuple[TrainingConfig, ...], int]:
    """Say of which models a checkpoint is, and how many steps they have done, without reading their weights.

    Raises as :func:`read_checkpoint` does; a damaged file may go unnoticed.
    """
    with _opened(path) as (file, header):
        return _configs(header), file.get_slice("losses").get_shape()[0]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """Open a checkpoint and give its header; what goes wrong inside is damage."""
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}: give the file that training wrote")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path} is no checkpoint of this version of training ({header.get('format')!r} instead of "
                    f"{FORMAT!r}): give another file, or move it away to start anew"
                )
            yield file, header
    except CheckpointError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {path} is damaged ({error}): move it away to start anew"
        ) from error


def _made_by(checkpoint: Checkpoint) -> dict[str, Any]:
    device = next(iter(checkpoint.parameters.values())).device
    return provenance(device=device, dtype=getattr(torch, checkpoint.configs[0].dtype))


def _configs(header: dict[str, str]) -> tuple[TrainingConfig, ...]:
    given = json.loads(header["configs"])
    if not isinstance(given, list) or not given or not all(isinstance(settings, dict) for settings in given):
        raise ValueError("its header lists no settings of models")
    return tuple(TrainingConfig.from_settings(settings) for settings in given)


def _difference(path: Path, wanted: list[TrainingConfig], found: list[TrainingConfig]) -> str:
    advice = "give another file, or move it away to start anew"
    if len(wanted) != len(found):
        return f"{path} is a checkpoint of {len(found)} models, not of {len(wanted)}: {advice}"
    model = next(m for m, (a, b) in enumerate(zip(wanted, found, strict=True)) if a != b)
    a, b = wanted[model].settings(), found[model].settings()
    differ: dict[str, Any] = {name: f"{b[name]} there, {a[name]} here" for name in a if a[name] != b[name]}
    listed = "; ".join(f"{name} is {values}" for name, values in differ.items())
    return f"{path} is a checkpoint of other settings, in model {model} {listed}: {advice}"
