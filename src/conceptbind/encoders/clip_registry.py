"""What open_clip's registry, a folder or the hub knows about a model: its weights, and how to read them."""

from __future__ import annotations

import difflib
import json
import warnings
from pathlib import Path
from typing import Any

from conceptbind.encoders.base import EncoderError, PackageMissing, WeightsNotFound
from conceptbind.encoders.hub import hub_file

WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def check_architecture(model_name: str, given: str, *, prefix: str) -> None:
    """Raise EncoderError, naming the closest architectures, unless open_clip knows the model."""
    known = import_open_clip().list_models()
    if model_name in known:
        return
    dashed = given.replace("/", "-")
    spelled_with_slash = [m for m in known if "/" in given and dashed.startswith(m)]
    if spelled_with_slash:
        right = max(spelled_with_slash, key=len)
        rest = dashed[len(right) :].lstrip("-")
        raise EncoderError(
            f"{prefix}{given} spells an architecture with a slash; write {prefix}"
            + (_trained_alike(right, rest) if rest else right)
        )
    close = difflib.get_close_matches(model_name, known, n=5, cutoff=0.5)
    raise EncoderError(
        f"open_clip has no architecture {model_name!r}. "
        + (f"Closest: {', '.join(close)}. " if close else "")
        + "open_clip.list_models() lists all"
        + (
            ". Untrained there are also all-MiniLM-L6-v2, sentence:<name>, efficientnet-lite0 and pocket"
            if prefix == "random:"
            else ""
        )
    )


def pretrained_like(name: str) -> str | None:
    """Name a pretrained model for the bare name of an architecture, ``ViT-B/32``; None when there is none."""
    open_clip = import_open_clip()
    dashed = name.replace("/", "-").lower()
    models = [m for m in open_clip.list_models() if m.lower() == dashed]
    tags = open_clip.list_pretrained_tags_by_model(models[0]) if models else []
    if not tags:
        return None
    return f"open_clip:{_trained_alike(models[0], 'openai' if 'openai' in tags else tags[0])}"


def _trained_alike(model_name: str, tag: str) -> str:
    """Spell ``<model>/<tag>`` with QuickGELU where the weights of the tag were trained with it."""
    open_clip = import_open_clip()
    twin = f"{model_name}-quickgelu"
    quick = tag in open_clip.list_pretrained_tags_by_model(twin) and open_clip.get_pretrained_cfg(
        twin, tag
    ).get("quick_gelu", False)
    return f"{twin if quick else model_name}/{tag}"


def find_weights(
    model_name: str, source: str, config: dict[str, Any], cache_dir: str | Path | None
) -> tuple[Path, dict[str, Any]]:
    """Give the weight file and the tag's preprocessing settings (none for a file)."""
    open_clip = import_open_clip()
    tags = open_clip.list_pretrained_tags_by_model(model_name)
    if not source:
        raise EncoderError(
            f"open_clip:{model_name} names no weights. Add a tag or a file, open_clip:{model_name}/<tag or "
            f"path>; its tags: {_listed(tags)}. For untrained weights say random:{model_name}"
        )
    path = Path(source).expanduser()
    if source not in tags and (path.suffix in WEIGHT_SUFFIXES or "/" in source or path.is_file()):
        return _weight_file(path), _preprocessing_of_tags(model_name, tags)
    _check_tag(model_name, source, tags, bool(config.get("quick_gelu", False)))
    tag = open_clip.get_pretrained_cfg(model_name, source)
    repo, _, filename = tag["hf_hub"].rpartition("/")
    names = HUB_WEIGHTS
    if filename:
        stem = filename.rpartition(".")[0]
        names = tuple(dict.fromkeys([f"{stem}.safetensors", filename]))
    found = hub_file(
        repo,
        names,
        cache_dir=cache_dir,
        offline_help=f"To provide it offline, download the file elsewhere and load "
        f"open_clip:{model_name}/<path to it>",
    )
    return found, _tag_preprocessing(tag)


def _check_tag(model_name: str, tag: str, tags: list[str], model_quick_gelu: bool) -> None:
    open_clip = import_open_clip()
    owners = open_clip.list_pretrained_models_by_tag(tag)
    if tag in tags:
        tag_quick_gelu = bool(open_clip.get_pretrained_cfg(model_name, tag).get("quick_gelu", False))
        if tag_quick_gelu == model_quick_gelu:
            return
    else:
        twin = (
            model_name.removesuffix("-quickgelu")
            if model_name.endswith("-quickgelu")
            else f"{model_name}-quickgelu"
        )
        if twin not in owners:
            close = difflib.get_close_matches(tag, tags, n=3)
            raise EncoderError(
                f"{model_name} has no tag {tag!r}, and no file has that name. "
                + (f"Closest: {', '.join(close)}. " if close else "")
                + f"Its tags: {_listed(tags)}"
            )
        tag_quick_gelu = bool(open_clip.get_pretrained_cfg(twin, tag).get("quick_gelu", False))
    stem = model_name.removesuffix("-quickgelu")
    right = [
        m
        for m in owners
        if m.removesuffix("-quickgelu") == stem
        and bool(open_clip.get_model_config(m).get("quick_gelu", False)) == tag_quick_gelu
    ]
    raise EncoderError(
        f"QuickGELU mismatch: the weights {tag!r} were trained {'with' if tag_quick_gelu else 'without'} it, "
        f"{model_name} is built {'with' if model_quick_gelu else 'without'} it, and every number would be "
        f"off. Load {' or '.join(f'open_clip:{m}/{tag}' for m in right) or 'another tag'}"
    )


