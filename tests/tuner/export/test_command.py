"""The inverse of the llama-server export: what a user's own command means."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import Config
from tuner.errors import UsageError
from tuner.export import Launch, export, parse_command

MACHINE = replace(
    Machine(), topology=Topology(logical_cpus=16, physical_cores=8), effective=Effective(tuple(range(16)), 16)
)


def test_a_full_command() -> None:
    found = parse_command(
        "llama-server -m x.gguf -t 8 -tb 16 -c 4096 -np 2 -b 1024 -ub 256 -fa on -ctk q8_0 -ctv q4_0"
        " --no-mmap --mlock -nr --swa-full"
    )
    assert (found.program, found.model, found.context_tokens, found.streams) == (
        "llama-server", "x.gguf", 4096, 2,
    )  # fmt: skip
    assert found.settings == {
        "n_threads": 8, "n_threads_batch": 16, "n_ubatch": 256, "flash_attn": "on", "type_k": "q8_0",
        "type_v": "q4_0", "mmap": False, "mlock": True, "repack": False, "swa_full": True,
    }  # fmt: skip
    assert (found.ignored, found.not_expressed) == ((), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llama-server --model x --threads 3", {"n_threads": 3}),
        ("/opt/bin/llama-cli -m x --flash-attn", {"flash_attn": "on"}),
        ("llama-server -fa -m x", {"flash_attn": "on"}),
        ("llama-server -m x -fa auto", {"flash_attn": "on"}),
        ("llama-server -m x -fa off -fa 1", {"flash_attn": "on"}),
        ("llama-server -m x --load-mode mmap+mlock", {"mmap": True, "mlock": True}),
        ("llama-server -m x -t -1", {"n_threads": 0}),
        # The physical batch is never above the logical one.
        ("llama-server -m x -b 64", {"n_ubatch": 64}),
        ("llama-server -m x -b 256 -ub 512", {"n_ubatch": 256}),
        ("llama-server -m x -ub 2048", {"n_ubatch": 2048}),
        ("OMP_WAIT_POLICY=passive llama-server -m x", {"wait_policy": "passive"}),
        ("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 llama-server -m x", {"huge_pages": True}),
        ("llama-server -m x --no_repack --kv-unified", {"repack": False, "kv_unified": True}),
        ("llama-server \\\n  -m x \\\n  -t 2  # mine", {"n_threads": 2}),
    ],
)
def test_what_flags_mean(text: str, expected: dict[str, object]) -> None:
    found = parse_command(text)
    assert found.model == "x"
    assert found.settings == expected


def test_what_was_not_given_is_the_programs_own_choice() -> None:
    assert parse_command("llama-server -m x").settings_on(MACHINE) == {
        "n_threads": 8, "n_threads_batch": 8, "n_ubatch": 512, "flash_attn": "on", "type_k": "f16",
        "type_v": "f16", "swa_full": False, "kv_unified": False, "repack": True, "mmap": True, "mlock": False,
    }  # fmt: skip
    assert parse_command("llama-server -m x -t 3").settings_on(MACHINE)["n_threads_batch"] == 3
    every = parse_command("llama-server -m x -t 0 -tb 4").settings_on(MACHINE)
    assert (every["n_threads"], every["n_threads_batch"]) == (16, 4)


def test_models_of_a_hub() -> None:
    assert parse_command("llama-server -hf a/b -hff c.gguf").model == "hf:a/b:c.gguf"
    assert parse_command("llama-server -hf a/b").model == "hf:a/b"
    with pytest.raises(UsageError, match="add -hff FILE"):
        parse_command("llama-server -hf a/b:Q4_K_M")


@pytest.mark.parametrize(
    ("flags", "ignored", "not_expressed"),
    [
        ("--host 0.0.0.0 --port 80 --api-key hunter2", ("--host", "--port", "--api-key"), ()),
        ("--temp -1 --no-webui --jinja -v", ("--temp", "--no-webui", "--jinja", "-v"), ()),
        ("-ngl 99 -sm none", (), ("-ngl", "-sm")),
        ("--numa distribute --prio 2 -ngl -1", (), ("--numa", "--prio", "-ngl")),
        ("--control-vector-layer-range 1 2", (), ("--control-vector-layer-range",)),
    ],
)
def test_flags_that_no_configuration_has(
    flags: str, ignored: tuple[str, ...], not_expressed: tuple[str, ...]
) -> None:
    found = parse_command(f"llama-server {flags} -m x -t 2")
    assert (found.model, found.settings) == ("x", {"n_threads": 2})
    assert (found.ignored, found.not_expressed) == (ignored, not_expressed)


def test_secrets_are_in_no_text_of_a_command() -> None:
    found = parse_command("llama-server -m x --api-key hunter2 -hft hunter2 --alias 'a b'")
    assert found.text == "llama-server -m x --api-key *** -hft *** --alias 'a b'"


def test_launchers_and_variables_that_are_not_reproduced() -> None:
    found = parse_command("OMP_NUM_THREADS=2 LLAMA_ARG_CTX_SIZE=9 env taskset -c 0-3 llama-server -m x")
    assert found.not_expressed == ("OMP_NUM_THREADS", "LLAMA_ARG_CTX_SIZE", "taskset")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no known program in ''"),
        ("ollama run x", "no known program in 'ollama run x': allowed are llama-server"),
        ("llama-server -t 4", "names no model: give it -m FILE"),
        ("llama-server -m", "-m lacks its value"),
        ("llama-server -m x -t many", "-t many: a number of threads was expected"),
        ("llama-server -m x -ub 0", "-ub 0: allowed is 1 or more"),
        ("llama-server -m x -ctk q9", "-ctk q9: allowed are f32, f16"),
        ("llama-server -m x -fa maybe", "-fa maybe: allowed are on, off, auto"),
        ("llama-server -m x --load-mode fast", "--load-mode fast: allowed are auto"),
        ("llama-server x.gguf", "'x.gguf' belongs to no flag"),
        ("llama-server -m x > log", "'>' belongs to no flag of llama-server: give one command alone"),
        ("llama-server -m x --thread 2", "unknown flag '--thread' of llama-server; did you mean --threads?"),
        ("llama-server -m x --port=80", "unknown flag '--port=80' of llama-server; did you mean --port?"),
        ("llama-server -m x --kv-type q8_0", "related are --spec-type, --kv-offload, --kv-unified"),
        ("llama-server -m x --qqqq", "unknown flag '--qqqq' of llama-server: allowed are those of"),
        ("docker run i llama-server -m x", "'docker' before llama-server is not understood: allowed are"),
        ("llama-bench -m x", "no known program in 'llama-bench -m x'"),
        ("llama-server -m ''", "-m '': allowed is the name of a file"),
        ("llama-server -m 'x", "can't be read: No closing quotation"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 2**32))
def test_an_exported_command_reads_back_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    settings = {
        "n_threads": rng.randint(1, 64),
        "n_threads_batch": rng.randint(1, 64),
        "n_ubatch": rng.choice((16, 128, 512)),
        "flash_attn": rng.choice(("on", "off")),
        "type_k": rng.choice(("f16", "q8_0", "q4_0")),
        "type_v": rng.choice(("f16", "q8_0", "q4_0")),
        "repack": rng.random() < 0.5,
        "mmap": rng.random() < 0.5,
        "mlock": rng.random() < 0.5,
        "wait_policy": rng.choice(("default", "short_spin", "passive")),
    }
    path = rng.choice(("m.gguf", "/a b/it's.gguf", "-dash.gguf", "ä$x.gguf"))
    launch = Launch(Config.of("llama_cpp", "source", settings), path, 300, rng.randint(1, 8))
    found = parse_command(export(launch, "llama-server"))
    assert {"wait_policy": "default", **found.settings_on(MACHINE)} == {
        **settings, "swa_full": False, "kv_unified": False,
    }  # fmt: skip
    assert (found.model, found.context_tokens, found.streams) == (path, 300 * launch.streams, launch.streams)
    assert (found.ignored, found.not_expressed) == ((), ())


@given(
    st.lists(
        st.sampled_from(["-m", "x", "-t", "8", "-fa", "-ngl", "--host", "-1", "", "-", "--", "=", "-hf"])
    )
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    try:
        found = parse_command(shlex.join(["llama-server", *words]))
    except UsageError:
        return
    assert found.model or "-m" in words
