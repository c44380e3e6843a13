"""DINOv2 through transformers: the class token after the final layer norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from conceptbind.encoders.base import (
    EncoderError,
    ModelEncoder,
    PackageMissing,
    WeightsNotFound,
    encode_pictures_batched,
    folder_settings,
    resolve_device,
)
from conceptbind.encoders.hub import hub_folder, quiet_transformers
from conceptbind.kernels.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

REPOSITORIES = {
    "vits14": "facebook/dinov2-small",
    "vitb14": "facebook/dinov2-base",
    "vitl14": "facebook/dinov2-large",
    "vitg14": "facebook/dinov2-giant",
}
# The official evaluation: shorter side to 256, bicubic, central 224, ImageNet statistics.
PREPROCESSING = Preprocessing(
    size=(224, 224),
    mode="shortest",
    interpolation="bicubic",
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    resize_to=256,
)


class Dinov2Encoder(ModelEncoder):
    """Encode pictures with a transformers Dinov2Model."""

    def __init__(
        self, model: Any, *, spec: str, source: str, folder: Path, device: torch.device, precision: str
    ) -> None:
        self.preprocessing = PREPROCESSING
        super().__init__(
            model,
            name=spec,
            dim=model.config.hidden_size,
            modalities={"image"},
            device=device,
            precision=precision,
            weights={"weights": source},
            settings=folder_settings(folder),
            preprocessing=PREPROCESSING,
            packages=("transformers", "pillow"),
        )

    def _images(self, images: Tensor | list[Image.Image], batch_size: int | None, progress: bool) -> Tensor:
        return encode_pictures_batched(
            lambda batch: self.model(pixel_values=batch).last_hidden_state[:, 0],
            self.preprocessing,
            images,
            device=self.device,
            batch_size=batch_size,
            progress=progress,
        )


def load_dinov2(
    name: str,
    *,
    spec: str,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
) -> Dinov2Encoder:
    """Load ``vits14``, ``vitb14``, ``vitl14`` or ``vitg14`` from the hub or its cache, or a local folder.

    Raises EncoderError for an unknown name or weights that do not fit, WeightsNotFound for missing files.
    """
    resolved = resolve_device(device, precision)
    try:
        from transformers import Dinov2Model
    except ImportError as error:
        raise PackageMissing(
            f"transformers is not installed ({error}): pip install 'conceptbind[encoders]'"
        ) from None
    if name in REPOSITORIES:
        folder = hub_folder(
            REPOSITORIES[name],
            require="model.safetensors",
            cache_dir=cache_dir,
            offline_help="To provide it offline, copy its config.json and model.safetensors into one folder "
            "and load dinov2:<folder>",
        )
        _require_files(folder)
        source = f"{REPOSITORIES[name]} {folder.name}"
    else:
        folder = _local_folder(name)
        source = str(folder)
    try:
        with quiet_transformers():
            model, report = Dinov2Model.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
    except Exception as error:
        raise EncoderError(
            f"{folder} does not load as a DINOv2 model: {type(error).__name__}: {error}"
        ) from error
    problems = {what: sorted(map(str, keys)) for what, keys in report.items() if keys}
    if problems or model.config.model_type != "dinov2":
        raise EncoderError(
            f"{folder} does not fill a DINOv2 model: {problems or model.config.model_type}. "
            "Save it with Dinov2Model.save_pretrained"
        )
    return Dinov2Encoder(model, spec=spec, source=source, folder=folder, device=resolved, precision=precision)


def _local_folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        looks_like_path = folder.is_absolute() or name.startswith((".", "~"))
        if not looks_like_path:
            raise EncoderError(f"no DINOv2 named {name!r}: use one of {', '.join(REPOSITORIES)}, or a folder")
        raise WeightsNotFound(f"wanted a DINOv2 folder, looked for {folder.absolute()}: no such folder")
    _require_files(folder)
    return folder


def _require_files(folder: Path) -> None:
    # The hub's cache too may hold a part of a model, and transformers would make up a missing configuration.
    for file in ("config.json", "model.safetensors"):
        if not (folder / file).is_file():
            raise WeightsNotFound(
                f"wanted {file}, looked in {folder.absolute()}: not there. Dinov2Model.save_pretrained "
                "writes such a folder"
            )
