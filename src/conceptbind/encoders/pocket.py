"""The pocket CLIPs: small image-text models that we trained on our own pictures and captions.

Their weights, about 2 MB each, come with the package, so everything between image and text runs anywhere, offline.
They are of open_clip's own ``CLIP`` class. Variants differ in their training data only (see
:mod:`conceptbind.training.pocket_data`); ``tools/train_pocket.py`` trains them again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from conceptbind.encoders.base import (
    EncoderError,
    ModelEncoder,
    WeightsNotFound,
    encode_pictures_batched,
    resolve_device,
    seeded,
)
from conceptbind.encoders.clip_registry import import_open_clip
from conceptbind.encoders.pocket_words import CONTEXT, VOCABULARY_SIZE, WORDS, tokenise
from conceptbind.kernels.encoding import causal_tower, encode_tokens_cropped, encode_unique
from conceptbind.kernels.preprocessing import Preprocessing
from conceptbind.provenance import tensor_digest
from conceptbind.scenes import ObjectSplit
from conceptbind.spaces import POCKET

FORMAT = "conceptbind pocket 1"
"""Raised when files of weights change their meaning."""

VARIANTS: tuple[str, ...] = ("narrow", "broad", "ordered")
"""What differs is the training data: see :mod:`conceptbind.training.pocket_data`."""

FOLDER = Path(__file__).parent / "weights"
"""Where the weights that come with the package lie."""

SIZE = 64
"""Height and width of the pictures, in pixels."""

CONFIG: dict[str, Any] = {
    "embed_dim": 128,
    "vision_cfg": {"layers": 3, "width": 128, "head_width": 32, "patch_size": 8, "image_size": SIZE},
    "text_cfg": {
        "context_length": CONTEXT,
        "vocab_size": VOCABULARY_SIZE,
        "width": 128,
        "heads": 4,
        "layers": 2,
        "pool_type": "argmax",
    },
}
"""The arguments of open_clip's ``CLIP``: 1.06 million parameters."""

# Squashed, not cropped: a crop could lose an object.
PREPROCESSING = Preprocessing(
    size=(SIZE, SIZE), mode="squash", interpolation="bicubic", mean=(0.5,) * 3, std=(0.25,) * 3
)


class PocketEncoder(ModelEncoder):
    """Encode pictures and captions with one pocket CLIP. ``model`` is open to hooks and probes."""

    def __init__(
        self,
        model: nn.Module,
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
            dim=CONFIG["embed_dim"],
            modalities={"image", "text"},
            device=device,
            precision=precision,
            weights=weights,
            settings={"model": CONFIG, "words": WORDS},
            preprocessing=PREPROCESSING,
            packages=("open_clip_torch", "pillow"),
        )
        self.context_length = CONTEXT
        self._tower = causal_tower(self.model)

    def tokenise(self, texts: list[str]) -> Tensor:
        """Turn texts into token rows (text, context). Raises EncoderError for a word it does not know."""
        return tokenise(texts)

    def _texts(self, texts: list[str], batch_size: int | None, progress: bool) -> Tensor:
        def encode(unique: list[str]) -> Tensor:
            return encode_tokens_cropped(
                self._tower, tokenise(unique), device=self.device, batch_size=batch_size, progress=progress
            )

        return encode_unique(texts, encode)

    def _images(self, images: Tensor | list[Image.Image], batch_size: int | None, progress: bool) -> Tensor:
        return encode_pictures_batched(
            self.model.encode_image,
            self.preprocessing,
            images,
            device=self.device,
            batch_size=batch_size,
            progress=progress,
        )


def build_pocket(*, seed: int) -> nn.Module:
    """Build the architecture with open_clip's own initialisation; torch's global generator is left as it was.

    Raises PackageMissing without open_clip.
    """
    import_open_clip()
    from open_clip.model import CLIP

    with seeded(seed):
        return CLIP(CONFIG["embed_dim"], CONFIG["vision_cfg"], CONFIG["text_cfg"])


