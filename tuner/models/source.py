"""Finds a model that a user names, and knows its content's digest."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.vocabulary import ModelInfo
from tuner.engines.base import FOLDERS
from tuner.errors import ModelFileError
from tuner.models import folders, huggingface, onnx_folder, openvino_folder
from tuner.models.inspect import inspect
from tuner.models.package import DEMO as DEMO
from tuner.models.repository import CONFIGURATION, PART, Location

_INDEX_NAME = "digests.json"
_INSPECTORS = {
    "huggingface": huggingface.inspect_folder,
    "onnx": onnx_folder.inspect_folder,
    "openvino": openvino_folder.inspect_folder,
}


@dataclass(frozen=True)
class Source:
    """A model on this machine: `paths` are its parts in order, or the files of its folder.

    `sha256` is what each part must have, where the source says so.
    """

    spec: str
    name: str
    paths: tuple[Path, ...]
    file_bytes: int
    weights_are_random: bool = False
    sha256: tuple[str | None, ...] = ()
    format: str = "gguf"

    @property
    def path(self) -> Path:
        """What an engine opens: the folder, or the first part of a file, which stands for all."""
        return self.paths[0].parent if self.format in FOLDERS else self.paths[0]


def resolve(spec: str, *, cache: Path | None = None, refresh: bool = False) -> Source:
    """The model that `spec` names.

    A path to a .gguf file or to any part of a split one; a folder of Hugging Face (safetensors), ONNX Runtime
    GenAI or OpenVINO, or a file in it; `package:MODULE[/FILE]`, in an installed package or
    put together by it under `cache`; `shape:NAME`, made with random weights under `cache`;
    `hf:OWNER/REPO[:FILE]` and `ms:OWNER/REPO[:FILE]`, downloaded when they aren't in their hub's cache, with
    `refresh` also when the hub has a newer one; `hf:` also a repository that is a folder with safetensors,
    whose file is then config.json. Raises ModelFileError that says what is missing and what to do.
    """
    kind, colon, rest = spec.partition(":")
    if colon and kind == "package":
        from tuner.models.package import package_file

        return _from_files(spec, package_file(rest, _cache_folder(cache)))
    if colon and kind == "shape":
        from tuner.models.shapes import shape_file

        return _from_files(spec, shape_file(rest, _cache_folder(cache)), random_weights=True)
    if colon and kind == "hf":
        from tuner.models.hub import hub_model, known_sha256

        found = _from_hub(*hub_model(rest, refresh=refresh))
        return replace(found, sha256=tuple(map(known_sha256, found.paths)))
    if colon and kind == "ms":
        from tuner.models.modelscope import modelscope_model

        return _from_hub(*modelscope_model(rest, refresh=refresh))
    path = Path(os.path.expanduser(spec))
    folder = folders.folder_named(path)
    if folder is not None:
        return _from_folder(folder.absolute(), folders.format_of(folder) or "")
    if os.path.isdir(path):
        raise ModelFileError(
            f"{path} holds no model: allowed are a folder with {' or '.join(folders.MARKS.values())}, and a"
            " .gguf file by its own name"
        )
    return _from_files(spec, path)


def parts_of(path: Path) -> tuple[Path, ...]:
    """All parts of the model that `path` is a part of, in order; itself where it isn't split.

    Raises ModelFileError that names the parts which are missing.
    """
    match = PART.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count:
        raise ModelFileError(f"{path} is named part {int(match['number'])} of {count}")
    try:
        siblings = {entry.name for entry in path.parent.iterdir()}
    except OSError as error:
        raise ModelFileError(f"{path.parent} cannot be read: {error.strerror}") from None
    names = [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    missing = [name for name in names if name not in siblings]
    if missing:
        listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ModelFileError(f"{path.parent} lacks {len(missing)} of the model's {count} parts: {listed}")
    return tuple(path.with_name(name) for name in names)


def digest(source: Source, *, cache: Path | None = None) -> str:
    """The SHA-256 of the model's content, hex; remembered in `cache` while its files stay the same.

    Raises ModelFileError for a part that is not what its hub has.
    """
    folder = _cache_folder(cache)
    index_path = folder / _INDEX_NAME
    key = json.dumps([_identity(path) for path in source.paths])
    index = _read_index(index_path)
    if key not in index:
        digests = [_file_digest(path) for path in source.paths]
        for path, found, expected in zip(source.paths, digests, source.sha256, strict=False):
            if expected not in (found, None):
                raise ModelFileError(
                    f"{source.spec} was not downloaded whole: the SHA-256 of {path.resolve()} is"
                    f" {found[:12]}, on the hub {expected[:12]}; delete that file and add the model again"
                )
        whole = _combined(source, digests)
        # Read again: another process may have added its own meanwhile.
        index = {**_read_index(index_path), key: whole}
        _write_index(index_path, index)
    return index[key]


def model_info(source: Source, *, cache: Path | None = None) -> ModelInfo:
    """What the model's header or folder says, with the digest of its content; that is checked first."""
    if source.format in FOLDERS:
        info = _INSPECTORS[source.format](source.path, name=source.name)
    else:
        info = inspect(source.paths, name=source.name, random_weights=source.weights_are_random)
    return replace(info, digest=digest(source, cache=cache))


def _from_files(spec: str, path: Path, *, random_weights: bool = False) -> Source:
    paths = parts_of(path)
    try:
        size = sum(part.stat().st_size for part in paths)
    except OSError as error:
        what = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        )
        raise ModelFileError(f"{path} {what}") from None
    match = PART.fullmatch(paths[0].name)
    name = match["stem"] if match else paths[0].name.removesuffix(".gguf")
    return Source(spec, name, tuple(part.absolute() for part in paths), size, random_weights)


def _from_folder(folder: Path, kind: str) -> Source:
    paths = folders.files_of(folder, kind)
    size = sum(path.stat().st_size for path in paths)
    return Source(str(folder), folder.name, paths, size, format=kind)


def _from_hub(location: Location, paths: Sequence[Path]) -> Source:
    """By the completed location, which names the same file when a repository has grown."""
    if location.file == CONFIGURATION:
        # Its own folder is named by a commit, and may hold the mark of another format too.
        found = _from_folder(paths[0].parent, "huggingface")
        return replace(found, spec=str(location), name=location.repository.rpartition("/")[2])
    return _from_files(str(location), paths[0])


def _combined(source: Source, digests: Sequence[str]) -> str:
    """Of one part its own; of a folder's files also by their names."""
    if source.format in FOLDERS:
        text = "".join(f"{path.name}\0{one}\n" for path, one in zip(source.paths, digests, strict=True))
    elif len(digests) == 1:
        return digests[0]
    else:
        text = "".join(digests)
    return hashlib.sha256(text.encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(path: Path) -> tuple[str, int, int, int]:
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino


def _cache_folder(cache: Path | None) -> Path:
    if cache is not None:
        return cache
    from tuner.home import Home

    return Home.find().root


def _read_index(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write_index(path: Path, index: Mapping[str, str]) -> None:
    """Replace the index whole; without a writable cache the digest is computed each time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_INDEX_NAME)
        with os.fdopen(handle, "w") as file:
            json.dump(index, file)
        os.replace(name, path)
    except OSError:
        pass
