"""Against the field, dry: what peers print is read right, budgets are kept, skipped peers say why."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiles.vocabulary import WORKLOADS, Config, Setting
from tests.benchmarks.peers import build, llama_bench, optimus, rules
from tests.benchmarks.peers.build import Peers, PeersError
from tests.benchmarks.peers.contestant import Deadline

CHAT = WORKLOADS["chat"]
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
BENCH_OUTPUT = """[
  {
    "build_commit": "unknown", "n_ubatch": 512, "n_threads": 2, "flash_attn": 1,
    "n_prompt": 128, "n_gen": 127, "n_depth": 0, "avg_ns": 905000000, "stddev_ns": 0,
    "samples_ns": [ 905000000, 915000000 ],
    "samples_ts": [ 281.8, 278.7 ]
  }
]
"""


def trial(value: float, parameters: str) -> str:
    """A line as Optuna logs it for llama-optimus."""
    found = f"Trial 0 finished with value: {value} and parameters: {{{parameters}}}."
    return f"[I 2026-11-30 17:00:01,000] {found} Best is trial 0 with value: 171.5."


OPTIMUS_OUTPUT = "\n".join(
    [
        "cmd_1: ['llama-bench', '--batch-size', '4711', '--ubatch-size', '17', '--threads', '2']",
        "Token generation speed: 150.000 tokens/s ; std 1.000",
        trial(150.0, "'batch': 4711, 'u_batch': 17, 'threads': 2, 'gpu_layers': 0"),
        trial(0.0, "'batch': 8, 'u_batch': 900, 'threads': 1, 'gpu_layers': 0"),
        trial(171.5, "'flash_attn': 1"),
        trial(170.25, "'batch': 64, 'u_batch': 256, 'threads': 2, 'gpu_layers': 0, 'flash_attn': 1"),
    ]
)
OPTIMUS_END = """
MODEL=model.gguf

 $LLAMA_BIN/llama-server --model $MODEL -t 2 --batch-size 9000 --ubatch-size 33 -ngl 0 --flash-attn

########################
llama-bench --model model.gguf -t 2 --batch-size 1 --ubatch-size 1 -n 128 -p 256 -r 6
"""


# --- llama-bench ---------------------------------------------------------------------------------


def test_samples_are_read_in_milliseconds() -> None:
    assert llama_bench.samples_ms(BENCH_OUTPUT) == [[905.0, 915.0]]


@pytest.mark.parametrize("output", ["", "[]", "error: failed to load model", '[{"avg_ns": 1}]', '{"a": 1}'])
def test_output_without_a_result_is_an_error(output: str) -> None:
    with pytest.raises(PeersError, match="llama-bench"):
        llama_bench.samples_ms(output)


def test_flags_say_what_the_configuration_says() -> None:
    config = DEFAULT.with_settings(n_ubatch=1024, flash_attn="on", type_v="q8_0", repack=False, mmap=False)
    flags = " ".join(llama_bench.flags(config, 2))
    expected = "-t 2 -b 1024 -ub 1024 -fa on -ctk f16 -ctv q8_0 --repack 0 -lm none -ngl 0"
    assert flags == expected


def test_what_llama_bench_can_not_be_told_is_not_measured_as_something_else() -> None:
    with pytest.raises(PeersError, match="placement=cores can't be said"):
        llama_bench.flags(DEFAULT.with_settings(placement="cores"), 2)


def program(folder: Path, text: str) -> Path:
    """A program in a peer's place."""
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_phases_run_with_their_own_threads(tmp_path: Path) -> None:
    counting = "print('[{\"samples_ns\": [%d]}]' % (1e6 * int(sys.argv[sys.argv.index('-t') + 1])))"
    times = llama_bench.measure(program(tmp_path, counting), tmp_path / "model.gguf", DEFAULT, CHAT)
    assert (times.prompt_ms, times.decode_ms, times.response_ms) == (2.0, 1.0, 3.0)


def test_a_failing_program_is_named_with_its_last_line(tmp_path: Path) -> None:
    failing = program(tmp_path, "sys.exit('first\\nfailed to load model')")
    with pytest.raises(PeersError, match="llama-bench failed: failed to load model"):
        llama_bench.call(failing, tmp_path, [], DEFAULT, 10.0)


