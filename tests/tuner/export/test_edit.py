"""A user's command, changed to run another configuration."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import Config
from tuner.export import Edited, FlagChange, Launch, edited, parse_command

MACHINE = replace(
    Machine(), topology=Topology(logical_cpus=16, physical_cores=8), effective=Effective(tuple(range(16)), 16)
)


def launch(settings: dict[str, object], **fields: object) -> Launch:
    known = {"config": Config.of("llama_cpp", "source", settings), "model_path": "x", "context_tokens": 256}
    return Launch(**{**known, **fields})


def change(text: str, *, streams: int = 1, **settings: object) -> Edited:
    """The command, with what it runs changed in these settings."""
    command = parse_command(text)
    slots = min(command.streams or streams, streams)
    own = {**command.settings_on(MACHINE), "active_streams": slots}
    return edited(command, launch(own, streams=streams), launch({**own, **settings}, streams=streams))


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("llama-server -m x -t 8", {}, "llama-server -m x -t 8"),
        (
            "./llama-server -m x --threads 8 --host 0.0.0.0",
            {"n_threads": 2, "n_threads_batch": 2},
            "./llama-server -m x --threads 2 --host 0.0.0.0",
        ),
        # -tb follows -t where it is not given.
        ("llama-server -m x -t 8", {"n_threads": 2}, "llama-server -m x -t 2 -tb 8"),
        ("llama-server -m x -t 8 -tb 4", {"n_threads": 4}, "llama-server -m x -t 4 -tb 4"),
        ("llama-server -m x", {"n_threads": 4}, "llama-server -m x -t 4 -tb 8"),
        ("llama-server -m x", {"n_threads_batch": 4}, "llama-server -m x -tb 4"),
        # The last of two counts; the first goes when it changes.
        ("llama-server -t 3 -m x -t 8", {"n_threads": 2}, "llama-server -m x -t 2 -tb 8"),
        # No physical batch is above the logical one.
        ("llama-server -m x -b 64", {"n_ubatch": 128}, "llama-server -m x -b 128 -ub 128"),
        ("llama-server -m x -ub 64", {"n_ubatch": 32}, "llama-server -m x -ub 32"),
        ("llama-server -m x -ctk q8_0", {"type_k": "f16"}, "llama-server -m x"),
        ("llama-server -m x", {"type_v": "q8_0"}, "llama-server -m x -ctv q8_0"),
        ("llama-server -m x -fa auto", {"flash_attn": "off"}, "llama-server -m x -fa off"),
        ("llama-server -m x -fa -t 2", {"flash_attn": "off"}, "llama-server -m x -fa off -t 2"),
        ("llama-server -m x --repack", {"repack": False}, "llama-server -m x --no-repack"),
        ("llama-server -m x -nr", {"repack": True}, "llama-server -m x"),
        # In the words that the command has already.
        ("llama-server -m x --no-mmap", {"mmap": True, "mlock": True}, "llama-server -m x --mlock"),
        ("llama-server -m x --no-mmap", {"mmap": True}, "llama-server -m x"),
        ("llama-server -m x -lm none", {"mlock": True}, "llama-server -m x -lm mlock"),
        ("llama-server -m x", {"mlock": True}, "llama-server -m x --load-mode mmap+mlock"),
        (
            "OMP_WAIT_POLICY=passive A=b llama-server -m x",
            {"wait_policy": "short_spin"},
            "GOMP_SPINCOUNT=20000 A=b llama-server -m x",
        ),
        ("OMP_WAIT_POLICY=passive llama-server -m x", {"wait_policy": "default"}, "llama-server -m x"),
        (
            "llama-server -m '/my models/it'\"'\"'s.gguf' --alias 'a b' -t 8 --api-key 'k$1'",
            {"n_threads_batch": 2},
            "llama-server -m '/my models/it'\"'\"'s.gguf' --alias 'a b' -t 8 --api-key 'k$1' -tb 2",
        ),
        ("llama-server -m ~/x.gguf -t 8", {"n_threads_batch": 2}, "llama-server -m ~/x.gguf -t 8 -tb 2"),
        ("llama-server -m x -c 128", {}, "llama-server -m x -c 256"),
        ("llama-server -m x -c 8192", {}, "llama-server -m x -c 8192"),
        ("llama-server -m x -c 512 -np 4", {}, "llama-server -m x -c 1024 -np 4"),
    ],
)
def test_a_changed_command(text: str, settings: dict[str, object], expected: str) -> None:
    assert change(text, **settings).text == expected


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("llama-server -m x", {}, "llama-server -m x -np 4"),
        ("llama-server -m x -np 2", {}, "llama-server -m x -np 2"),
        ("llama-server -m x -np 4 -c 512", {"active_streams": 2}, "llama-server -m x -np 2 -c 512"),
        ("llama-server -m x -np 8", {"active_streams": 4}, "llama-server -m x -np 8"),
    ],
)
def test_slots(text: str, settings: dict[str, object], expected: str) -> None:
    assert change(text, streams=4, **settings).text == expected


def test_changes_are_told_apart() -> None:
    found = change("llama-server -m x -t 8 --no-repack", n_threads=2, repack=True)
    assert found.of(before=True, after=True) == (FlagChange("-t", "8", "2"),)
    assert found.of(before=False, after=True) == (FlagChange("-tb", None, "8"),)
    assert found.of(before=True, after=False) == (FlagChange("--no-repack", "", None),)


def test_another_variant_is_another_file() -> None:
    command = parse_command("llama-server -hf a/b -hff c.gguf -t 8")
    before = launch(command.settings_on(MACHINE))
    after = replace(before, config=replace(before.config, variant="q8_0"), model_path="/made/q8 0.gguf")
    assert edited(command, before, after).text == "llama-server -t 8 -m '/made/q8 0.gguf'"


def test_a_placement_takes_the_place_of_the_users_own() -> None:
    command = parse_command("nice -n 5 taskset -c 0-3 llama-server -m x")
    before = launch(command.settings_on(MACHINE))
    found = edited(command, before, replace(before, cpus=(0, 2)))
    assert found.text == "nice -n 5 taskset -c 0,2 llama-server -m x"
    assert found.changes == (FlagChange("taskset", "-c 0-3", "-c 0,2"),)


FLAGS = (
    "-t 1", "-t 16", "-t 0", "-tb 3", "-b 64", "-b 4096", "-ub 32", "-ub 1024", "-fa off", "-fa", "-ctk q8_0",
    "-ctv q4_0", "-nr", "--repack", "--no-mmap", "--mmap", "--mlock", "-lm none", "-lm mmap+mlock",
    "--swa-full", "-kvu", "-no-kvu", "--port 80", "-np 1", "-c 512",
)  # fmt: skip


@given(st.lists(st.sampled_from(FLAGS), max_size=6), st.integers(0, 2**32))
def test_a_changed_command_reads_back_as_what_was_wanted(flags: list[str], seed: int) -> None:
    rng = random.Random(seed)
    wanted = {
        "n_threads": rng.randint(1, 16),
        "n_threads_batch": rng.randint(1, 16),
        "n_ubatch": rng.choice((16, 128, 512, 4096)),
        "flash_attn": rng.choice(("on", "off")),
        "type_k": rng.choice(("f16", "q8_0")),
        "type_v": rng.choice(("f16", "q4_0")),
        "repack": rng.random() < 0.5,
        "mmap": rng.random() < 0.5,
        "mlock": rng.random() < 0.5,
        "swa_full": rng.random() < 0.5,
        "kv_unified": rng.random() < 0.5,
    }
    found = change(" ".join(("llama-server -m x", *flags)), **wanted)
    assert parse_command(found.text).settings_on(MACHINE) == wanted
    kept = [flag for flag in flags if flag == "--port 80"]
    assert found.text.count("--port 80") == len(kept)
