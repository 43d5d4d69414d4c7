"""Models in the data folder: pulled in, and removed with what was made of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from profiles.records import ModelRecord, StudyStatus
from profiles.store import Store
from profiles.vocabulary import ModelInfo
from tuner import engines
from tuner.engines.base import Recipe
from tuner.errors import BusyError, ModelFileError
from tuner.home import Home
from tuner.measurement.availability import availabilities
from tuner.models.shelf import size_of
from tuner.models.source import Source, model_info, resolve
from tuner.models.variants import VariantCache
from tuner.setup import add_model

PULLED = "pulled"
SHAPES = "shapes"
_SPARE_BYTES = 64 << 20
"""Left free on the disk beside the copy."""


@dataclass(frozen=True)
class Removed:
    """What removing a model did: the files that are gone, the bytes that gave back, and what stays."""

    name: str
    files: tuple[str, ...]
    freed_bytes: int
    kept_file: str | None
    """The model's own file, where it is not cputune's to delete."""
    in_use: int
    """Made variants that another process holds."""
    in_history: bool
    """Whether studies and profiles of it stay."""


def pull(store: Store, home: Home, source: str, name: str | None) -> tuple[Source, ModelInfo]:
    """Bring a model's files into the data folder and register it from there.

    Nothing is registered before the copy is whole and has the original's digest. A `shape:` is made there
    anyway. Raises ModelFileError for a source that can't be used and for a disk without room, UsageError for
    weights that are registered under another name.
    """
    found = resolve(source, cache=home.models, refresh=True)
    model = model_info(found, cache=home.models)
    if _is_inside(found.path, home.models):
        return add_model(store, home, source, name, refresh=True)
    folder = home.models / PULLED / model.digest[:16]
    if not folder.exists():
        _copy(found, folder)
    # The same weights may have come before, in files of other names.
    pulled = folder if found.path.is_dir() else min(folder.iterdir())
    is_known = any(record.info.digest == model.digest for record in store.models())
    return add_model(store, home, str(pulled), name if is_known else name or found.name, refresh=True)


def remove(store: Store, home: Home, wanted: str) -> Removed:
    """Forget a registered model: its variants, and its own file where cputune brought or made it.

    A user's own file, an installed package's and a hub's cache, which other programs share, are never
    touched. Studies and profiles stay in the history. Raises NotFoundError for an unknown model, BusyError
    while a search of it runs, ModelFileError where a file can't be deleted.
    """
    record = store.model(wanted)
    running = [
        study.id
        for study in store.studies(model_digest=record.info.digest)
        if study.status is StudyStatus.RUNNING
    ]
    if running:
        raise BusyError(f"{record.name} is in use by the search {running[0]}: remove it when that has ended")
    made = _made(store, home, record)
    cache = VariantCache(home.variants)
    try:
        sizes = {path: size_of(path) for path in made}
        dropped = [path for path in made if cache.drop(path)]
        own = _own_files(record, home)
        sizes |= {path: path.stat().st_size for path in own}
        for path in own:
            path.unlink()
            if path.parent.parent == home.models / PULLED and not any(path.parent.iterdir()):
                path.parent.rmdir()
    except OSError as error:
        raise ModelFileError(f"{error.filename} can't be deleted: {error.strerror}") from None
    gone = [*dropped, *own]
    return Removed(
        name=record.name,
        files=tuple(map(str, gone)),
        freed_bytes=sum(sizes[path] for path in gone),
        kept_file=None if own else record.source,
        in_use=len(made) - len(dropped),
        in_history=store.forget_model(record.info.digest),
    )


def _copy(found: Source, folder: Path) -> None:
    """All parts under their own names; the folder has its name only when they are whole."""
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
        if free < found.file_bytes + _SPARE_BYTES:
            raise ModelFileError(
                f"no room for {found.name} of {found.file_bytes >> 20} MiB: the disk of {folder.parent} has"
                f" {free >> 20} MiB free"
            )
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
        for path in found.paths:
            _bring(path, partial / path.name, is_ours=found.spec.startswith(("hf:", "ms:")))
        partial.chmod(0o755)
        try:
            os.replace(partial, folder)
        except OSError:
            # Another process may just have brought the same.
            if not folder.is_dir():
                raise
    except OSError as error:
        raise ModelFileError(f"{found.name} can't be copied to {folder}: {error.strerror}") from None
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial)


def _bring(path: Path, target: Path, *, is_ours: bool) -> None:
    """A copy; of a download a second name for the same bytes where the disk allows it: a hub's cache never
    writes into a file, a user may."""
    if is_ours:
        try:
            os.link(path.resolve(), target)
        except OSError:
            pass
        else:
            return
    shutil.copyfile(path, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _own_files(record: ModelRecord, home: Home) -> list[Path]:
    """The model's files that cputune pulled or generated; none where they are somebody else's."""
    kind, _, rest = record.source.partition(":")
    if kind == "shape":
        path = home.models / SHAPES / f"{rest}.gguf"
        return [path] if path.is_file() else []
    path = Path(record.source)
    folder = path if path.is_dir() else path.parent
    if not path.is_absolute() or folder.parent != home.models / PULLED:
        return []
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _made(store: Store, home: Home, record: ModelRecord) -> list[Path]:
    """The variants in the cache that were made of it and the steps to them, by any build that the history or
    this machine knows."""
    cache = VariantCache(home.variants)
    found: set[Path] = set()
    builds: dict[str, set[str]] = {}
    for study in store.studies(model_digest=record.info.digest):
        for name, build in study.engine_builds.items():
            builds.setdefault(name, set()).add(build)
    every = {name: engines.get(name) for name in engines.references()} if home.variants.is_dir() else {}
    readers = {name: engine for name, engine in every.items() if record.info.format in engine.formats}
    for (name, engine), present in zip(readers.items(), availabilities(tuple(readers.values())), strict=True):
        if present.available:
            builds.setdefault(name, set()).add(present.identity)
        recipes: tuple[Recipe, ...] = (*engine.recipes(record.info), engine.reference(record.info))
        steps = dict.fromkeys(step for recipe in recipes for step in recipe.chain)
        for step in steps:
            for build in sorted(builds.get(name, ())):
                found.add(cache.path(engine, record.info, step, build))
    return sorted(path for path in found if path.exists())


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
