"""Thin helpers over the ctypes bindings of llama.cpp: checked structures, captured logs, type names."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as _bindings

from tuner.engines.base import EngineError

low: Any = _bindings
"""The low-level bindings; untyped here because their annotations name types that ctypes never returns."""

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30,
              "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14, "iq4_nl": 20}  # fmt: skip
"""Name -> ggml_type, of the types that a KV cache or a recipe may name."""

FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9,
              "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "bf16": 32}  # fmt: skip
"""Name -> llama_ftype."""

FLASH_ATTENTION = {"off": 0, "on": 1}

NUMA_STRATEGIES = {"off": 0, "distribute": 1, "isolate": 2, "numactl": 3}

_DEBUG, _ERROR, _CONTINUED = 1, 4, 5
_KEPT_LINES = 2000


def ggml_type(name: object) -> int:
    """The ggml id of a type name; EngineError names what is allowed."""
    if name not in GGML_TYPES:
        raise EngineError(f"unknown tensor type {name!r}; allowed: {', '.join(GGML_TYPES)}")
    return GGML_TYPES[str(name)]


def set_fields(struct: Any, **values: object) -> None:
    """Assign fields of a ctypes structure.

    Raises EngineError for a name that the structure lacks: plain assignment would silently do nothing,
    and a build of other vintage may have renamed it.
    """
    known = {field[0] for field in struct._fields_}
    for name, value in values.items():
        if name not in known:
            raise EngineError(f"this build's {type(struct).__name__} has no field '{name}'")
        setattr(struct, name, value)


class Log:
    """The engine's log of this process, captured line by line above debug level.

    The engine has one log a process, so there is one `Log`: `LOG`.
    """

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.errors: deque[str] = deque(maxlen=50)
        # ctypes keeps no reference to a callback; without this one the engine calls freed memory.
        self._callback = low.llama_log_callback(self._receive)
        self._level = 0

    def capture(self) -> None:
        """Take the log over from whoever had it."""
        low.llama_log_set(self._callback, ctypes.c_void_p(0))

    def clear(self) -> None:
        """Forget what was said so far."""
        self.lines.clear()
        self.errors.clear()

    def find(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of every line that matches, in order."""
        expression = re.compile(pattern)
        return [match.groups() for line in self.lines if (match := expression.search(line))]

    def last_error(self, fallback: str) -> str:
        """The most telling error line: the first that says why, else the last, else `fallback`."""
        telling = [line for line in self.errors if "error loading model" in line]
        line = telling[0] if telling else self.errors[-1] if self.errors else fallback
        return " ".join(line.rpartition("error loading model: ")[2].split())

    def _receive(self, level: int, text: bytes, _user_data: object) -> None:
        if level == _CONTINUED:
            level = self._level
        self._level = level
        if level <= _DEBUG or len(text) < 2:
            return
        line = text.decode(errors="replace").rstrip()
        self.lines.append(line)
        if level == _ERROR:
            self.errors.append(line)


LOG = Log()


@cache
def start() -> None:
    """Capture the log and initialise the engine's backend, once a process."""
    LOG.capture()
    low.llama_backend_init()


def use_numa(strategy: object) -> None:
    """Let the engine place its threads on the NUMA nodes itself: once a process, before anything computes.

    Raises EngineError for an unknown strategy.
    """
    if strategy not in NUMA_STRATEGIES:
        raise EngineError(f"unknown numa={strategy}; allowed: {', '.join(NUMA_STRATEGIES)}")
    if strategy != "off":
        low.llama_numa_init(NUMA_STRATEGIES[str(strategy)])


def is_numa() -> bool | None:
    """Whether the engine knows of several nodes, which it does under a strategy only; None where the build
    does not tell."""
    library = Path(low._lib._name).with_name("libggml-cpu.so")
    return bool(ctypes.CDLL(str(library)).ggml_is_numa()) if library.exists() else None


def version() -> str:
    """The version of llama-cpp-python."""
    return str(llama_cpp.__version__)


@cache
def build() -> str:
    """What identifies this build: version, llama.cpp's own version, a hash over its libraries."""
    return f"llama-cpp-python {version()}, llama.cpp {engine_version()}, libraries {library_hash()}"


def engine_version() -> str:
    """llama.cpp's own version, where the bindings have the call."""
    call: Callable[[], bytes] | None = getattr(low, "llama_version", None)
    return call().decode(errors="replace") if call else "unknown"


@cache
def library_hash() -> str:
    """The first 12 hex digits of a SHA-256 over the libraries that compute."""
    folder = Path(low._lib._name).parent
    digest = hashlib.sha256()
    for path in _unique(sorted(folder.glob("libllama*")) + sorted(folder.glob("libggml*"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def system_info() -> dict[str, bool]:
    """The compile features of the CPU backend, by lower-case name ("avx512_vnni")."""
    text = low.llama_print_system_info().decode(errors="replace")
    return {name.lower(): number != "0" for name, number in re.findall(r"(\w+) = (\d+)", text)}


def _unique(paths: Iterable[Path]) -> list[Path]:
    # libllama.so, .so.0 and .so.0.5.0 are the same library: one of each is hashed.
    return list({path.name.partition(".")[0]: path for path in paths}.values())
