"""Fetches GGUF models from ModelScope into the hub library's own cache."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import ModelFileError
from tuner.models.repository import Location, OutOfReachError, local_copy, parse

if TYPE_CHECKING:
    from modelscope_hub import FileInfo

_MODEL = "model"


def modelscope_model(text: str, *, refresh: bool = False) -> tuple[Location, tuple[Path, ...]]:
    """The local copy of `OWNER/REPO[:FILE]`, as `repository.local_copy` says.

    Sizes and SHA-256 are checked against the repository's listing. Honours MODELSCOPE_ENDPOINT,
    MODELSCOPE_CACHE and MODELSCOPE_API_TOKEN. Raises ModelFileError in one line.
    """
    location = parse("ms", text)
    try:
        from modelscope_hub import HubApi
        from modelscope_hub.errors import CacheNotFound
    except ImportError:
        raise ModelFileError(
            f"{location} needs the package modelscope-hub; install cputune with its modelscope extra"
        ) from None
    # Its notes would stand before the one line of the error.
    logging.getLogger("modelscope_hub").setLevel(logging.CRITICAL)
    api, repository = HubApi(), location.repository

    @cache
    def files() -> dict[str, FileInfo]:
        with _one_line(location):
            return {file.path: file for file in api.list_repo_files(repository, _MODEL)}

    def listed() -> Sequence[str]:
        return tuple(files())

    def download(file: str) -> Path:
        known = files()[file]
        with _one_line(location):
            return api.download_file(
                repository, _MODEL, file, expected_sha256=known.sha256, file_size=known.size or None
            )

    def cached(names: Sequence[str]) -> tuple[Path, ...] | None:
        try:
            return tuple(api.download_file(repository, _MODEL, n, local_files_only=True) for n in names)
        except CacheNotFound:
            return None

    return local_copy(location, refresh=refresh, cached=cached, listed=listed, download=download)


@contextmanager
def _one_line(location: Location) -> Iterator[None]:
    """Turns what the library raises into one line that says what to do."""
    from modelscope_hub import errors
    from modelscope_hub.config import get_default_config

    try:
        yield
    except errors.NotExistError:
        raise ModelFileError(f"{location}: ModelScope knows no such repository; check its name") from None
    except (errors.AuthenticationError, errors.PermissionDeniedError):
        raise ModelFileError(
            f"{location} needs permission: set MODELSCOPE_API_TOKEN to a token that may read it"
        ) from None
    except errors.NetworkError:
        raise OutOfReachError(
            f"{location} is not in ModelScope's cache, and {get_default_config().endpoint} is out of reach"
        ) from None
    except errors.APIError as error:
        raise ModelFileError(f"{location}: {' '.join(error.message.split())}") from error
    except (errors.HubError, OSError, ValueError) as error:
        raise ModelFileError(f"{location}: {' '.join(str(error).split())}") from error
