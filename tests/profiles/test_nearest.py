"""Distances of machines and workloads: symmetric, 0 for the same, each feature told with its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.bandwidth import Bandwidth
from probes.machine import Machine
from profiles.nearest import FARTHEST, NEAR, Cpus, between_machines, between_workloads
from profiles.vocabulary import WORKLOADS

SERVER: dict[str, Any] = {
    "schema_version": 1,
    "fingerprint": "server",
    "arch": "x86_64",
    "vendor": "GenuineIntel",
    "model_name": "Big CPU",
    "physical_cores": 16,
    "logical_cpus": 32,
    "online_cpus": list(range(32)),
    "cores": [[core, core + 16] for core in range(16)],
    "features": ["avx2", "avx512f", "avx512_vnni", "amx_int8", "f16c"],
    "caches": [
        {"level": 2, "type": "unified", "size_bytes": 2 << 20, "instances": 16},
        {"level": 3, "type": "unified", "size_bytes": 32 << 20, "instances": 1},
    ],
    "memory": {"total_bytes": 64 << 30},
    "effective": {"cpus": list(range(32)), "cpu_count": 32, "limited_by": "none", "memory_bytes": 60 << 30},
}


def machine(**changes: Any) -> Machine:
    return Machine.from_json({**SERVER, "fingerprint": "other", **changes})


def limited(cpus: int, **more: Any) -> dict[str, Any]:
    return {"cpus": list(range(cpus)), "cpu_count": cpus, "limited_by": "affinity", **more}


HERE = Machine.from_json(SERVER)


def test_the_same_machine_is_at_no_distance() -> None:
    assert between_machines(HERE, Machine.from_json({**SERVER, "model_name": "renamed"})).value == 0
    assert between_machines(HERE, machine()).value == 0


@pytest.mark.parametrize(
    ("changes", "cost", "words"),
    [
        ({"model_name": "Other CPU"}, 0.25, "CPU Other CPU there, Big CPU here"),
        ({"model_name": "Other CPU", "vendor": "AuthenticAMD"}, 0.5, "CPU Other CPU there"),
        ({"features": ["avx512f", "avx512_vnni", "f16c"]}, 1.0, "matrix unit: none there, amx_int8 here"),
        ({"features": ["avx2", "f16c"]}, 2.5, "int8 dot product: none there, avx512_vnni here"),
        ({"features": []}, 0.5, "instruction sets are known here only"),
        ({"memory": {"total_bytes": 16 << 30}}, 0.5, "memory: 16 GiB there, 64 GiB here"),
        ({"memory": {}}, 0.5, "memory: unknown there, 64 GiB here"),
        ({"caches": SERVER["caches"][:1]}, 0.5, "L3: unknown there, 32 MiB here"),
        ({"effective": limited(4)}, 1.5 + 0.25, "CPUs: 4 there, 32 here"),
    ],
)  # fmt: skip
def test_each_feature_has_its_cost(changes: dict[str, Any], cost: float, words: str) -> None:
    found = between_machines(machine(**changes), HERE)
    assert found.value == pytest.approx(cost)
    assert any(words in reason for reason in found.reasons), found.reasons


def test_another_architecture_alone_is_too_far() -> None:
    found = between_machines(machine(arch="aarch64", features=[]), HERE)
    assert found.value > FARTHEST
    assert found.reasons[0] == "architecture aarch64 there, x86_64 here"


def test_a_quota_on_one_side() -> None:
    quota = {**SERVER["effective"], "cpu_count": 16, "cpu_quota": 16.0, "limited_by": "quota"}
    found = between_machines(machine(effective=quota), HERE)
    assert "a CPU quota there only" in found.reasons


def test_bandwidth_counts_only_where_both_are_measured() -> None:
    fast, slow = (
        replace(HERE, fingerprint=name, bandwidth=Bandwidth(((8, gbps),), 1 << 20))
        for name, gbps in (("a", 200.0), ("b", 50.0))
    )
    assert between_machines(fast, slow).value == pytest.approx(1.0)
    unknown = between_machines(machine(), slow)
    assert (unknown.value, len(unknown.unknown)) == (0, 1)


def test_differences_come_the_dearest_first_and_add_up() -> None:
    machines = between_machines(machine(model_name="Other", effective=limited(2)), HERE)
    both = machines + between_workloads(WORKLOADS["rag"], WORKLOADS["chat"])
    costs = [difference.cost for difference in both.differences]
    assert costs == sorted(costs, reverse=True)
    assert both.value == pytest.approx(sum(costs), abs=1e-3)
    assert "prompt: 1024 tokens there, 128 tokens here" in both.reasons


counts = st.sampled_from([1, 2, 3, 4, 8, 24, 32])
features = st.lists(
    st.sampled_from(["avx2", "avx512f", "avx512_vnni", "amx_int8", "avx512_bf16"]), unique=True
)


@given(counts, counts, features, features)
def test_distance_is_symmetric_and_never_negative(a: int, b: int, x: list[str], y: list[str]) -> None:
    one = machine(fingerprint="a", features=x, effective=limited(a))
    other = machine(fingerprint="b", features=y, effective=limited(b))
    there, back = between_machines(one, other), between_machines(other, one)
    assert there.value == back.value >= 0
    assert (there.value == 0) == (there.differences == ())


def test_workloads() -> None:
    chat = WORKLOADS["chat"]
    assert between_workloads(chat, replace(chat, name="mine")).value == 0
    assert between_workloads(replace(chat, prompt_tokens=256), chat).value == pytest.approx(0.25)
    batch = between_workloads(WORKLOADS["batch"], chat)
    assert batch.value == pytest.approx(3.5)
    assert NEAR < batch.value < FARTHEST
    assert "best for decode_tps there, for response_ms here" in batch.reasons


def test_cpus_of_a_machine() -> None:
    assert Cpus.of(HERE) == Cpus(32, 16)
    assert Cpus.of(machine(effective=limited(4))) == Cpus(4, 4)
    quota = {**SERVER["effective"], "cpu_count": 3, "limited_by": "quota"}
    assert Cpus.of(machine(effective=quota)) == Cpus(3, 3)
    assert Cpus.of(machine(cores=[], physical_cores=None)).cores is None