def test_a_program_is_ended_at_its_deadline(tmp_path: Path) -> None:
    with pytest.raises(PeersError, match="the time was up"):
        llama_bench.call(program(tmp_path, "time.sleep(60)"), tmp_path, [], DEFAULT, 0.2)


def test_the_grid_goes_from_its_first_choices_outwards() -> None:
    axes = llama_bench.axes(128, threads=(1, 2), ubatches=(16, 64, 128))
    assert [cell["n_ubatch"] for cell in axes[2]] == [128, 64, 16]
    cells = list(llama_bench.coarse_first(axes))
    assert len(cells) == 2 * 2 * 3 * 4 * 2 * 2
    first = cells[0]
    changed = [
        sum(cell[name] != first[name] for name in ("n_threads", "flash_attn", "repack")) for cell in cells
    ]
    assert changed[:3] == [0, 1, 1]
    assert changed[-1] == 3
    assert cells[1]["n_threads"] == 1


# --- budgets -------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only where the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_ends_after_the_budget_does_not_count() -> None:
    clock = Clock()
    cells = [DEFAULT.with_settings(n_ubatch=size) for size in (128, 64, 32, 16)]

    def measure(config: Config) -> float:
        clock.now_s += 4.0
        return float(str(config.get("n_ubatch")))

    found = llama_bench.within_budget("grid", cells, measure, Deadline.of(10.0, clock))
    assert found.chosen == cells[1]
    assert found.effort == "2 of 4 cells"
    assert found.seconds == 10.0


def test_failed_cells_do_not_end_a_grid() -> None:
    cells = [DEFAULT.with_settings(n_ubatch=size) for size in (128, 64)]

    def measure(config: Config) -> float:
        if config == cells[0]:
            raise PeersError("out of memory")
        return 1.0

    assert llama_bench.within_budget("grid", cells, measure, Deadline.of(10.0, Clock())).chosen == cells[1]
    nothing = llama_bench.within_budget("grid", cells[:1], measure, Deadline.of(10.0, Clock()))
    assert nothing.effort == "skipped: out of memory"


@pytest.mark.parametrize(("trial_s", "trials"), [(1.0, 27), (3.0, 8), (100.0, 1)])
def test_llama_optimus_gets_as_many_trials_as_fit(trial_s: float, trials: int) -> None:
    assert optimus.trials_within(60.0, trial_s) == trials
    taken = optimus.STARTUP_S + (2 * trials + optimus.FIXED_TRIALS) * trial_s
    assert trials == 1 or taken <= 60.0 < taken + 2 * trial_s


def test_a_peer_is_ended_at_the_budget_with_all_it_started(tmp_path: Path) -> None:
    text = "import subprocess; subprocess.Popen(['sleep', '60']); print('trial', flush=True); time.sleep(60)"
    began = time.monotonic()
    lines = list(optimus.output_of([str(program(tmp_path, text))], 1.0, tmp_path))
    # The pipe ends only when the grandchild, which holds it too, is gone.
    assert lines == ["trial\n"]
    assert time.monotonic() - began < 20.0


# --- llama-optimus -------------------------------------------------------------------------------


def test_its_advice_is_its_own_command() -> None:
    lines = (OPTIMUS_OUTPUT + OPTIMUS_END).splitlines()
    expected = {"n_threads": 2, "n_threads_batch": 2, "n_ubatch": 33, "flash_attn": "on"}
    assert optimus.advice(lines) == (expected, True)
    heard = list(optimus.until_advice(iter(lines)))
    assert "--ubatch-size 33" in heard[-1]


def test_cut_at_the_budget_its_best_trial_counts() -> None:
    found = optimus.advice(OPTIMUS_OUTPUT.splitlines())
    assert found == ({"n_threads": 2, "n_threads_batch": 2, "n_ubatch": 64, "flash_attn": "on"}, False)
    assert optimus.advice(["Traceback", "ValueError: no trial"]) is None
    only_failures = [
        line for line in OPTIMUS_OUTPUT.splitlines() if "value: 0.0" in line.partition("Best")[0]
    ]
    assert only_failures != []
    assert optimus.advice(only_failures) is None