def _tag_preprocessing(tag: dict[str, Any]) -> dict[str, Any]:
    return {k: tag[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in tag}


def _preprocessing_of_tags(model_name: str, tags: list[str]) -> dict[str, Any]:
    """Preprocess for weights from a file, which cannot tell how, as for the tags of the architecture."""
    open_clip = import_open_clip()
    found = [_tag_preprocessing(open_clip.get_pretrained_cfg(model_name, tag)) for tag in tags]
    if any(f != found[0] for f in found):
        warnings.warn(
            f"a weight file does not say how pictures are preprocessed, and the tags of {model_name} differ "
            "in it: open_clip's default (OpenAI's) is used. To state it, put the file beside an "
            "open_clip_config.json and load open_clip:local-dir:<folder>",
            stacklevel=4,
        )
        return {}
    return found[0] if found else {}


def _weight_file(path: Path) -> Path:
    if path.suffix not in WEIGHT_SUFFIXES:
        raise EncoderError(f"{path} is no weight file we read: expected one of {', '.join(WEIGHT_SUFFIXES)}")
    if not path.is_file():
        raise WeightsNotFound(
            f"wanted the weight file {path.name}, looked in {path.absolute().parent}: "
            f"{'that folder has no such file' if path.parent.is_dir() else 'no such folder'}. Check the path"
        )
    return path


def hub_model(repo: str, cache_dir: str | Path | None) -> Path:
    """Give the folder with the configuration and weights of a hub repository. Raises WeightsNotFound."""
    help_ = (
        "To provide it offline, copy open_clip_config.json and the weights into one folder and load "
        "open_clip:local-dir:<folder>"
    )
    config = hub_file(repo, ("open_clip_config.json",), cache_dir=cache_dir, offline_help=help_)
    weights = hub_file(repo, HUB_WEIGHTS, cache_dir=cache_dir, offline_help=help_)
    if weights.parent != config.parent:
        raise WeightsNotFound(
            f"the cache has configuration and weights of {repo!r} from different revisions "
            f"({config.parent.name}, {weights.parent.name}). Delete it from the cache and load it again"
        )
    return config.parent


def folder_config(folder: Path) -> dict[str, Any]:
    """Read the model configuration of a folder that has weights too. Raises EncoderError, WeightsNotFound."""
    file = folder / "open_clip_config.json"
    if not file.is_file():
        raise WeightsNotFound(
            f"wanted open_clip_config.json, looked in {folder.absolute()}: not there. "
            "open_clip.push_to_hf_hub.save_for_hf writes such a folder"
        )
    try:
        config = json.loads(file.read_text(encoding="utf-8"))["model_cfg"]
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"{file} is not an open_clip configuration with a 'model_cfg': {error!r}"
        ) from None
    if not any(f.suffix in WEIGHT_SUFFIXES for f in folder.iterdir()):
        raise WeightsNotFound(
            f"wanted {HUB_WEIGHTS[0]}, looked in {folder.absolute()}: no weight file there. Copy it beside "
            "open_clip_config.json"
        )
    return config


def _listed(tags: list[str]) -> str:
    if len(tags) > 8:
        return f"{', '.join(tags[:8])} and {len(tags) - 8} more (open_clip.list_pretrained_tags_by_model)"
    return ", ".join(tags) or "none"


def require_text_config(config: dict[str, Any], cache_dir: str | Path | None) -> None:
    """Fail at once where a Hugging Face text encoder's configuration cannot be had."""
    repo = config["text_cfg"].get("hf_model_name")
    if repo and not Path(repo).is_dir():
        hub_file(
            repo,
            ("config.json",),
            cache_dir=cache_dir,
            offline_help="This architecture builds its text encoder from that file; 'random:ViT-B-32' needs "
            "nothing beside open_clip",
        )


def import_open_clip() -> Any:
    """Import open_clip. Raises PackageMissing."""
    try:
        import open_clip
    except ImportError as error:
        raise PackageMissing(
            f"open_clip is not installed ({error}): pip install 'conceptbind[encoders]'"
        ) from None
    return open_clip
