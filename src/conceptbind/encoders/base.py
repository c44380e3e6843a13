"""The protocol every encoder follows, its errors, and the checks all encoders share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from conceptbind.kernels.encoding import encode_batches
from conceptbind.kernels.preprocessing import Preprocessing
from conceptbind.provenance import device_name, digest, file_digest, tensor_digest, versions

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class EncoderError(ValueError):
    """Say why an encoder cannot be built or cannot take an input, and what to do."""


class PackageMissing(EncoderError):
    """Say which Python package is not installed, and how to install it."""


class WeightsNotFound(EncoderError):
    """Say which weight file was wanted, where it was looked for, and how to provide it."""


@runtime_checkable
class Encoder(Protocol):
    """Turn texts, pictures or both into embeddings: float32, on the CPU, as the model gives them."""

    name: str
    """The spec it was loaded by, or the name its maker gave it."""
    dim: int
    modalities: frozenset[str]
    """A subset of ``{"image", "text"}``."""
    device: torch.device
    provenance: dict[str, Any]
    """What determines its output, ready for JSON; ``weights_sha256`` is None when that cannot be known."""

    def encode_texts(
        self, texts: Sequence[str], *, batch_size: int | None = None, progress: bool = False
    ) -> Float[Tensor, "text dim"]:
        """Embed texts. Raises EncoderError when it takes no texts, or one is longer than its context."""
        ...

    def encode_images(
        self,
        images: Tensor | Sequence[Image.Image],
        *,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> Float[Tensor, "image dim"]:
        """Embed pictures, a uint8 tensor (n, 3, h, w) or PIL images. Raises EncoderError on anything else."""
        ...


class CheckedEncoder:
    """Check inputs, set precision, and leave the rest to ``_texts`` and ``_images`` of a subclass."""

    def __init__(
        self,
        *,
        name: str,
        dim: int,
        modalities: set[str],
        device: torch.device,
        precision: str,
        provenance: dict[str, Any],
        model: nn.Module | None = None,
    ) -> None:
        self.name, self.dim, self.device = name, dim, device
        self.modalities = frozenset(modalities)
        self.precision = precision
        self.provenance = provenance
        self._checked = model
        self._as_loaded = None if model is None else _weights_now(model)

    def changes(self) -> str | None:
        """Say how its model was changed after loading, so that ``provenance`` no longer holds; or None.

        Sees hooks, training mode, and weights replaced or changed in place, but not those changed through
        ``.data``, nor what else Python can replace.
        """
        if self._checked is None:
            return None
        for name, module in self._checked.named_modules():
            if module._forward_hooks or module._forward_pre_hooks:
                return f"its module {name or 'at the top'} has a forward hook"
            if module.training:
                return f"its module {name or 'at the top'} is in training mode"
        return None if _weights_now(self._checked) == self._as_loaded else "its weights were changed"

    def encode_texts(
        self, texts: Sequence[str], *, batch_size: int | None = None, progress: bool = False
    ) -> Float[Tensor, "text dim"]:
        """Embed texts, each different one once. See :class:`Encoder`."""
        self._require("text")
        checked = check_texts(texts)
        with exact_inference(self.device, self.precision):
            return self._texts(checked, batch_size, progress)

    def encode_images(
        self,
        images: Tensor | Sequence[Image.Image],
        *,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> Float[Tensor, "image dim"]:
        """Embed pictures. See :class:`Encoder`."""
        self._require("image")
        checked = check_images(images)
        with exact_inference(self.device, self.precision):
            return self._images(checked, batch_size, progress)

    def _texts(self, texts: list[str], batch_size: int | None, progress: bool) -> Tensor:
        raise NotImplementedError

    def _images(self, images: Tensor | list[Image.Image], batch_size: int | None, progress: bool) -> Tensor:
        raise NotImplementedError

    def _require(self, modality: str) -> None:
        if modality not in self.modalities:
            (has,) = self.modalities
            raise EncoderError(
                f"{self.name} encodes {has}s only; it was given {modality}s. "
                f"Load an encoder with {modality!r} in its modalities, for example a CLIP model"
            )

    def __repr__(self) -> str:
        takes = " and ".join(sorted(self.modalities))
        return f"<{self.name}: {takes} to {self.dim} dimensions, {self.precision} on {self.device}>"


class ModelEncoder(CheckedEncoder):
    """Freeze a torch model, and list all that determines its output as ``provenance``."""

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str,
        dim: int,
        modalities: set[str],
        device: torch.device,
        precision: str,
        weights: dict[str, Any],
        settings: Any,
        preprocessing: Preprocessing | None,
        packages: Sequence[str],
        quick_gelu: bool = False,
        normalised_by_model: bool = False,
    ) -> None:
        """Describe the model.

        ``weights``: where they come from. ``settings``: what the state dict does not hold, such as the number of
        heads, the pooling and the tokenizer, ready for JSON; only their digest is kept. ``packages``: whose
        versions matter.
        """
        self.model: Any = freeze(model, device)
        provenance = {
            "spec": name,
            "pretrained": True,
            "seed": None,
            **weights,
            "weights_sha256": tensor_digest(model.state_dict()),
            "settings_sha256": digest(settings),
            "quick_gelu": quick_gelu,
            "preprocessing": None if preprocessing is None else preprocessing.describe(),
            "normalised_by_model": normalised_by_model,
            "precision": precision,
            "device": device_name(device),
            "versions": versions("torch", *packages),
        }
        super().__init__(
            name=name,
            dim=dim,
            modalities=modalities,
            device=device,
            precision=precision,
            provenance=provenance,
            model=self.model,
        )


def folder_settings(folder: Path) -> dict[str, str]:
    """Hash every file of a model's folder that is text: configurations, vocabularies, merges."""
    suffixes = (".json", ".txt", ".model", ".jinja")
    files = sorted(f for f in folder.rglob("*") if f.suffix in suffixes and f.is_file())
    return {f.relative_to(folder).as_posix(): file_digest(f) for f in files}


