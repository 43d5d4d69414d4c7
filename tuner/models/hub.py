"""Fetches models from a Hugging Face hub into the hub library's own cache: GGUF files and folders."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tuner.errors import ModelFileError
from tuner.models import huggingface
from tuner.models.folders import SUFFIXES, read_object
from tuner.models.repository import (
    CONFIGURATION,
    Location,
    OutOfReachError,
    check_folder,
    folder_in,
    local_copy,
    models_in,
    parse,
)

TIMEOUT_S = 10.0
"""How long the hub may take to say what a repository holds."""


def hub_model(text: str, *, refresh: bool = False) -> tuple[Location, tuple[Path, ...]]:
    """The local copy of `OWNER/REPO[:FILE]`, as `repository.local_copy` says.

    A repository without a .gguf file that is a folder with safetensors has its configuration as the file,
    which stands for the folder that it is in. Honours HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
    Raises ModelFileError in one line.
    """
    location = parse("hf", text)
    try:
        from huggingface_hub import hf_hub_download, model_info
        from huggingface_hub.utils.logging import set_verbosity
    except ImportError:
        raise ModelFileError(
            f"{location} needs the package huggingface_hub; install cputune with its hub extra"
        ) from None
    # Its warnings of retries would stand before the one line of the error.
    set_verbosity(logging.ERROR)

    @cache
    def listed() -> Sequence[str]:
        with _one_line(location):
            # Unlike the library's listing calls, this one does not try again for half a minute.
            found = model_info(location.repository, timeout=TIMEOUT_S)
        return [sibling.rfilename for sibling in found.siblings or ()]

    def download(file: str) -> Path:
        with _one_line(location):
            return Path(hf_hub_download(location.repository, file))

    def cached(files: Sequence[str]) -> tuple[Path, ...] | None:
        return _cached(location.repository, files)

    if not location.file and not models_in(listed()) and folder_in(listed()):
        location = replace(location, file=CONFIGURATION)
    if location.file == CONFIGURATION:
        return location, (_folder(location, listed, refresh=refresh) / CONFIGURATION,)
    return local_copy(location, refresh=refresh, cached=cached, listed=listed, download=download)


def known_sha256(path: Path) -> str | None:
    """What the hub says of a file's content: the cache keeps large files under their SHA-256."""
    name = path.resolve().name
    return name if re.fullmatch("[0-9a-f]{64}", name) else None


def _folder(location: Location, listed: Callable[[], Sequence[str]], *, refresh: bool) -> Path:
    """A repository's folder, all of one commit; what is no text generator is refused before its weights."""
    from huggingface_hub import hf_hub_download, snapshot_download

    wanted: dict[str, Any] = {
        "allow_patterns": [f"*{suffix}" for suffix in sorted(SUFFIXES["huggingface"])],
        "ignore_patterns": ["*/*"],
    }

    def whole() -> Path | None:
        try:
            with _one_line(location):
                folder = Path(snapshot_download(location.repository, local_files_only=True, **wanted))
            huggingface.weight_files(folder)
        except ModelFileError:
            return None
        return folder

    known = whole()
    if known is not None and not refresh:
        return known
    try:
        check_folder(location, listed())
        with _one_line(location):
            configuration = Path(hf_hub_download(location.repository, CONFIGURATION))
        huggingface.check_generates(configuration, read_object(configuration))
        with _one_line(location):
            return Path(snapshot_download(location.repository, **wanted))
    except OutOfReachError:
        if known is None:
            raise
        return known


def _cached(repository: str, files: Sequence[str]) -> tuple[Path, ...] | None:
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, file) for file in files]
    paths = tuple(Path(path) for path in found if isinstance(path, str))
    return paths if len(paths) == len(files) else None


@contextmanager
def _one_line(location: Location) -> Iterator[None]:
    """Turns what the library raises into one line that says what to do."""
    import httpx2
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.GatedRepoError:
        raise ModelFileError(
            f"{location} is gated: accept its terms on its page, and set HF_TOKEN to a token that may read it"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelFileError(
            f"{location}: the hub knows no such repository, or it is private; check its name, or set HF_TOKEN"
        ) from None
    except errors.OfflineModeIsEnabled:
        raise OutOfReachError(f"{location} is not in the hub's cache, and HF_HUB_OFFLINE is set") from None
    # The transport's own errors come through the library as they are.
    except (errors.LocalEntryNotFoundError, httpx2.ConnectError, httpx2.TimeoutException):
        raise OutOfReachError(
            f"{location} is not in the hub's cache, and {constants.ENDPOINT} is out of reach"
        ) from None
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise ModelFileError(f"{location}: {' '.join(str(error).split())}") from error
