"""An ONNX GenAI folder, opened with explicit session options that are read back from the runtime's log."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnxruntime_genai as og

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.choosing import Logits
from tuner.engines.onnxruntime.variants import ALL_POSITIONS
from tuner.engines.onnxruntime.vocabulary import Vocabulary

CONFIGURATION = "genai_config.json"
GRAPH_LEVELS = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
                "all": "ORT_ENABLE_ALL"}  # fmt: skip
_ALLOWED, _DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
SPINNING: Mapping[str, Mapping[str, str]] = {
    "off": {_ALLOWED: "0"},
    # Long enough for the gap between two operators, short enough to sleep between two requests.
    "short": {_ALLOWED: "1", _DURATION: "200"},
    "on": {_ALLOWED: "1"},
}

_LOGGED_LEVELS = {"0": "disabled", "1": "basic", "2": "extended", "3": "layout", "4": "all", "99": "all"}
_INFO, _VERBOSE = "[I:", "[V:"
_LEVEL = re.compile(r"graph_optimization_level:\s*(\d+)")
_THREADS = re.compile(r"intra_op_param:\s*OrtThreadPoolParams \{ thread_pool_size: (\d+)")
_ENTRY = re.compile(r"(\S+): (\S+)")
_ENTRIES = re.compile(r"config_options: \{([^}]*)\}")


class OpenedModel:
    """A model, its tokenizer, and what the runtime says of the session that runs it."""

    def __init__(self, folder: Path, settings: Mapping[str, Setting], *, all_positions: bool = False) -> None:
        """Open the decoder with `intra_op_num_threads`, `graph_optimization_level` and `spinning`.

        With `all_positions` it is the graph with logits for every token, where the folder has one.
        Raises EngineError with the runtime's own line when it refuses.
        """
        self.folder = folder
        self.configuration = read_configuration(folder)
        options = session_options(settings)
        decoder: dict[str, object] = {"session_options": options}
        if all_positions and (folder / ALL_POSITIONS).exists():
            decoder["filename"] = ALL_POSITIONS
        with _standard_error() as log:
            try:
                configuration = og.Config(str(folder))
                configuration.overlay(json.dumps({"model": {"decoder": decoder}}))
                self.native: Any = og.Model(configuration)
            except RuntimeError as error:
                raise EngineError(f"ONNX Runtime can't open {folder.name}: {_one_line(error)}") from error
            lines = _read(log)
        _say_again(lines)
        check_affinity(lines)
        self.effective = effective_settings(lines)
        self.vocabulary = Vocabulary(folder, self.native, self.configuration)

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return int(self.configuration["vocab_size"])

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        ids = self.configuration.get("eos_token_id", ())
        return frozenset(ids if isinstance(ids, list) else (ids,))

    def cache(self, context_tokens: int) -> GeneratorCache:
        """A new KV cache; EngineError where the model's context is shorter."""
        return GeneratorCache(self.native, context_tokens)


class GeneratorCache:
    """A `tuner.engines.slots.Cache`: one generator, whose KV cache holds `context_tokens`."""

    def __init__(self, model: Any, context_tokens: int) -> None:
        self._model = model
        self._context_tokens = context_tokens
        self._generator = self._begin()

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Append tokens; the logits after the last of them."""
        self._append(tokens)
        row: Logits = self._generator.get_logits().reshape(-1)
        return row

    def feed_all(self, tokens: Sequence[int]) -> Logits:
        """Append tokens; all the logits that the graph gives: after each of them, or after the last only."""
        self._append(tokens)
        rows: Logits = self._generator.get_output("logits")[0].astype(np.float32, copy=False)
        return rows

    def keep(self, tokens: int) -> int:
        """Forget all but the first tokens; all of them where the cache holds a window only."""
        try:
            self._generator.rewind_to(tokens)
        except RuntimeError:
            self._generator = self._begin()
            return 0
        return tokens

    def _begin(self) -> Any:
        try:
            parameters = og.GeneratorParams(self._model)
            parameters.set_search_options(max_length=self._context_tokens)
            return og.Generator(self._model, parameters)
        except RuntimeError as error:
            raise EngineError(_one_line(error)) from error

    def _append(self, tokens: Sequence[int]) -> None:
        try:
            self._generator.append_tokens(np.array(tokens, np.int32))
        except RuntimeError as error:
            raise EngineError(_one_line(error)) from error


def read_configuration(folder: Path) -> dict[str, Any]:
    """The `model` part of genai_config.json; EngineError for a folder without a readable one."""
    path = folder / CONFIGURATION
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{folder} is no ONNX GenAI folder: {CONFIGURATION} can't be read ({_one_line(error)})"
        ) from error
    return dict(found)


def session_options(settings: Mapping[str, Setting]) -> dict[str, object]:
    """The options of the decoder's session, threads always explicit: automatic ones are pinned to CPUs that
    this process may not use. EngineError for values that are not allowed."""
    threads = settings.get("intra_op_num_threads")
    level = str(settings.get("graph_optimization_level", "all"))
    spinning = str(settings.get("spinning", "on"))
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise EngineError(f"intra_op_num_threads={threads}; it must be given, at least 1")
    if level not in GRAPH_LEVELS or spinning not in SPINNING:
        raise EngineError(
            f"graph_optimization_level={level}, spinning={spinning}; allowed:"
            f" {', '.join(GRAPH_LEVELS)}; {', '.join(SPINNING)}"
        )
    return {
        "intra_op_num_threads": threads,
        "inter_op_num_threads": 1,
        "graph_optimization_level": GRAPH_LEVELS[level],
        # The session says its options at this level, and nothing at all while it runs.
        "log_severity_level": 1,
        **SPINNING[spinning],
    }


def effective_settings(lines: Sequence[str]) -> dict[str, Setting]:
    """The settings as the session logged them when it was made; those that it did not are absent."""
    line = next((line for line in lines if "Session Options {" in line), "")
    found: dict[str, Setting] = {}
    level, threads, entries = (pattern.search(line) for pattern in (_LEVEL, _THREADS, _ENTRIES))
    if level and level[1] in _LOGGED_LEVELS:
        found["graph_optimization_level"] = _LOGGED_LEVELS[level[1]]
    if threads:
        found["intra_op_num_threads"] = int(threads[1])
    if entries:
        # The pool's own parameters are logged before these entries are applied to them.
        held = dict(_ENTRY.findall(entries[1]))
        waiting = {name: held[name] for name in (_ALLOWED, _DURATION) if name in held}
        found.update(("spinning", name) for name, wanted in SPINNING.items() if wanted == waiting)
    return found


def check_affinity(lines: Sequence[str]) -> None:
    """A pool that could not pin its threads runs them anywhere, and is no configuration to measure."""
    refused = next((line for line in lines if "setaffinity" in line and "fail" in line.lower()), None)
    if refused is not None:
        raise EngineError(f"ONNX Runtime could not pin its threads: {_one_line(refused)}")


@contextmanager
def _standard_error() -> Iterator[BinaryIO]:
    """What native code writes to standard error goes to a file meanwhile: the runtime has no other log."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield file
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


def _read(log: BinaryIO) -> list[str]:
    # The descriptor shares its place with standard error: what is read is all that was written.
    log.seek(0)
    return log.read().decode(errors="replace").splitlines()


def _say_again(lines: Sequence[str]) -> None:
    """Warnings and errors belong into the worker's log; what the session only tells does not."""
    told = [line for line in lines if _INFO not in line and _VERBOSE not in line]
    sys.stderr.write("".join(f"{line}\n" for line in told))


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
