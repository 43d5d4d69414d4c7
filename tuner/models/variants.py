"""The content-addressed cache of made variants: each is made once, whole, in a child process."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from profiles.vocabulary import ModelInfo
from tuner import process
from tuner.engines.base import Engine, Recipe
from tuner.errors import ModelFileError
from tuner.events import Event, Observer, ignore
from tuner.models.gguf import read_header
from tuner.models.inspect import inspect, type_map
from tuner.models.source import Source

DEFAULT_CAP_BYTES = 64 << 30
_SPARE_BYTES = 64 << 20
"""Left free on the disk beside the new file."""

GGUF = "gguf"
_PARTIAL = ".partial"


@dataclass(frozen=True)
class Variant:
    """A file that an engine opens; equal `digest` means equal weights in equal types, however made.

    `tensor_mix` maps a tensor type to its bytes, sorted by type.
    """

    label: str
    path: Path
    digest: str
    tensor_mix: tuple[tuple[str, int], ...]
    bits_per_weight: float
    file_bytes: int


class VariantCache:
    """Made variants in one folder, the least recently used ones dropped above `cap_bytes`.

    What this cache handed out stays until `close`, in every process: each file is held by a shared lock.
    """

    def __init__(self, directory: Path, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._directory = directory
        self._cap_bytes = cap_bytes
        self._held: dict[Path, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def ensure(
        self,
        engine: Engine,
        source: Source,
        model: ModelInfo,
        recipe: Recipe,
        *,
        build: str,
        deadline_s: float,
        on_event: Observer = ignore,
    ) -> Variant:
        """The variant that `recipe` makes of the source, made now if no process has made it before.

        The source itself is never copied. Raises ModelFileError when it can't be made within `deadline_s`
        seconds, with the maker's last line; when the disk or the cap has no room; when the source is broken.
        """
        if recipe.is_source:
            return _describe(recipe.label, source.paths, model, model.format)
        path = self.path(engine, model, recipe, build)
        key = path.stem
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with FileLock(self._directory / f"{key}.lock", timeout=deadline_s):
                if not self._hold(path):
                    self._sweep(key)
                    self._make_room(recipe)
                    began = time.monotonic()
                    self._make(engine, source, recipe, path, deadline_s)
                    took_s = time.monotonic() - began
                    on_event(Event("note", f"made {recipe.label} of {model.name} in {took_s:.1f} s"))
                    self._hold(path)
                os.utime(path)
        except Timeout:
            raise ModelFileError(
                f"another process has been making {recipe.label} of {model.name} for over {deadline_s:g} s"
            ) from None
        except OSError as error:
            raise ModelFileError(f"cannot use the cache of variants {self._directory}: {error}") from error
        return _describe(recipe.label, (path,), model, recipe.format)

    def path(self, engine: Engine, model: ModelInfo, recipe: Recipe, build: str) -> Path:
        """Where a made variant is, or would be."""
        return self._directory / f"{_key(engine, model, recipe, build)}.gguf"

    def drop(self, path: Path) -> bool:
        """Delete a made variant; False where there is none, or where a process holds it."""
        return path.exists() and _drop(path)

    def close(self) -> None:
        """Let the handed-out files go; they may then be dropped to make room."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _make(self, engine: Engine, source: Source, recipe: Recipe, path: Path, deadline_s: float) -> None:
        partial = path.with_name(f"{path.stem}.{os.getpid()}{_PARTIAL}")
        parameters = json.dumps(dict(recipe.parameters))
        try:
            ending = process.run(
                process.python_argv(engine.maker(), str(source.path), str(partial), parameters),
                deadline_s=deadline_s,
            )
            if ending.timed_out:
                reason = f"not done after {deadline_s:g} s"
            elif ending.returncode:
                lines = ending.log_tail.splitlines() if ending.returncode > 0 else []
                reason = lines[-1] if lines else process.describe_exit(ending.returncode)[1]
            elif not partial.exists():
                reason = "the maker wrote no file"
            else:
                # A maker that ended well may still have written half: nothing broken gets the final name.
                if recipe.format == GGUF:
                    read_header(partial)
                _publish(partial, path)
                return
            raise ModelFileError(f"{engine.name} cannot make {recipe.label} of {source.name}: {reason}")
        finally:
            partial.unlink(missing_ok=True)

    def _hold(self, path: Path) -> bool:
        """Keep others from dropping the file; False where there is none."""
        if path in self._held:
            return True
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        fcntl.flock(handle, fcntl.LOCK_SH)
        # It may have been dropped between opening and locking.
        if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
            os.close(handle)
            return False
        self._held[path] = handle
        return True

    def _sweep(self, own_key: str) -> None:
        """Remove what killed makers left: a partial file whose key nobody has locked."""
        for partial in self._directory.glob(f"*{_PARTIAL}"):
            key = partial.name.partition(".")[0]
            if key == own_key:
                partial.unlink(missing_ok=True)
                continue
            try:
                with FileLock(self._directory / f"{key}.lock", timeout=0):
                    partial.unlink(missing_ok=True)
            except Timeout:
                pass

    def _make_room(self, recipe: Recipe) -> None:
        files = [(path, path.stat()) for path in self._directory.glob("*.gguf")]
        total = sum(stat.st_size for _path, stat in files)
        for path, stat in sorted(files, key=lambda pair: pair[1].st_mtime_ns):
            if total + recipe.estimated_bytes <= self._cap_bytes and self._disk_has_room(recipe):
                return
            if _drop(path):
                total -= stat.st_size
        if total + recipe.estimated_bytes > self._cap_bytes:
            raise ModelFileError(
                f"no room for {recipe.label} of {_mib(recipe.estimated_bytes)} in {self._directory}:"
                f" {_mib(total)} of {_mib(self._cap_bytes)} are in use"
            )
        if not self._disk_has_room(recipe):
            free = shutil.disk_usage(self._directory).free
            raise ModelFileError(
                f"no room for {recipe.label} of {_mib(recipe.estimated_bytes)}: the disk of"
                f" {self._directory} has {_mib(free)} free"
            )

    def _disk_has_room(self, recipe: Recipe) -> bool:
        return shutil.disk_usage(self._directory).free >= recipe.estimated_bytes + _SPARE_BYTES


def _describe(label: str, parts: Sequence[Path], model: ModelInfo, kind: str) -> Variant:
    """What is in a variant; a file of another format than GGUF is known by its content alone."""
    if kind != GGUF:
        content = b"".join(part.read_bytes() for part in parts)
        bits = 8 * len(content) / max(model.parameter_count, 1)
        digest = hashlib.sha256(content).hexdigest()
        return Variant(label, parts[0], digest, ((label, len(content)),), bits, len(content))
    info = inspect(parts, name=model.name)
    types = json.dumps([model.digest, type_map(parts)])
    return Variant(
        label=label,
        path=parts[0],
        digest=hashlib.sha256(types.encode()).hexdigest(),
        tensor_mix=info.tensor_mix,
        bits_per_weight=info.bits_per_weight,
        file_bytes=info.file_bytes,
    )


def _key(engine: Engine, model: ModelInfo, recipe: Recipe, build: str) -> str:
    text = json.dumps([model.digest, engine.name, sorted(recipe.parameters), build])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _publish(partial: Path, path: Path) -> None:
    """Give a finished file its name, after its bytes are on the disk."""
    for target in (partial, partial.parent):
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if target is partial:
            os.replace(partial, path)


def _drop(path: Path) -> bool:
    """Delete a variant that nobody holds."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
