"""Measures the memory's read bandwidth."""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.caches import total_bytes
from probes.errors import ProbeError
from probes.record import Record
from probes.smt import smt_ratio

if TYPE_CHECKING:
    from probes.machine import Machine

__all__ = ["Bandwidth", "buffer_size_bytes", "measure_bandwidth", "measure_reads", "thread_counts"]

L3_MULTIPLE = 8
_SMALLEST_BYTES = 64 << 20
_FILL_S = 1.2
_READ_S = 0.8
_CHUNK_BYTES = 4 << 20
_PAGE_BYTES = 4096
_UNKNOWN_MEMORY_BYTES = 1 << 30
_FORM = 1


@dataclass(frozen=True)
class Bandwidth:
    """Read bandwidth in 10^9 bytes a second by number of threads, over a buffer that no cache holds.

    `smt_ratio` is how much more arithmetic two CPUs of different cores do than one of them: near 2 for real
    cores, near 1.2 for SMT siblings that a VM reports as cores; None when not tested. `is_final` is False
    when time ran out before the buffer was filled, so that a later measurement may do better.
    """

    gbps_by_threads: tuple[tuple[int, float], ...]
    buffer_bytes: int
    smt_ratio: float | None = None
    is_final: bool = True
    notes: tuple[str, ...] = ()

    @property
    def best_gbps(self) -> float | None:
        """The highest figure."""
        return max((gbps for _, gbps in self.gbps_by_threads), default=None)

    def to_json(self) -> dict[str, object]:
        """The figures as the probe's JSON shows them."""
        return {
            "gbps_by_threads": [{"threads": threads, "gbps": gbps} for threads, gbps in self.gbps_by_threads],
            "buffer_bytes": self.buffer_bytes,
            "smt_ratio": self.smt_ratio,
            "is_final": self.is_final,
            "notes": list(self.notes),
        }

    @classmethod
    def from_record(cls, record: Record) -> Bandwidth:
        """The figures of such a JSON object."""
        return cls(
            gbps_by_threads=record.each("gbps_by_threads", _figure_from),
            buffer_bytes=record.integer("buffer_bytes") or 0,
            smt_ratio=record.number("smt_ratio"),
            is_final=record.flag("is_final") is not False,
            notes=record.texts("notes"),
        )


def measure_bandwidth(machine: Machine, cache_dir: Path | None = None) -> Bandwidth:
    """The running machine's read bandwidth for 1 to `machine.effective.cpu_count` threads, in under 3 s.

    `machine` must be this machine, as `probe()` returned it. With `cache_dir` a final result is kept there
    under the machine's fingerprint and returned at once the next time. Raises `ProbeError` without numpy.
    """
    kept = None if cache_dir is None else cache_dir / f"bandwidth-{machine.fingerprint}.json"
    known = None if kept is None else _load(kept)
    if known is not None:
        return known
    size_bytes, notes = buffer_size_bytes(total_bytes(machine.caches, 3), machine.effective.memory_bytes)
    result = _measure(size_bytes, thread_counts(machine.effective.cpu_count))
    ratio = smt_ratio(machine.topology.cores, machine.effective.cpus)
    if ratio is not None and ratio < 1.5 and machine.threads_per_core == 1:
        notes.append(f"two CPUs do only {ratio:.2f} times the work of one: cores may be hidden SMT siblings")
    result = replace(result, smt_ratio=ratio, notes=(*notes, *result.notes))
    if kept is not None and result.is_final:
        _store(kept, result)
    return result


