"""What a hub's source names: a repository, the model in it, and the parts that a split model has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import ModelFileError
from tuner.models.folders import MARKS, MOST_FILES, belongs

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""The name of a split model's part."""

CONFIGURATION = MARKS["huggingface"]
MOST_PARTS = 1000
_NO_MODELS = ("mmproj", "imatrix")
"""How files begin that stand beside a model in the same format."""


@dataclass(frozen=True)
class Location:
    """A repository on a hub and a file in it; `file` is empty where its only model is meant.

    A Hugging Face folder is named by its configuration.
    """

    scheme: str
    repository: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.repository}" + (f":{self.file}" if self.file else "")


class OutOfReachError(ModelFileError):
    """The hub did not answer, or may not be asked."""


def local_copy(
    location: Location,
    *,
    refresh: bool,
    cached: Callable[[Sequence[str]], tuple[Path, ...] | None],
    listed: Callable[[], Sequence[str]],
    download: Callable[[str], Path],
) -> tuple[Location, tuple[Path, ...]]:
    """The files of a model with all its parts, and the location with its file named.

    What is cached is used as it is, so that a search needs no network; with `refresh` the hub is asked first,
    and the cache serves where the hub is out of reach. The listing comes before any download: it is one
    short request, and says what is there where the wanted file isn't.
    """
    known = cached(parts_in(location)) if location.file else None
    if known is not None and not refresh:
        return location, known
    try:
        files = listed()
        location = replace(location, file=location.file or only_model(location, files))
        parts = parts_in(location)
        for part in parts:
            if part not in files:
                raise no_such_file(replace(location, file=part), files)
        return location, tuple(download(part) for part in parts)
    except OutOfReachError:
        if known is None:
            raise
        return location, known


def parse(scheme: str, text: str) -> Location:
    """The location that `OWNER/REPO[:FILE]` names; raises ModelFileError for another form."""
    repository, _, file = text.partition(":")
    owner, _, name = repository.partition("/")
    odd = not owner or not name or "/" in name or ".." in file.split("/") or file.startswith("/")
    if odd or re.search(r"[\s\\?#%]", text):
        raise ModelFileError(f"{scheme}:{text} is not of the form {scheme}:OWNER/REPO[:FILE]")
    if file and not file.endswith(".gguf") and (scheme, file) != ("hf", CONFIGURATION):
        raise ModelFileError(f"{scheme}:{text}: {file} is no .gguf file; name one, or leave it out")
    return Location(scheme, repository, file)


def only_model(location: Location, files: Sequence[str]) -> str:
    """The repository's only model; of a split one its first part.

    Raises ModelFileError that says what is there when it holds none, or several.
    """
    models = models_in(files)
    if len(models) == 1:
        return models[0]
    if models:
        raise ModelFileError(
            f"{location} holds {len(models)} models: name one as {location}:FILE; there are {_listed(models)}"
        )
    held = f"it holds {_listed(files)}" if files else "it is empty"
    raise ModelFileError(f"{location} holds no .gguf model: {held}")


def no_such_file(location: Location, files: Sequence[str]) -> ModelFileError:
    """The error of a file that the repository lacks, with what it has."""
    models = models_in(files)
    held = f"it holds {_listed(models)}" if models else "it holds no .gguf model"
    return ModelFileError(f"{location}: the repository has no file {location.file}; {held}")


def models_in(files: Sequence[str]) -> list[str]:
    """The models among a repository's files, sorted; the first part of a split one stands for all."""
    found = []
    for file in sorted(files):
        name = file.rpartition("/")[2]
        part = PART.fullmatch(name)
        if (
            name.endswith(".gguf")
            and not name.startswith(_NO_MODELS)
            and (not part or int(part["number"]) == 1)
        ):
            found.append(file)
    return found


def parts_in(location: Location) -> list[str]:
    """All parts of the model that `location.file` is a part of, in order; itself where it isn't split."""
    match = PART.fullmatch(location.file)
    if match is None:
        return [location.file]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count <= MOST_PARTS:
        raise ModelFileError(
            f"{location} is named part {int(match['number'])} of {count}; allowed: 1 to {MOST_PARTS} parts"
        )
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def folder_in(files: Sequence[str]) -> list[str]:
    """The files of the Hugging Face folder that a repository is; none where it is none."""
    found = sorted(file for file in files if belongs(file, "huggingface"))
    has_weights = any(file.endswith(".safetensors") for file in found)
    return found if has_weights and CONFIGURATION in found else []


def check_folder(location: Location, files: Sequence[str]) -> None:
    """Raises ModelFileError where a repository is no Hugging Face folder, or one with too many files."""
    found = folder_in(files)
    if not found:
        raise ModelFileError(
            f"{location} is not in a folder with safetensors: the repository holds {_listed(files)}"
        )
    if len(found) > MOST_FILES:
        raise ModelFileError(
            f"{location} is a folder of {len(found)} files of a model; allowed: {MOST_FILES}"
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
