"""Reads what users give in YAML or JSON: a workload, a space, a configuration, a machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from probes.machine import Machine, probe
from profiles.bundle import is_bundle
from profiles.documents import loads, read_machine, read_profile
from profiles.errors import DocumentError
from profiles.records import Profile
from profiles.vocabulary import WORKLOADS, Setting, Workload
from tuner.errors import UsageError
from tuner.request import LENGTHS, length, lengths_name, near, objective_metric, workload_named

LARGEST_BYTES = 1 << 20
WORKLOAD_KEYS = (*LENGTHS, "objective", "name")
SIDE_KEYS = ("engine", "variant", "settings")


@dataclass(frozen=True)
class Written:
    """A configuration as a user wrote it; None is the default's."""

    origin: str
    engine: str | None
    variant: str | None
    settings: Mapping[str, Setting]


def looks_like_file(text: str) -> bool:
    """Whether an argument means a file rather than a name."""
    return text.endswith((".yaml", ".yml", ".json")) or "/" in text


def workload_given(text: str) -> Workload:
    """A built-in workload by its name, or the one of a file.

    Raises UsageError for an unknown name, and naming key and allowed range for what is wrong in a file.
    """
    if text in WORKLOADS or not looks_like_file(text):
        return workload_named(text)
    document = _mapping(text, "workload", WORKLOAD_KEYS)
    missing = [key for key in ("prompt_tokens", "output_tokens") if key not in document]
    if missing:
        raise UsageError(f"{text}: {missing[0]} is missing: a workload needs prompt_tokens and output_tokens")
    found = {key: length(key, document[key], f"{text}: {key}") for key in LENGTHS if key in document}
    objective = document.get("objective", "response_ms")
    if not isinstance(objective, str):
        raise UsageError(f"{text}: objective={objective}: allowed is the name of a metric")
    name = document.get("name", Path(text).stem)
    if not isinstance(name, str) or not name.strip() or not name.strip().isprintable():
        raise UsageError(f"{text}: name={name!r}: allowed is a printable text of one line")
    workload = Workload(name=name.strip(), objective=objective_metric(objective), **found)
    return workload if workload.name not in WORKLOADS else _renamed(workload)


def _renamed(workload: Workload) -> Workload:
    """Not under the name of a built-in one, unless it is that one."""
    same = workload == WORKLOADS[workload.name]
    return workload if same else replace(workload, name=lengths_name(workload))


def space_given(path: str) -> dict[str, tuple[Setting, ...]]:
    """The values to search by setting, as written: a value alone stands for a list of one.

    Raises UsageError where the file holds anything else.
    """
    document = _mapping(path, "space", None)
    found: dict[str, tuple[Setting, ...]] = {}
    for name, written in document.items():
        values: list[object] = written if isinstance(written, list) else [written]
        found[name] = tuple(value for value in values if isinstance(value, bool | int | float | str))
        if not values or len(found[name]) < len(values):
            raise UsageError(f"{path}: {name}={written}: allowed is a value or a list of values")
    return found


def side_given(path: str) -> Profile | Written:
    """The profile of a document, or the configuration of a short one with engine, variant, settings.

    Raises UsageError where the file holds neither.
    """
    document = _mapping(path, "configuration", None)
    if "kind" in document or "schema_version" in document:
        try:
            return read_profile(document, path)
        except DocumentError as error:
            raise UsageError(str(error)) from None
    _check_keys(path, document, SIDE_KEYS)
    settings = document.get("settings") or {}
    if not isinstance(settings, Mapping):
        raise UsageError(f"{path}: settings={settings}: allowed is a mapping of names to values")
    for name, value in settings.items():
        if not isinstance(value, bool | int | float | str):
            raise UsageError(f"{path}: settings.{name}={value}: allowed is one value")
    return Written(path, _name(path, document, "engine"), _name(path, document, "variant"), settings)


def machine_given(path: str) -> Machine:
    """The machine of a `cputune probe --json` document, or of a folder with a recorded /proc and /sys.

    Raises UsageError for a file that holds none, naming the key that is wrong.
    """
    folder = Path(os.path.expanduser(path))
    if folder.is_dir():
        if not any((folder / name).is_dir() for name in ("proc", "sys")):
            raise UsageError(f"{path} holds no machine: allowed is a folder with a recorded proc and sys")
        return probe(folder)
    try:
        return read_machine(_mapping(path, "machine", None), path)
    except DocumentError as error:
        raise UsageError(f"{error}; write it with `cputune probe --json` on that machine") from None


def _name(path: str, document: Mapping[str, object], key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{path}: {key}={value}: allowed is a name")
    return value


def _mapping(path: str, what: str, keys: tuple[str, ...] | None) -> dict[str, object]:
    file = Path(os.path.expanduser(path))
    try:
        # Read up to the bound: the size of a device or a pipe is not known before.
        with file.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise UsageError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB: it is no {what}")
        text = content.decode()
    except OSError as error:
        raise UsageError(f"can't read the {what} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"can't read the {what} {path}: it is not UTF-8 text") from None
    if is_bundle(text.partition("\n")[0]):
        raise UsageError(f"{path} holds no {what}: cputune db export wrote it, cputune db import reads it")
    try:
        document = loads(text, path)
    except DocumentError as error:
        raise UsageError(str(error)) from None
    if not isinstance(document, dict) or not document:
        raise UsageError(f"{path} holds no {what}: a mapping is expected")
    document = {str(key): value for key, value in document.items()}
    if keys is not None:
        _check_keys(path, document, keys)
    return document


def _check_keys(path: str, document: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for key in document:
        if key not in keys:
            raise UsageError(f"{path}: unknown key '{key}': allowed are {', '.join(keys)}{near(key, keys)}")