def measure_reads(size_bytes: int, counts: Sequence[int]) -> Bandwidth:
    """Read bandwidth over a buffer of about `size_bytes` for each number of threads, in about 2 s at most.

    For a buffer of a model's size this is how fast its weights can be read once a token, whichever cache
    holds a part of them. Raises `ProbeError` without numpy.
    """
    return _measure(max(_CHUNK_BYTES, size_bytes // _CHUNK_BYTES * _CHUNK_BYTES), tuple(counts))


def buffer_size_bytes(l3_bytes: int, available_bytes: int | None) -> tuple[int, list[str]]:
    """8 times all L3 together but at most a quarter of the available memory, with a note when that binds."""
    wanted = max(_SMALLEST_BYTES, L3_MULTIPLE * l3_bytes)
    quarter = (_UNKNOWN_MEMORY_BYTES if available_bytes is None else available_bytes) // 4
    size = max(_CHUNK_BYTES, min(wanted, quarter))
    notes = []
    if size < wanted:
        notes.append(
            f"bandwidth buffer of {size >> 20} MiB instead of {wanted >> 20}: a quarter of available memory"
        )
    return size // _CHUNK_BYTES * _CHUNK_BYTES, notes


def thread_counts(cpu_count: int) -> tuple[int, ...]:
    """The numbers of threads to measure: all up to 4, then powers of two, always `cpu_count` itself."""
    doubled = (1 << power for power in range(2, 16))
    return tuple(
        sorted({*range(1, min(cpu_count, 4) + 1), *(n for n in doubled if n < cpu_count), cpu_count})
    )


def _measure(size_bytes: int, counts: tuple[int, ...]) -> Bandwidth:
    try:
        import numpy as np
    except ImportError as error:
        raise ProbeError("bandwidth cannot be measured without numpy", hint="pip install numpy") from error
    memory = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages only takes longer to fill.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    words: Any = np.frombuffer(memory, dtype=np.int64)
    chunk = _CHUNK_BYTES // words.itemsize
    chunks = [words[start : start + chunk] for start in range(0, len(words), chunk)]
    filled = _fill(chunks, max(counts))
    figures = []
    for count in counts:
        per_s = _read(filled, count, _READ_S / len(counts), np.add.reduce)
        figures.append((count, round(per_s / 1e9, 2)))
    used = len(filled) * _CHUNK_BYTES
    is_final = len(filled) == len(chunks)
    notes = (
        () if is_final else (f"only {used >> 20} of {size_bytes >> 20} MiB could be filled in {_FILL_S} s",)
    )
    return Bandwidth(tuple(figures), used, is_final=is_final, notes=notes)


def _fill(chunks: list[Any], threads: int) -> list[Any]:
    """Writes to every page, since untouched pages all map one zero page; returns the chunks done in time."""
    end = time.perf_counter() + _FILL_S
    done: list[list[Any]] = [[] for _ in range(threads)]
    step = _PAGE_BYTES // chunks[0].itemsize

    def work(index: int) -> None:
        for chunk in chunks[index::threads]:
            if time.perf_counter() > end and done[index]:
                return
            chunk[::step] = 1
            done[index].append(chunk)

    _run_together(work, threads)
    return [chunk for part in done for chunk in part]


def _read(chunks: list[Any], threads: int, budget_s: float, reduce: Callable[[Any], Any]) -> float:
    """Bytes read a second by `threads` together; each goes round its own part until the time is over."""
    spans = [(0, 0.0, 0.0)] * threads
    share = len(chunks) // threads

    def work(index: int) -> None:
        own = chunks[index * share : (index + 1) * share] or chunks[:1]
        count = 0
        begin = now = time.perf_counter()
        while now - begin < budget_s:
            reduce(own[count % len(own)])
            count += 1
            now = time.perf_counter()
        spans[index] = (count, begin, now)

    _run_together(work, threads)
    total = sum(count for count, _, _ in spans) * _CHUNK_BYTES
    return total / (max(end for _, _, end in spans) - min(begin for _, begin, _ in spans))


def _run_together(work: Callable[[int], None], threads: int) -> None:
    gate = threading.Barrier(threads)

    def enter(index: int) -> None:
        gate.wait()
        work(index)

    crew = [threading.Thread(target=enter, args=(index,), daemon=True) for index in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def _figure_from(row: Record) -> tuple[int, float]:
    return row.integer("threads") or 0, row.number("gbps") or 0.0


def _load(path: Path) -> Bandwidth | None:
    try:
        record = Record(json.loads(path.read_text(encoding="utf-8")), "bandwidth")
        return Bandwidth.from_record(record.record("bandwidth")) if record.integer("form") == _FORM else None
    except (OSError, ValueError, ProbeError):
        return None


def _store(path: Path, result: Bandwidth) -> None:
    """A cache that cannot be written costs the next caller 3 s, nothing else."""
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"form": _FORM, "bandwidth": result.to_json()}), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        return
