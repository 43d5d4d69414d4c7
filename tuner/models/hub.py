"""Fetches a GGUF file from a Hugging Face hub."""

from __future__ import annotations

import logging
from pathlib import Path

from tuner.errors import ModelFileError


def hub_file(location: str) -> Path:
    """The local copy of `OWNER/REPO[:FILE]`, downloaded when it isn't in the hub's own cache.

    Honours HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE. Without FILE the repository must hold exactly one
    .gguf model. Raises ModelFileError that lists the files when there are several.
    """
    repository, _, name = location.partition(":")
    if repository.count("/") != 1:
        raise ModelFileError(f"hf:{location} is not of the form hf:OWNER/REPO[:FILE]")
    try:
        from huggingface_hub import hf_hub_download, list_repo_files
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
    except ImportError:
        raise ModelFileError(
            f"hf:{location} needs the package huggingface_hub; pip install huggingface_hub"
        ) from None
    # Its warnings of retries would stand before the one line of the error.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if not name:
            name = _only_model(location, list_repo_files(repository))
        return Path(hf_hub_download(repository, name))
    except LocalEntryNotFoundError:
        raise ModelFileError(
            f"hf:{location}: {name} is not in the hub's cache, and the hub is out of reach"
        ) from None
    except OfflineModeIsEnabled:
        raise ModelFileError(
            f"hf:{location}: the hub is in offline mode; name the file: hf:{repository}:FILE"
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ModelFileError(f"hf:{location}: {' '.join(str(error).split())}") from error


def _only_model(location: str, files: list[str]) -> str:
    models = sorted(file for file in files if file.endswith(".gguf"))
    if len(models) == 1:
        return models[0]
    if not models:
        raise ModelFileError(f"hf:{location} holds no .gguf file")
    raise ModelFileError(f"hf:{location} holds {len(models)} models; name one of {', '.join(models)}")
