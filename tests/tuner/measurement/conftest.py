"""A small simulated world: a model file, its description and a bench on it."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import Config, ModelInfo, Workload
from tuner.engines.simulated import faults, files, surface
from tuner.engines.simulated.describe import Simulated
from tuner.measurement.bench import Bench
from tuner.measurement.isolation import Deadlines

SHORT = Deadlines(start_s=30.0, load_s=20.0, progress_s=0.3, run_s=20.0)


@pytest.fixture(scope="session")
def machine() -> Machine:
    return probe()


@pytest.fixture
def model() -> ModelInfo:
    return ModelInfo(
        name="tiny", digest="00", format="simulated", architecture="simulated", parameter_count=1000,
        layer_count=1, hidden_size=8, head_count=1, kv_head_count=1, key_length=8, value_length=8,
        vocabulary_size=1024, context_length=8192, file_bytes=1000, tensor_mix=(("q4_1", 1000),),
        bits_per_weight=5.0,
    )  # fmt: skip


@pytest.fixture
def workload() -> Workload:
    return Workload("tiny", prompt_tokens=64, output_tokens=32)


@pytest.fixture
def path_of(tmp_path: Path) -> Callable[[Config], Path]:
    def path(config: Config) -> Path:
        target = tmp_path / f"{config.variant}.simulated"
        if config.variant == "source":
            target.write_bytes(b"any file")
        else:
            files.write(target, config.variant)
        return target

    return path


@pytest.fixture
def set_faults(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def switch(on: Mapping[str, object]) -> None:
        monkeypatch.setenv(faults.VARIABLE, json.dumps(on))

    return switch


@pytest.fixture
def set_world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def change(**fields: object) -> None:
        monkeypatch.setenv(surface.VARIABLE, json.dumps(fields))

    return change


@pytest.fixture
def make_bench(
    machine: Machine, model: ModelInfo, workload: Workload, path_of: Callable[[Config], Path], tmp_path: Path
) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**changes: object) -> Bench:
        arguments = {
            "seed": 1, "log_directory": tmp_path / "logs", "deadlines": SHORT, **changes,
        }  # fmt: skip
        wanted = arguments.pop("workload", workload)
        made.append(Bench(machine, model, wanted, lambda _: Simulated(), path_of, **arguments))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def default(machine: Machine, model: ModelInfo, workload: Workload) -> Config:
    return Simulated().default(machine, model, workload)
