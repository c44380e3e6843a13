"""Anyone's own model, as one or two Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from conceptbind.encoders.base import CheckedEncoder, EncoderError
from conceptbind.kernels.encoding import encode_batches, encode_unique
from conceptbind.provenance import digest, versions


class FunctionEncoder(CheckedEncoder):
    """Encode with functions of the caller; see :func:`from_functions`."""

    def __init__(
        self,
        *,
        texts: Callable[[list[str]], Any] | None,
        images: Callable[[Tensor], Any] | None,
        name: str,
        version: str | None,
        image_size: int | tuple[int, int],
    ) -> None:
        self._of_texts, self._of_images = texts, images
        probes: dict[str, tuple[Callable[[Any], Any], Any]] = {}
        if texts is not None:
            probes["text"] = texts, ["a red circle", "a blue square"]
        if images is not None:
            size = (image_size, image_size) if isinstance(image_size, int) else image_size
            probes["image"] = images, torch.full((2, 3, *size), 128, dtype=torch.uint8)
        if not probes:
            raise EncoderError("an encoder needs a function: give texts=..., images=... or both")
        dims = {kind: _call(fn, batch, name).shape[1] for kind, (fn, batch) in probes.items()}
        if len(set(dims.values())) > 1:
            raise EncoderError(f"{name} gives embeddings of different sizes: {dims}. They must agree")
        super().__init__(
            name=name,
            dim=dims.popitem()[1],
            modalities=set(probes),
            device=torch.device("cpu"),
            precision="fp32",
            provenance={
                "spec": name,
                "weights": "function",
                "version": version,
                "pretrained": None,
                "seed": None,
                # Code and weights of a function cannot be hashed: only a version given by hand can stand for
                # them.
                "weights_sha256": None if version is None else digest([name, version]),
                "quick_gelu": None,
                "preprocessing": None,
                "normalised_by_model": None,
                "precision": None,
                "device": None,
                "versions": versions("torch"),
            },
        )

    def _texts(self, texts: list[str], batch_size: int | None, progress: bool) -> Tensor:
        def encode(unique: list[str]) -> Tensor:
            return self._batches(self._of_texts, unique, batch_size, progress, "texts")

        return encode_unique(texts, encode)

    def _images(self, images: Tensor | list[Image.Image], batch_size: int | None, progress: bool) -> Tensor:
        if not isinstance(images, Tensor):
            raise EncoderError(
                f"{self.name} is a function of a uint8 tensor (n, 3, h, w), and was given PIL images: "
                "stack them, or preprocess in the function"
            )
        return self._batches(self._of_images, images, batch_size, progress, "pictures")

    def _batches(
        self, function: Any, items: Any, batch_size: int | None, progress: bool, what: str
    ) -> Tensor:
        def forward(batch: Any) -> Tensor:
            rows = _call(function, batch, self.name)
            if rows.shape[1] != self.dim:
                raise EncoderError(f"{self.name} gave {rows.shape[1]} dimensions, and {self.dim} before")
            return rows

        return encode_batches(
            len(items),
            lambda low, high: items[low:high],
            forward,
            device=self.device,
            batch_size=batch_size,
            progress=progress,
            what=what,
        )


def from_functions(
    *,
    texts: Callable[[list[str]], Any] | None = None,
    images: Callable[[Tensor], Any] | None = None,
    name: str,
    version: str | None = None,
    image_size: int | tuple[int, int] = 224,
) -> FunctionEncoder:
    """Make an encoder of one or two functions.

    ``texts`` maps a list of strings, ``images`` a uint8 tensor (n, 3, h, w), to n rows: a tensor or an array.
    Each is called once with two inputs to learn the dimension; these pictures are grey and of ``image_size``,
    a side or (height, width). Results are cached on disk only when a
    ``version`` is given, which the caller must change whenever the function changes.
    Raises EncoderError when a function fails or its output has the wrong shape.
    """
    return FunctionEncoder(texts=texts, images=images, name=name, version=version, image_size=image_size)


def _call(function: Callable[[Any], Any], batch: Any, name: str) -> Tensor:
    try:
        rows = torch.as_tensor(function(batch))
    except Exception as error:
        size = ""
        if isinstance(batch, Tensor):
            size = f" of {tuple(batch.shape[2:])} pixels (image_size=... sets those of the first call)"
        raise EncoderError(
            f"the function behind {name} failed on {len(batch)} inputs{size}: {type(error).__name__}: {error}"
        ) from error
    if rows.is_complex():
        raise EncoderError(
            f"the function behind {name} gave complex numbers: give real ones, for example real and imaginary "
            "parts side by side"
        )
    if rows.ndim != 2 or len(rows) != len(batch) or not rows.shape[1]:
        raise EncoderError(
            f"the function behind {name} gave shape {tuple(rows.shape)} for {len(batch)} inputs; "
            f"expected ({len(batch)}, dim), dim at least 1"
        )
    return rows.detach().float().cpu()
