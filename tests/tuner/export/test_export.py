"""A configuration as flags, script, variables and documents; what a target can't say is said beside it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import WORKLOADS, Config
from tests.support.builds import everyday_model
from tuner import process
from tuner.errors import UsageError
from tuner.export import FORMATS, Launch, export

CONFIG = Config.of(
    "llama_cpp",
    "q8_0",
    {
        "n_threads": 1, "n_threads_batch": 2, "n_ubatch": 128, "flash_attn": "off", "type_k": "f16",
        "type_v": "f16", "repack": True, "mmap": True, "mlock": False, "wait_policy": "default",
    },
)  # fmt: skip
LAUNCH = Launch(CONFIG, "/models/m.gguf", 256)


def with_settings(**changes: object) -> Launch:
    return replace(LAUNCH, config=CONFIG.with_settings(**changes))


def test_llama_server() -> None:
    text = export(replace(LAUNCH, remarks=("profile 7: 1.3x\nthe default",)), "llama-server")
    assert text.splitlines()[0] == "# profile 7: 1.3x the default"
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    wanted = "llama-server -m /models/m.gguf -c 256 -np 1 -t 1 -tb 2 -b 512 -ub 128 -fa off"
    assert shlex.join(words) == wanted


def test_llama_server_says_what_differs_from_its_defaults() -> None:
    text = export(
        with_settings(
            type_k="q8_0", type_v="q4_0", flash_attn="on", n_ubatch=1024,
            repack=False, mmap=False, mlock=True, swa_full=True,
        ),
        "llama-server",
    )  # fmt: skip
    for flag in (
        "-ctk q8_0",
        "-ctv q4_0",
        "-fa on",
        "--no-repack",
        "--load-mode mlock",
        "--swa-full",
        "-b 1024",
    ):
        assert f"  {flag}" in text, flag
    assert "# builds before --load-mode say --no-mmap --mlock instead" in text


def test_several_streams_share_the_context() -> None:
    launch = replace(LAUNCH, streams=8)
    assert "-c 2048" in export(launch, "llama-server")
    assert "-np 8" in export(launch, "llama-server")
    assert "# Llama answers one request at a time: 8 streams need llama-server" in export(
        launch, "llama-cpp-python"
    )


def test_wait_policy_and_placement_come_before_the_program() -> None:
    placed = replace(with_settings(wait_policy="passive", placement="cores"), cpus=(0, 1, 2, 3, 8))
    text = export(placed, "llama-server")
    assert text.startswith("OMP_WAIT_POLICY=passive taskset -c 0-3,8 llama-server")
    node = replace(with_settings(placement="node1"), cpus=(4, 5))
    assert export(node, "llama-server").startswith("numactl --cpunodebind=1 --membind=1 llama-server")
    assert "# start Python with numactl --membind=1: the script binds no memory" in export(
        node, "llama-cpp-python"
    )
    script = export(placed, "llama-cpp-python")
    before, _, after = script.partition("import llama_cpp")
    assert 'os.environ["OMP_WAIT_POLICY"] = "passive"' in before
    assert "os.sched_setaffinity(0, {0, 1, 2, 3, 8})" in before
    assert "llama_cpp.Llama(" in after
    assert "import os" not in export(LAUNCH, "llama-cpp-python")


def test_llama_cpp_s_own_numa_strategy_is_said() -> None:
    spread = with_settings(numa="distribute")
    assert "--numa distribute" in export(spread, "llama-server")
    assert "LLAMA_ARG_NUMA=distribute" in export(spread, "env")
    assert "numa=llama_cpp.GGML_NUMA_STRATEGY_DISTRIBUTE," in export(spread, "llama-cpp-python")
    assert "(numa=distribute)" in export(spread, "ollama")
    for target in ("llama-server", "env", "llama-cpp-python", "ollama"):
        assert "numa" not in export(with_settings(numa="off"), target).lower()


def test_a_launch_of_this_machine_knows_its_cpus() -> None:
    machine = replace(
        Machine(),
        topology=Topology(cores=((0, 2), (1, 3)), logical_cpus=4, physical_cores=2),
        effective=Effective((0, 1, 2, 3), 4),
    )
    placed = CONFIG.with_settings(placement="cores")
    launch = Launch.of(placed, "m.gguf", WORKLOADS["batch"], machine)
    assert (launch.cpus, launch.context_tokens, launch.streams) == ((0, 1), 256, 8)
    with pytest.raises(UsageError, match="placement=fast means nothing"):
        Launch.of(CONFIG.with_settings(placement="fast"), "m.gguf", WORKLOADS["chat"], machine)


def test_variables() -> None:
    text = export(replace(with_settings(repack=False, swa_full=True), cpus=(0,)), "env")
    lines = text.splitlines()
    assert {"LLAMA_ARG_MODEL=/models/m.gguf", "LLAMA_ARG_THREADS=1", "LLAMA_ARG_FLASH_ATTN=off"} <= set(lines)
    assert {"LLAMA_ARG_REPACK=off", "LLAMA_ARG_SWA_FULL=1"} <= set(lines)
    assert "# no variable says -tb 2: give the flag itself" in lines
    assert "# no variable says where it runs: start it on CPUs 0" in lines


def test_documents_hold_everything() -> None:
    launch = replace(with_settings(wait_policy="passive"), cpus=(0, 1), remarks=("mine",))
    from_json = json.loads(export(launch, "json"))
    assert from_json.pop("remarks") == ["mine"]
    assert yaml.safe_load(export(launch, "yaml")) == from_json
    assert from_json["settings"] == launch.config.as_dict()
    assert from_json["environment"] == {"OMP_WAIT_POLICY": "passive"}
    assert (from_json["model"], from_json["variant"], from_json["cpus"]) == ("/models/m.gguf", "q8_0", [0, 1])


def test_unknown_targets_and_other_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown format 'toml': allowed are llama-server"):
        export(LAUNCH, "toml")
    other = replace(LAUNCH, config=Config.of("simulated", "source", {}))
    for target in ("llama-server", "llama-cpp-python", "env"):
        with pytest.raises(UsageError, match="is for simulated: allowed are yaml and json"):
            export(other, target)
    assert set(FORMATS) >= {"yaml", "json"}
    assert json.loads(export(other, "json"))["engine"] == "simulated"


def test_streams_that_wait_take_no_slot() -> None:
    launch = replace(with_settings(active_streams=2, kv_unified=True, prefill_chunk=32), streams=8)
    text = export(launch, "llama-server")
    assert "-np 2" in text
    assert f"-c {2 * LAUNCH.context_tokens}" in text
    assert "-kvu" in text
    assert "# no flag says prefill_chunk=32" in text


@pytest.mark.real
def test_the_script_runs(tmp_path: Path) -> None:
    config = CONFIG.with_settings(
        wait_policy="passive", type_k="q8_0", type_v="q8_0", flash_attn="on", mmap=False
    )
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:1]
    launch = Launch(config, str(everyday_model(tmp_path)), 64, cpus=cpus)
    script = tmp_path / "run.py"
    told = "\nprint(llm.n_ctx(), llm.n_threads, llm.n_threads_batch, llm.context_params.n_ubatch)\n"
    told += "print(llm.context_params.type_k, llm.model_params.load_mode, os.sched_getaffinity(0))\n"
    script.write_text(export(launch, "llama-cpp-python") + told)
    ending = process.run([sys.executable, "-P", str(script)], deadline_s=60)
    assert ending.returncode == 0, ending.log_tail
    *answer, numbers, types = ending.stdout.decode().strip().splitlines()
    assert "Paris" in "".join(answer)
    # n_ctx and with it the batch are rounded up and cut by the engine itself.
    assert numbers.split()[1:3] == ["1", "2"]
    assert types == f"8 0 {set(cpus)}"
