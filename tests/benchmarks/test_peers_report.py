"""The neutral run and its report: order, ratios, verdicts on the limits, the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.vocabulary import Config, Setting
from tests.benchmarks import bench_peers, run
from tests.benchmarks.peers.build import PeersError
from tests.benchmarks.peers.contestant import Contestant
from tests.benchmarks.peers.neutral import Referee, interleave, ratio, value_of

SETTINGS: dict[str, Setting] = {
    "n_threads": 1,
    "n_threads_batch": 2,
    "n_ubatch": 128,
    "flash_attn": "off",
    "type_k": "f16",
    "type_v": "f16",
    "repack": True,
    "mmap": True,
    "mlock": False,
    "wait_policy": "default",
}
DEFAULT = Config.of("llama_cpp", "source", SETTINGS)
# --- the neutral run -----------------------------------------------------------------------------

SLOW, FAST = DEFAULT, DEFAULT.with_settings(n_threads=2)


def test_the_order_turns_round_from_pass_to_pass() -> None:
    order: list[str] = []

    def measure(config: Config) -> float:
        order.append(config.key)
        return 2.0 if config == SLOW else 1.0

    values = interleave(Referee("loop", measure), [SLOW, FAST, SLOW], 2, lambda _: None)
    assert order == [SLOW.key, FAST.key, FAST.key, SLOW.key]
    assert value_of(values, SLOW) == 2.0
    interval = ratio(values, SLOW, FAST)
    assert interval is not None
    assert interval.estimate == pytest.approx(2.0)


def test_equal_configurations_are_one_where_they_were_measured() -> None:
    assert ratio({}, FAST, FAST) is None
    interval = ratio({FAST.key: [1.0, 1.1]}, FAST, FAST)
    assert interval is not None
    assert (interval.low, interval.estimate, interval.high) == (1.0, 1.0, 1.0)


def test_what_fails_is_left_out_and_a_lost_pass_costs_a_pair() -> None:
    calls = 0
    broken = DEFAULT.with_settings(n_threads=9)

    def measure(config: Config) -> float:
        nonlocal calls
        calls += config == SLOW
        if config == broken or (config == SLOW and calls == 2):
            raise PeersError("crashed")
        return 3.0 if config == SLOW else 1.5

    said: list[str] = []
    values = interleave(Referee("loop", measure), [SLOW, FAST, broken], 3, said.append)
    assert value_of(values, broken) is None
    assert ratio(values, broken, FAST) is None
    assert sum("crashed" in line for line in said) == 2
    interval = ratio(values, SLOW, FAST)
    assert interval is not None
    assert interval.estimate == pytest.approx(2.0)
    assert interval.confidence == pytest.approx(0.5)


# --- table and verdicts --------------------------------------------------------------------------


def report(grid_ms: float) -> bench_peers.Report:
    grid = DEFAULT.with_settings(n_ubatch=64)
    q8_0 = Config.of("llama_cpp", "q8_0", SETTINGS)
    values = {
        DEFAULT.key: [1000.0] * 6,
        FAST.key: [500.0] * 6,
        grid.key: [grid_ms] * 6,
        q8_0.key: [800.0] * 6,
    }
    return bench_peers.Report(
        (
            Contestant("default", DEFAULT, "nothing set"),
            Contestant.skipped("llama-optimus (tg)", "llama-optimus is not installed: run make peers"),
            Contestant("llama-bench grid", grid, "9 of 96 cells", 60.0),
            Contestant(bench_peers.OWN, FAST, "20 trials, provisional", 60.0),
            Contestant(bench_peers.OWN_FREE, FAST, "20 trials, provisional", 60.0),
        ),
        (Contestant("q8_0 at the defaults", q8_0, "near-lossless"),),
        values,
        {},
        ("A machine.", "Builds: some."),
    )


def test_the_limits_are_judged_by_the_nearest() -> None:
    table, same_file, variants, peers = bench_peers.rows_of(report(grid_ms=480.0), "make bench ARGS=peers")
    assert (same_file["to"], same_file["kept"]) == ("llama-bench grid", False)
    assert same_file["smallest ratio"] == pytest.approx(0.96)
    assert (variants["to"], variants["kept"]) == ("q8_0 at the defaults", True)
    assert "kept" not in peers
    assert not peers["reached"]
    assert bench_peers.rows_of(report(grid_ms=500.0), "")[1]["kept"]
    assert table["what"] == "against the field"


def test_the_table_names_command_machine_builds_and_who_was_skipped() -> None:
    text = bench_peers.rows_of(report(grid_ms=600.0), "make bench ARGS=peers")[0]["markdown"]
    lines = text.splitlines()
    assert lines[0] == "    make bench ARGS=peers"
    assert "A machine." in lines
    assert "Builds: some." in lines
    assert any("skipped: llama-optimus is not installed: run make peers" in line for line in lines)
    grid = next(line for line in lines if line.startswith("| llama-bench grid"))
    assert "9 of 96 cells; 60 s | n_ubatch=64 | 600 | 1.20 (1.20 to 1.20) | - | - |" in grid
    widths = {line.count("|") for line in lines if line.startswith("|")}
    assert widths == {len(bench_peers.COLUMNS) + 1}
    assert run.as_text({"what": "x", "command": "y", "markdown": text}) == f"\n{text}\n"


def test_a_search_that_failed_is_a_skipped_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benchmarks.commands import Ran

    def failed(*_: object) -> Ran:
        return Ran("cputune search", 1.0, 5, "", "no engine can run here")

    monkeypatch.setattr(bench_peers, "cputune", failed)
    found = bench_peers.own_search(tmp_path, bench_peers.OWN, "llama_cpp", 60, [])
    assert found.chosen is None
    assert "no engine can run here" in found.effort