def _weights_now(model: nn.Module) -> list[tuple[str, int, int]]:
    """Identify the weights without reading them: torch counts the changes in place of every tensor."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return [(n, t.data_ptr(), 0 if t.is_inference() else t._version) for n, t in named]


def encode_pictures_batched(
    model_forward: Any,
    preprocessing: Preprocessing,
    images: Tensor | list[Image.Image],
    *,
    device: torch.device,
    batch_size: int | None,
    progress: bool,
) -> Float[Tensor, "image dim"]:
    """Preprocess and embed pictures; preprocessing runs ahead in a thread, or on the GPU for tensors."""
    resize_on_gpu = isinstance(images, Tensor) and device.type != "cpu"

    def prepare(low: int, high: int) -> UInt8[Tensor, "image 3 h w"]:
        piece = images[low:high]
        if not isinstance(piece, Tensor):
            return preprocessing.resize_pil(piece)
        return piece if resize_on_gpu else preprocessing.resize_tensor(piece)

    def forward(batch: UInt8[Tensor, "image 3 h w"]) -> Tensor:
        if resize_on_gpu:
            batch = preprocessing.resize_tensor(batch)
        return model_forward(preprocessing.normalise(batch))

    return encode_batches(
        len(images),
        prepare,
        forward,
        device=device,
        batch_size=batch_size,
        progress=progress,
        what="pictures",
    )


def check_texts(texts: object) -> list[str]:
    """Give the texts as a list. Raises EncoderError unless they are one or more strings."""
    if isinstance(texts, str):
        raise EncoderError(f"got one string, {texts[:40]!r}: give a list of texts, [text]")
    try:
        listed = list(texts)  # type: ignore[call-overload]
    except TypeError:
        raise EncoderError(f"texts must be a list of strings; got {type(texts).__name__}") from None
    if not listed:
        raise EncoderError("got an empty list of texts: give at least one")
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise EncoderError(f"text {i} is {type(text).__name__}, not a string: {text!r}")
    return listed


def check_images(images: object) -> Tensor | list[Image.Image]:
    """Give the pictures as a uint8 tensor (n, 3, h, w) or a list of PIL images. Raises EncoderError."""
    wanted = "a uint8 tensor of shape (n, 3, h, w) with values 0 to 255, or a list of PIL images"
    if isinstance(images, Tensor):
        if images.ndim == 4 and images.shape[1] != 3 and images.shape[3] == 3:
            raise EncoderError(
                f"images have shape {tuple(images.shape)}, channels last: use images.permute(0, 3, 1, 2)"
            )
        if images.ndim != 4 or images.shape[1] != 3:
            raise EncoderError(f"images have shape {tuple(images.shape)}; expected {wanted}")
        if images.dtype != torch.uint8:
            raise EncoderError(
                f"images have dtype {images.dtype}; expected {wanted}. For floats in [0, 1] use "
                "(images * 255).round().to(torch.uint8); do not normalise, the encoder does"
            )
        if not images.numel():
            raise EncoderError(f"images have shape {tuple(images.shape)}, no pixel at all: give at least one")
        return images
    if isinstance(images, Image.Image):
        raise EncoderError("got one PIL image: give a list, [image]")
    if not isinstance(images, Sequence) or isinstance(images, str):
        raise EncoderError(f"images are {type(images).__name__}; expected {wanted}")
    if not images:
        raise EncoderError("got an empty list of images: give at least one")
    for i, image in enumerate(images):
        if not isinstance(image, Image.Image):
            raise EncoderError(f"image {i} is {type(image).__name__}; expected {wanted}")
    return list(images)


def resolve_device(device: str | torch.device, precision: str) -> torch.device:
    """Turn ``"auto"`` into the GPU if there is one, else the CPU, and check the precision against it.

    Raises EncoderError for a GPU that is not there, an unknown precision, or half precision on a CPU.
    """
    if precision not in PRECISIONS:
        raise EncoderError(f"precision must be one of {tuple(PRECISIONS)}; got {precision!r}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise EncoderError(f"no device {device!r}: {error}") from None
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise EncoderError(f"device {device!r} asked for, but torch sees no GPU: use device='cpu'")
    if precision != "fp32" and resolved.type != "cuda":
        raise EncoderError(
            f"precision {precision!r} on {resolved.type}: half precision is slow or missing there, and its "
            "numbers differ from a GPU's. Use precision='fp32', or a GPU"
        )
    return resolved


def freeze(model: nn.Module, device: torch.device) -> nn.Module:
    """Put a model on its device, in evaluation mode, without gradients."""
    model = model.to(device).eval().requires_grad_(False)
    assert not any(m.training for m in model.modules())
    return model


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's CPU generator as seeded within, and leave it as it was."""
    # Seeding through default_generator, not torch.manual_seed, leaves the GPU's generators alone too.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextlib.contextmanager
def exact_inference(device: torch.device, precision: str) -> Iterator[None]:
    """Run without gradients, without TF32, and with autocast if a half precision was chosen."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if device.type == "cuda":
            stack.enter_context(_no_tf32())
            if precision != "fp32":
                stack.enter_context(torch.autocast("cuda", PRECISIONS[precision]))
        yield


@contextlib.contextmanager
def _no_tf32() -> Iterator[None]:
    # cuDNN convolutions use TF32 by default: a patch embedding would lose 13 of 23 mantissa bits.
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before