def load_pocket(
    name: str, *, spec: str, device: str | torch.device = "auto", precision: str = "fp32"
) -> PocketEncoder:
    """Load ``<variant>``, which is seed 0, ``<variant>-<seed>``, or a file of weights by its path.

    Raises EncoderError for an unknown name or a file of something else, WeightsNotFound for a missing file,
    PackageMissing without open_clip.
    """
    resolved = resolve_device(device, precision)
    path = weights_file(name)
    described, tensors = read_weights(path)
    model = build_pocket(seed=0)
    try:
        model.load_state_dict({n: t.float() for n, t in tensors.items()}, strict=True)
    except RuntimeError as error:
        raise EncoderError(
            f"the weights {path} do not load into the pocket CLIP: {' '.join(str(error).split())[:300]}"
        ) from error
    weights = {
        "weights": path.name,
        "training": {k: described[k] for k in ("variant", "seed", "steps", "recipe", "split_seed")},
    }
    return PocketEncoder(model, spec=spec, weights=weights, device=resolved, precision=precision)


def load_random_pocket(
    *, spec: str, seed: int, device: str | torch.device = "auto", precision: str = "fp32"
) -> PocketEncoder:
    """Build the pocket CLIP untrained, as its training begins; the untrained row of every table.

    The same seed gives the same weights on every device; torch's global generator is left as it was.
    """
    resolved = resolve_device(device, precision)
    return PocketEncoder(
        build_pocket(seed=seed),
        spec=spec,
        weights={"weights": None, "pretrained": False, "seed": seed},
        device=resolved,
        precision=precision,
    )


def seen_objects(spec: str) -> ObjectSplit:
    """Say which objects of POCKET a pocket CLIP was trained on; no training scene holds any of the others.

    ``spec``: as for :func:`conceptbind.encoders.load`, for example ``"pocket:broad"``.
    Raises EncoderError when it names no trained pocket CLIP, WeightsNotFound for a missing file.
    """
    source, _, name = spec.partition(":")
    if source != "pocket":
        raise EncoderError(
            f"seen_objects knows the training objects of pocket CLIPs only, for example 'pocket:broad'; got {spec!r}"
        )
    described, _ = read_weights(weights_file(name), tensors=False)
    seen = torch.zeros(POCKET.n_possible_objects, dtype=torch.bool)
    seen[torch.tensor(described["seen_objects"])] = True
    return ObjectSplit(POCKET, seen)


def trained_pockets() -> list[str]:
    """List the specs of all pocket CLIPs whose weights are there."""
    found = sorted(path.stem.split("_")[1:] for path in FOLDER.glob("pocket_*_*.safetensors"))
    return [f"pocket:{variant}" + ("" if seed == "0" else f"-{seed}") for variant, seed in found]


def weights_file(name: str) -> Path:
    """Find the weights of ``<variant>``, ``<variant>-<seed>``, or a path. Raises as :func:`load_pocket`."""
    if name.endswith(".safetensors"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise WeightsNotFound(f"no weights at {path}: give a file that tools/train_pocket.py wrote")
        return path
    parsed = re.fullmatch(r"([a-z]+)(?:-(\d+))?", name)
    here = ", ".join(trained_pockets()) or "none"
    if parsed is None or parsed[1] not in VARIANTS:
        raise EncoderError(
            f"no pocket CLIP is named {name!r}: write pocket:<variant> or pocket:<variant>-<seed> with a variant of "
            f"{', '.join(VARIANTS)}. There are {here}"
        )
    path = FOLDER / f"pocket_{parsed[1]}_{int(parsed[2] or 0)}.safetensors"
    if not path.is_file():
        raise WeightsNotFound(
            f"wanted {path.name}, looked in {path.parent}: not there. There are {here}; to train it: "
            f"python tools/train_pocket.py {parsed[1]} --seeds {int(parsed[2] or 0)}"
        )
    return path


def read_weights(path: Path, *, tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a file of weights: what describes it, and, if wanted, its tensors.

    Raises EncoderError when it is damaged or no file of pocket weights.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()} if tensors else {}
    except (SafetensorError, OSError) as error:
        raise EncoderError(f"{path} cannot be read as safetensors: {error}") from error
    if header.get("format") != FORMAT:
        raise EncoderError(
            f"{path} holds no weights of a pocket CLIP (format {header.get('format')!r}, expected {FORMAT!r}): give a "
            "file that tools/train_pocket.py wrote"
        )
    if tensors and tensor_digest(found) != header.get("sha256"):
        raise EncoderError(f"{path} is damaged, its checksum does not match: install the package again")
    described = {k: json.loads(v) for k, v in header.items() if k not in ("format", "sha256")}
    if described["config"] != CONFIG or tuple(described["words"]) != WORDS:
        raise EncoderError(
            f"{path} holds a pocket CLIP of another architecture or vocabulary: train it again with "
            "tools/train_pocket.py"
        )
    return described, found
