"""The content-addressed cache of made variants: each step is made once, whole, in a child process."""

from __future__ import annotations

import hashlib
import json
import os
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from filelock import Timeout

from profiles.vocabulary import ModelInfo
from tuner import process
from tuner.engines.base import Engine, Recipe
from tuner.errors import ModelFileError
from tuner.events import Event, Observer, ignore
from tuner.models.contents import Variant as Variant
from tuner.models.contents import describe, given
from tuner.models.gguf import read_header
from tuner.models.shelf import Shelf, erase
from tuner.models.source import Source

DEFAULT_CAP_BYTES = 64 << 30
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
"""What keeps libraries that makers import from asking the network."""


class VariantCache:
    """Made variants and the steps to them in one folder, above `cap_bytes` the least recently used dropped.

    What this cache handed out stays until `close`, in every process. What could not be made is not tried
    again by the same cache.
    """

    def __init__(self, directory: Path, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._shelf = Shelf(directory, cap_bytes)
        self._failures: dict[Path, str] = {}

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
        """The variant that `recipe` makes of the source, with all steps to it that nobody has made before.

        The source itself is never copied. Raises ModelFileError when it can't be made within `deadline_s`
        seconds, with the maker's last line; when the maker lacks a package; when the disk or the cap has no
        room; when the source is broken.
        """
        if recipe.is_source:
            return given(source, model)
        making = _Making(self._shelf, self._failures, engine, source, model, build, deadline_s, on_event)
        try:
            return describe(recipe.label, making.ensure(recipe), model, recipe.format)
        except Timeout:
            raise ModelFileError(
                f"another process has been making {recipe.label} of {model.name} for over {deadline_s:g} s"
            ) from None
        except OSError as error:
            raise ModelFileError(
                f"cannot use the cache of variants {self._shelf.directory}: {error}"
            ) from error

    def path(self, engine: Engine, model: ModelInfo, recipe: Recipe, build: str) -> Path:
        """Where a made variant is, or would be."""
        return self._shelf.path(key(engine, model, recipe, build), recipe.format)

    def lacking(self, engine: Engine, model: ModelInfo, recipe: Recipe, build: str) -> str | None:
        """Why a variant that is not made yet can't be made: the packages that it takes; None when it can."""
        for step in reversed(recipe.chain):
            if self.path(engine, model, step, build).exists():
                return None
            missing = [name for name in step.needs if not _is_installed(name)]
            if missing:
                return _needs(recipe.label, missing)
        return None

    def drop(self, path: Path) -> bool:
        """Delete a made variant; False where there is none, or where a process holds it."""
        return path.exists() and self._shelf.drop(path)

    def close(self) -> None:
        """Let the handed-out variants go; they may then be dropped to make room."""
        self._shelf.close()


class _Making:
    """One variant on its way, step by step, under one deadline."""

    def __init__(
        self,
        shelf: Shelf,
        failures: dict[Path, str],
        engine: Engine,
        source: Source,
        model: ModelInfo,
        build: str,
        deadline_s: float,
        on_event: Observer,
    ) -> None:
        self._shelf, self._failures, self._observe = shelf, failures, on_event
        self._engine, self._source, self._model, self._build = engine, source, model, build
        self._deadline_s, self._ends_at = deadline_s, time.monotonic() + deadline_s

    def ensure(self, step: Recipe) -> Path:
        """The result of a step, held; what it is made from is asked for only where it must be made."""
        name = key(self._engine, self._model, step, self._build)
        path = self._shelf.path(name, step.format)
        with self._shelf.turn(name, self._left_s()):
            if not self._shelf.hold(path):
                if path in self._failures:
                    raise ModelFileError(self._failures[path])
                before = step.made_from
                origin = self._source.path if before is None or before.is_source else self.ensure(before)
                self._shelf.sweep(name)
                self._shelf.make_room(step.label, step.estimated_bytes)
                self._make(step, origin, path)
                self._shelf.hold(path)
        return path

    def _make(self, step: Recipe, origin: Path, path: Path) -> None:
        missing = [name for name in step.needs if not _is_installed(name)]
        if missing:
            raise ModelFileError(_needs(f"{step.label} of {self._model.name}", missing))
        began = time.monotonic()
        if step.maker is not None:
            self._observe(Event("note", f"making {step.label} of {self._model.name}"))
        partial = self._shelf.partial(path)
        try:
            reason = self._run(step, origin, partial) or self._unsound(step, partial)
            if reason is not None:
                # A step with a maker of its own is shared among engines.
                maker = "cputune" if step.maker else self._engine.name
                failure = f"{maker} cannot make {step.label} of {self._source.name}: {reason}"
                self._failures[path] = failure
                raise ModelFileError(failure)
            self._shelf.publish(partial, path)
        finally:
            erase(partial)
        took_s = time.monotonic() - began
        self._observe(Event("note", f"made {step.label} of {self._model.name} in {took_s:.1f} s"))

    def _run(self, step: Recipe, origin: Path, partial: Path) -> str | None:
        """Run the maker; its reason where it wrote nothing."""
        parameters = json.dumps(dict(step.parameters))
        maker = step.maker or self._engine.maker()
        ending = process.run(
            process.python_argv(maker, str(origin), str(partial), parameters),
            deadline_s=self._left_s(),
            environment=process.python_environment({**os.environ, **OFFLINE}),
        )
        if ending.timed_out:
            return f"not done after {self._deadline_s:.0f} s; cputune models prepare makes it before a search"
        if ending.returncode:
            lines = ending.log_tail.splitlines() if ending.returncode > 0 else []
            return lines[-1] if lines else process.describe_exit(ending.returncode)[1]
        return None if partial.exists() else "the maker wrote no file"

    def _unsound(self, step: Recipe, partial: Path) -> str | None:
        """What is wrong with a result: a maker that ended well may still have written half."""
        try:
            if step.format == "gguf":
                read_header(partial)
            describe(step.label, partial, self._model, step.format)
        except ModelFileError as error:
            return str(error)
        return None

    def _left_s(self) -> float:
        return max(self._ends_at - time.monotonic(), 0.0)


def key(engine: Engine, model: ModelInfo, recipe: Recipe, build: str) -> str:
    """The name of a result: equal for equal steps from equal weights.

    An engine's own maker counts with its build, another one by its module alone.
    """
    before = recipe.made_from
    origin = model.digest if before is None or before.is_source else key(engine, model, before, build)
    maker, made_by = (recipe.maker, "") if recipe.maker else (engine.name, build)
    text = json.dumps([origin, maker, sorted(recipe.parameters), made_by])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _needs(what: str, missing: list[str]) -> str:
    return f"{what} can't be made: {', '.join(missing)} not installed: pip install {' '.join(missing)}"
