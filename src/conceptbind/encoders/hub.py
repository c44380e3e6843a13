"""Find files of the Hugging Face hub in its cache, or fetch them; say so at once when neither is possible."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from conceptbind.encoders.base import WeightsNotFound

PROBE_SECONDS = 5


def hub_file(
    repo: str, filenames: tuple[str, ...], *, cache_dir: str | Path | None, offline_help: str
) -> Path:
    """Give the local path of the first of ``filenames`` that the repository has.

    Looks in the cache first and asks the network only when needed. Raises WeightsNotFound, naming the file,
    the cache folder, the reason, and ``offline_help``.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for name in filenames:
        found = try_to_load_from_cache(repo, name, cache_dir=cache_dir)
        if isinstance(found, str):
            return Path(found)
    reason = unreachable()
    for name in filenames if reason is None else ():
        try:
            return Path(hf_hub_download(repo, name, cache_dir=cache_dir))
        except LocalEntryNotFoundError as error:
            reason = str(error)
            break
        except EntryNotFoundError:
            reason = "the repository has no such file"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            break
    raise WeightsNotFound(
        f"wanted {' or '.join(filenames)} of the hub repository {repo!r}, looked in "
        f"{cache_folder(cache_dir)} and online: {reason}. {offline_help}"
    )


def hub_folder(repo: str, *, require: str, cache_dir: str | Path | None, offline_help: str) -> Path:
    """Give the local folder of a whole repository, without weights in pickle formats.

    Cached when it has ``require``. Raises WeightsNotFound as :func:`hub_file` does.
    """
    from huggingface_hub import snapshot_download

    file = hub_file(repo, (require,), cache_dir=cache_dir, offline_help=offline_help)
    if unreachable() is not None:
        return file.parent
    try:
        return Path(
            snapshot_download(
                repo,
                cache_dir=cache_dir,
                allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"],
                ignore_patterns=["onnx/*", "openvino/*"],
            )
        )
    except Exception as error:
        raise WeightsNotFound(
            f"wanted the hub repository {repo!r}, of which {cache_folder(cache_dir)} has {require} only: "
            f"{type(error).__name__}: {error}. {offline_help}"
        ) from error


def cache_folder(cache_dir: str | Path | None) -> Path:
    """Name the folder where the hub's files are kept."""
    from huggingface_hub import constants

    return Path(cache_dir or constants.HF_HUB_CACHE)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Switch off the progress bars that transformers draws while it loads weights."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()


def unreachable() -> str | None:
    """Say why the hub cannot be reached, or None. The hub's own client would retry for half a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set, so the network was not asked"
    try:
        get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception as error:
        return f"{constants.ENDPOINT} cannot be reached ({error})"
    return None
