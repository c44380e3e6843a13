"""Image-text models of open_clip: pretrained by tag, from a file, a folder or the hub, or untrained.

open_clip itself only warns, or logs, where a number would be wrong without notice; here these are errors:
weights trained with QuickGELU in a model without it (or the reverse), weights that were never loaded, and a
text cut off at the context length.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from conceptbind.encoders.base import (
    CheckedEncoder,
    EncoderError,
    ModelEncoder,
    WeightsNotFound,
    encode_pictures_batched,
    folder_settings,
    resolve_device,
    seeded,
)
from conceptbind.encoders.clip_registry import (
    check_architecture,
    find_weights,
    folder_config,
    hub_model,
    import_open_clip,
    require_text_config,
)
from conceptbind.encoders.hub import hub_file, unreachable
from conceptbind.kernels.encoding import (
    causal_tower,
    encode_batches,
    encode_tokens_cropped,
    encode_unique,
)
from conceptbind.kernels.preprocessing import Preprocessing
from conceptbind.provenance import tensor_digest


class ClipEncoder(ModelEncoder):
    """Encode pictures and texts with one open_clip model. ``model`` is open to hooks and probes."""

    def __init__(
        self,
        model: nn.Module,
        *,
        spec: str,
        config: dict[str, Any],
        tokenizer_name: str,
        weights: dict[str, Any],
        device: str | torch.device,
        precision: str,
        cache_dir: str | Path | None,
        folder: Path | None = None,
    ) -> None:
        self.preprocessing = _preprocessing(model, spec)
        super().__init__(
            model,
            name=spec,
            dim=config["embed_dim"],
            modalities={"image", "text"},
            device=resolve_device(device, precision),
            precision=precision,
            weights=weights,
            settings={
                "model": config,
                "preprocessing": model.visual.preprocess_cfg,
                "tokenizer": tokenizer_name if folder is None else None,
                "files": {} if folder is None else folder_settings(folder),
            },
            preprocessing=self.preprocessing,
            packages=("open_clip_torch", "timm", "transformers", "tokenizers", "pillow"),
            quick_gelu=bool(config.get("quick_gelu", False)),
        )
        self.context_length = int(model.context_length)
        self._text_config = config["text_cfg"]
        self._tokenizer_name = tokenizer_name
        self._cache_dir = cache_dir
        self._tokenizer: Any = None
        self._tower = causal_tower(self.model)

    @property
    def has_causal_texts(self) -> bool:
        """Whether its text encoder is one whose context may be cropped."""
        return self._tower is not None

    def with_texts_of(self, model: nn.Module, **recorded: Any) -> ClipEncoder:
        """Give this encoder with another model of its kind, for texts only; ``recorded`` joins its provenance."""
        other = copy.copy(self)
        weights = tensor_digest(model.state_dict())
        CheckedEncoder.__init__(
            other,
            name=self.name,
            dim=self.dim,
            modalities={"text"},
            device=self.device,
            precision=self.precision,
            provenance={**self.provenance, "weights_sha256": weights, **recorded},
            model=model,
        )
        other.model, other._tower = model, causal_tower(model)
        return other

    def tokenise(self, texts: list[str]) -> Tensor:
        """Turn texts into token rows (text, context). Raises EncoderError for a text beyond the context."""
        tokenizer = self._load_tokenizer()
        tokens = tokenizer(texts)
        self._refuse_truncation(tokenizer, texts, tokens)
        return tokens

    def _texts(self, texts: list[str], batch_size: int | None, progress: bool) -> Tensor:
        def encode(unique: list[str]) -> Tensor:
            tokens = self.tokenise(unique)
            if self._tower is not None:
                return encode_tokens_cropped(
                    self._tower,
                    tokens,
                    device=self.device,
                    batch_size=batch_size,
                    progress=progress,
                )
            return encode_batches(
                len(tokens),
                lambda low, high: tokens[low:high],
                self.model.encode_text,
                device=self.device,
                batch_size=batch_size,
                progress=progress,
                what="texts",
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

    def _load_tokenizer(self) -> Any:
        # Loaded on first use: pictures can be encoded where the tokenizer's files cannot be fetched.
        if self._tokenizer is None:
            repo = self._text_config.get("hf_tokenizer_name")
            try:
                if repo and not self._tokenizer_name.startswith("local-dir:"):
                    self._tokenizer = self._hub_tokenizer(repo)
                else:
                    with _quiet_open_clip():
                        self._tokenizer = import_open_clip().get_tokenizer(self._tokenizer_name)
            except (OSError, ImportError) as error:
                raise WeightsNotFound(
                    f"the tokenizer {repo or self._tokenizer_name!r} of {self.name} cannot be loaded: {error}"
                ) from error
        return self._tokenizer

    def _hub_tokenizer(self, repo: str) -> Any:
        from open_clip.tokenizer import HFTokenizer

        hub_file(
            repo,
            ("tokenizer_config.json", "tokenizer.json"),
            cache_dir=self._cache_dir,
            offline_help="Without its tokenizer this model encodes images only; to have it offline, copy the "
            "hub cache of a machine that has encoded a text with it",
        )
        text = self._text_config
        return HFTokenizer(
            repo,
            context_length=self.context_length,
            cache_dir=self._cache_dir,
            tokenizer_mode=text.get("tokenizer_mode"),
            local_files_only=unreachable() is not None,
            **text.get("tokenizer_kwargs", {}),
        )

    def _refuse_truncation(self, tokenizer: Any, texts: list[str], tokens: Tensor) -> None:
        # A row that was cut has no padding, but where padding is the end token too it does end in one. The
        # tokens of such rows are counted without a limit.
        pad = getattr(getattr(tokenizer, "tokenizer", None), "pad_token_id", 0)
        for i in (tokens[:, -2:] != pad).any(1).nonzero().squeeze(1).tolist():
            length = _token_count(tokenizer, texts[i])
            if length > tokens.shape[1]:
                raise EncoderError(
                    f"a text has {length} tokens, {self.name} reads {tokens.shape[1]} and would drop the "
                    f"rest: shorten {texts[i][:80]!r}..."
                )


def load_open_clip(
    name: str,
    *,
    spec: str,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
) -> ClipEncoder:
    """Load ``<model>/<tag>``, ``<model>/<path>``, ``hf-hub:org/repo`` or ``local-dir:<path>``.

    Raises EncoderError for an unknown model or tag, QuickGELU on one side only, or weights that do not fit;
    WeightsNotFound when a file is missing.
    """
    resolve_device(device, precision)
    open_clip = import_open_clip()
    tokenizer_name = name
    pretrained: str | None = None
    preprocessing: dict[str, Any] = {}
    folder: Path | None = None
    if name in ("hf-hub:", "local-dir:"):
        raise EncoderError(f"{spec} names no model: write hf-hub:<org>/<repo> or local-dir:<folder>")
    if name.startswith(("/", ".", "~")):
        raise EncoderError(
            f"{spec} gives weights without their architecture: write open_clip:<model>/{name}, for example "
            f"open_clip:ViT-B-32/{name}"
        )
    if name.startswith("hf-hub:"):
        folder = hub_model(name.removeprefix("hf-hub:"), cache_dir)
        weights = {"weights": name, "revision": folder.name}
        model_name, config = f"local-dir:{folder}", folder_config(folder)
        if "hf_tokenizer_name" not in config["text_cfg"]:
            tokenizer_name = model_name
    elif name.startswith("local-dir:"):
        folder = Path(name.removeprefix("local-dir:"))
        weights = {"weights": str(folder)}
        model_name, config = name, folder_config(folder)
    else:
        model_name, _, source = name.partition("/")
        check_architecture(model_name, name, prefix="open_clip:")
        config = open_clip.get_model_config(model_name)
        tokenizer_name = model_name
        path, preprocessing = find_weights(model_name, source, config, cache_dir)
        pretrained, weights = str(path), {"weights": source}
    require_text_config(config, cache_dir)
    with _quiet_open_clip():
        try:
            model = open_clip.create_model(
                model_name,
                pretrained,
                require_pretrained=True,
                weights_only=True,
                force_preprocess_cfg=preprocessing,
            )
        except Exception as error:
            raise EncoderError(
                f"the weights {weights['weights']!r} do not load into {model_name}: {_short(error)}. Give a "
                "safetensors file, or a .pt file of plain tensors, saved from exactly this architecture"
            ) from error
    return ClipEncoder(
        model,
        spec=spec,
        config=config,
        tokenizer_name=tokenizer_name,
        weights=weights,
        device=device,
        precision=precision,
        cache_dir=cache_dir,
        folder=folder,
    )


def load_random(
    architecture: str,
    *,
    spec: str,
    seed: int,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
) -> ClipEncoder:
    """Build an architecture with open_clip's own initialisation, the untrained row of every table.

    The same seed gives the same weights on every device; torch's global generator is left as it was.
    Raises EncoderError for an unknown architecture.
    """
    resolve_device(device, precision)
    open_clip = import_open_clip()
    check_architecture(architecture, architecture, prefix="random:")
    config = open_clip.get_model_config(architecture)
    require_text_config(config, cache_dir)
    with _quiet_open_clip(), seeded(seed):
        try:
            model = open_clip.create_model(architecture, load_weights=False, pretrained_text=False)
        except Exception as error:
            raise EncoderError(
                f"open_clip cannot build {architecture!r} here: {_short(error)}. 'random:ViT-B-32' needs "
                "nothing beside open_clip"
            ) from error
    return ClipEncoder(
        model,
        spec=spec,
        config=config,
        tokenizer_name=architecture,
        weights={"weights": None, "pretrained": False, "seed": seed},
        device=device,
        precision=precision,
        cache_dir=cache_dir,
    )


def _preprocessing(model: nn.Module, spec: str) -> Preprocessing:
    cfg = model.visual.preprocess_cfg
    size = cfg["size"]
    height, width = (size, size) if isinstance(size, int) else size
    if cfg["resize_mode"] not in ("shortest", "squash") or (
        cfg["resize_mode"] == "shortest" and height != width
    ):
        raise EncoderError(
            f"{spec} resizes pictures with mode {cfg['resize_mode']!r} to {height} x {width}, which we do "
            "not have. Encode with your own code and give the result to conceptbind.files.from_file"
        )
    return Preprocessing(
        size=(height, width),
        mode=cfg["resize_mode"],
        # open_clip's inference transform reads "random" as bicubic.
        interpolation="bilinear" if cfg["interpolation"] == "bilinear" else "bicubic",
        mean=tuple(cfg["mean"]),
        std=tuple(cfg["std"]),
    )


def _token_count(tokenizer: Any, text: str) -> int:
    """Count the tokens of a text, special ones included, without a limit."""
    if hasattr(tokenizer, "encode"):
        return len(tokenizer.encode(text)) + 2
    # open_clip's "clips" mode adds three special tokens of its own.
    clips = tokenizer.tokenizer_mode == "clips"
    ids = tokenizer.tokenizer(tokenizer.clean_fn(text), add_special_tokens=not clips).input_ids
    return len(ids) + 3 * clips


@contextmanager
def _quiet_open_clip() -> Iterator[None]:
    """Keep open_clip's calls of logging.info from installing a handler that prints every library's logs."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _short(error: Exception) -> str:
    if "weights_only" in str(error):
        # torch advises to un-pickle it anyway.
        return "it holds Python objects that are no tensors, and those are never un-pickled"
    text = " ".join(str(error).split())
    return text if len(text) < 500 else text[:500] + " ..."
