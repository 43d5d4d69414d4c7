"""llama-bench as a peer that searches a grid, and as a second referee."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from profiles.vocabulary import Config, Setting, Workload
from tests.benchmarks.peers.build import Peers, PeersError
from tests.benchmarks.peers.contestant import Contestant, Deadline, Tried, best_of
from tuner import process
from tuner.measurement import placement

NAME = "llama-bench grid"
SMALLEST_BATCH = 512
"""The prompt batch that cputune's sessions have too; a larger ubatch enlarges it."""
CALL_S = 120.0
_UNSAID: Mapping[str, Setting] = {"mlock": False, placement.PLACEMENT: placement.ANYWHERE}
_ON_OFF = {True: "1", False: "0"}

# Each axis in the order in which a careful user would try its values; flash attention "on" is what this
# llama-bench's own default, auto, comes to on a CPU.
KV_TYPES: tuple[Mapping[str, Setting], ...] = tuple(
    {"type_k": k, "type_v": v}
    for k, v in (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "f16"), ("q4_0", "q4_0"))
)


@dataclass(frozen=True)
class Times:
    """What one call measured: milliseconds of the prompt and of all tokens after it."""

    prompt_ms: float
    decode_ms: float

    @property
    def response_ms(self) -> float:
        """TTFT + (n - 1) x TPOT: llama-bench is asked for n - 1 tokens."""
        return self.prompt_ms + self.decode_ms


def flags(config: Config, threads: Setting | None) -> list[str]:
    """A configuration of llama.cpp as llama-bench's flags; it has one number of threads for both phases.

    What the environment sets is not here. Raises PeersError for what can't be said to llama-bench.
    """
    settings = config.as_dict()
    unsaid = [
        f"{name}={settings[name]}" for name, usual in _UNSAID.items() if settings.get(name, usual) != usual
    ]
    if unsaid:
        raise PeersError(f"{', '.join(unsaid)} can't be said to llama-bench")
    ubatch = int(settings["n_ubatch"])
    return [
        *("-t", str(threads), "-b", str(max(SMALLEST_BATCH, ubatch)), "-ub", str(ubatch)),
        *("-fa", str(settings["flash_attn"])),
        *("-ctk", str(settings["type_k"]), "-ctv", str(settings["type_v"])),
        *("--repack", _ON_OFF[bool(settings["repack"])]),
        *("-lm", "mmap" if settings["mmap"] else "none", "-ngl", "0"),
    ]


def samples_ms(output: str) -> list[list[float]]:
    """The samples of each test in what `-o json` printed, in milliseconds; raises PeersError for no test."""
    try:
        tests = json.loads(output)
        found = [[ns / 1e6 for ns in test["samples_ns"]] for test in tests]
    except (ValueError, KeyError, TypeError) as error:
        raise PeersError(
            f"llama-bench printed no result: {type(error).__name__} in {output[:80]!r}"
        ) from None
    if not found or not all(found):
        raise PeersError("llama-bench measured nothing")
    return found


def call(
    program: Path, model: Path, arguments: Sequence[str], config: Config, deadline_s: float
) -> list[float]:
    """One call with one test: its samples in milliseconds; raises PeersError where it fails or runs over."""
    argv = [str(program), "-m", str(model), "-o", "json", *arguments]
    ended = process.run(argv, deadline_s=deadline_s, environment=placement.environment(config))
    if ended.timed_out:
        raise PeersError("llama-bench was ended: the time was up")
    if ended.returncode:
        reason = ended.log_tail.splitlines()[-1] if ended.log_tail else f"exit code {ended.returncode}"
        raise PeersError(f"llama-bench failed: {reason}")
    return samples_ms(ended.stdout.decode(errors="replace"))[0]


def measure(program: Path, model: Path, config: Config, workload: Workload) -> Times:
    """Both phases as the session loop has them: each with its own threads, decoding at the prompt's depth."""
    prompt, rest = str(workload.prompt_tokens), str(workload.output_tokens - 1)
    once = ("-r", "1")
    prefill = [*flags(config, config.get("n_threads_batch")), "-p", prompt, "-n", "0", *once]
    decode = [*flags(config, config.get("n_threads")), "-p", "0", "-n", rest, "-d", prompt, *once]
    return Times(
        median(call(program, model, prefill, config, CALL_S)),
        median(call(program, model, decode, config, CALL_S)),
    )


def axes(
    prompt_tokens: int, threads: Sequence[int], ubatches: Sequence[int]
) -> list[list[Mapping[str, Setting]]]:
    """The grid's axes, each from its first choice on; threads from the most, ubatches from the largest."""
    within = [size for size in ubatches if size < prompt_tokens]
    sizes = [*sorted(within, reverse=True)]
    # Everything that holds the whole prompt is one.
    sizes.insert(0, max(ubatches) if prompt_tokens > max(ubatches) else prompt_tokens)
    return [
        [{"n_threads": n, "n_threads_batch": n} for n in sorted(threads, reverse=True)],
        [{"flash_attn": "on"}, {"flash_attn": "off"}],
        [{"n_ubatch": size} for size in dict.fromkeys(sizes)],
        list(KV_TYPES),
        [{"repack": True}, {"repack": False}],
        [{"mmap": True}, {"mmap": False}],
    ]


def coarse_first(grid: Sequence[Sequence[Mapping[str, Setting]]]) -> Iterator[dict[str, Setting]]:
    """Every cell of a grid, from the first choice of all axes outwards: by the sum of its steps along them.

    So one value is changed at a time first, then two, and what the budget cuts off are the far corners.
    """
    indexes = itertools.product(*(range(len(axis)) for axis in grid))
    for index in sorted(indexes, key=lambda steps: (sum(steps), tuple(-step for step in steps))):
        cell: dict[str, Setting] = {}
        for axis, step in zip(grid, index, strict=True):
            cell |= axis[step]
        yield cell


def search(
    peers: Peers, model: Path, cells: Sequence[Config], workload: Workload, budget_s: float
) -> Contestant:
    """The best of as many cells as the budget allows, each run once by llama-bench on the whole workload."""
    try:
        program = peers.program("llama-bench")
    except PeersError as error:
        return Contestant.skipped(NAME, error)
    deadline = Deadline.of(budget_s)

    def run(config: Config) -> float:
        pair = f"{workload.prompt_tokens},{workload.output_tokens - 1}"
        arguments = [*flags(config, config.get("n_threads")), "-p", "0", "-n", "0", "-pg", pair, "-r", "1"]
        return median(call(program, model, arguments, config, deadline.left_s))

    return within_budget(NAME, cells, run, deadline)


def within_budget(
    name: str, cells: Sequence[Config], run: Callable[[Config], float], deadline: Deadline
) -> Contestant:
    """Run cell after cell until the time is up; what was not finished by then does not count."""
    tried: list[Tried] = []
    failed: list[str] = []
    for config in cells:
        if deadline.left_s <= 0:
            break
        try:
            value = run(config)
        except PeersError as error:
            failed.append(str(error))
            continue
        if deadline.left_s >= 0:
            tried.append(Tried(config, value))
    chosen = best_of(tried)
    if chosen is None:
        return Contestant.skipped(name, failed[0] if failed else "the budget was over before a cell was run")
    return Contestant(
        name, chosen, f"{len(tried)} of {len(cells)} cells", min(deadline.elapsed_s, deadline.total_s)
    )