def test_its_flags_leave_the_graphics_card_out() -> None:
    given = " ".join(optimus.arguments(Path("bin"), Path("m.gguf"), "mean", 9, 128))
    assert "--metric mean --trials 9" in given
    assert "--ngl-max 0 --override-mode none" in given


# --- the articles' rules -------------------------------------------------------------------------


def test_the_rules_are_the_articles_values() -> None:
    threads, batches, cache, mapping = rules.axes(cores=8)
    assert [cell["n_threads"] for cell in threads] == [8, 4, 12]
    assert {cell["n_ubatch"] for cell in batches} == {512, 128, 16, 8}
    assert cache[1]["type_k"] == cache[1]["type_v"] == "q8_0"
    assert [cell["mmap"] for cell in mapping] == [True, False]
    assert [cell["n_threads"] for cell in rules.axes(cores=1)[0]] == [1]


# --- not built -----------------------------------------------------------------------------------


@pytest.fixture
def unbuilt(tmp_path: Path) -> Peers:
    return Peers("0.0.0", tmp_path)


def test_what_is_not_built_is_skipped_with_a_line(unbuilt: Peers, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    grid = llama_bench.search(unbuilt, model, [DEFAULT], CHAT, 1.0)
    other = optimus.search(unbuilt, model, DEFAULT, CHAT, "tg", 1.0, tmp_path)
    assert grid.effort == "skipped: llama-bench 0.0.0 is not built: run make peers"
    assert other.effort == "skipped: llama-optimus is not installed: run make peers"
    assert grid.chosen is None
    assert other.chosen is None


def test_peers_lie_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CPUTUNE_PEERS", str(tmp_path))
    found = Peers.find()
    assert found.folder == tmp_path / found.version
    monkeypatch.delenv("CPUTUNE_PEERS")
    assert Peers.find().folder.parent.parent.name == "cputune"


def test_a_missing_tool_is_named_with_its_cure(tmp_path: Path) -> None:
    assert build.missing_tools({"PATH": str(tmp_path), "CXX": "ccache g++"}) == (
        "cmake, cc, ccache not found: install with apt-get install cmake build-essential"
    )


def test_a_build_is_made_once_and_anew_for_other_flags(unbuilt: Peers) -> None:
    wanted = build.recipe({"CFLAGS": " -fno-dse"})
    (unbuilt.folder / "bin").mkdir()
    (unbuilt.folder / "bin" / "built.json").write_text(json.dumps(wanted))
    assert not build.is_built(unbuilt, wanted)
    for name in build.PROGRAMS:
        (unbuilt.folder / "bin" / name).touch()
    assert build.is_built(unbuilt, wanted)
    assert not build.is_built(unbuilt, build.recipe({}))


def test_an_interrupted_build_goes_on_and_leaves_only_programs(
    unbuilt: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def ran(argv: Sequence[str], log: object) -> None:
        steps.append(argv[1])
        if argv[1] == "--build":
            if steps.count("--build") == 1:
                raise KeyboardInterrupt
            programs = unbuilt.folder / "work" / "made" / "bin"
            programs.mkdir(parents=True)
            for name in build.PROGRAMS:
                (programs / name).touch()

    def downloaded(peers: Peers, work: Path, log: object) -> None:
        steps.append("download")
        (work / "source").mkdir()

    monkeypatch.setattr(build, "_run", ran)
    monkeypatch.setattr(build, "download", downloaded)
    monkeypatch.setattr(build, "missing_tools", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        build.build(unbuilt)
    build.build(unbuilt)
    build.build(unbuilt)
    assert steps == ["download", "-S", "--build", "-S", "--build"]
    assert {path.name for path in unbuilt.folder.iterdir()} == {"bin", "build.log"}


def test_the_source_is_unpacked_without_its_history(tmp_path: Path) -> None:
    archive = tmp_path / "package.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for name in ("vendor/llama.cpp/CMakeLists.txt", "vendor/llama.cpp/.git", "llama_cpp/llama.py"):
            member = tarfile.TarInfo(f"package-1/{name}")
            member.size = 1
            made.addfile(member, io.BytesIO(b"x"))
    source = build.unpacked(archive, tmp_path / "source")
    assert [path.name for path in source.iterdir()] == ["CMakeLists.txt"]
    assert not (tmp_path / "source" / "package-1" / "llama_cpp").exists()
