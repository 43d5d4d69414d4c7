"""The simulated engine has a plausible optimum, honest quality and every fault by name."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.engines.base import EngineError
from tuner.engines.simulated import faults, files, make, surface, text
from tuner.engines.simulated.scorer import SimulatedScorer
from tuner.engines.simulated.session import SimulatedSession
from tuner.engines.simulated.surface import World

SETTINGS = {
    "n_threads": 2, "n_threads_batch": 2, "n_ubatch": 128, "flash_attn": "off", "type_k": "f16",
    "type_v": "f16", "repack": True,
}  # fmt: skip


def file_of(variant: str, folder: Path) -> Path:
    path = folder / f"{variant}.simulated"
    files.write(path, variant)
    return path


def test_the_surface_has_the_shape_of_a_small_machine():
    world = World(cpus=4)

    def prefill(variant: str, **changes: object) -> float:
        return surface.prefill_ms(world, variant, {**SETTINGS, **changes}, 128)

    def decode(variant: str, **changes: object) -> float:
        return surface.decode_ms(world, variant, {**SETTINGS, **changes}, 128, 1)

    assert min(("source", "bf16", "q8_0"), key=prefill) == "bf16"
    assert min(("source", "bf16", "q8_0"), key=decode) == "q8_0"
    assert prefill("q4_0") < prefill("q4_0", repack=False)
    assert prefill("q8_0", n_ubatch=16) > prefill("q8_0", n_ubatch=128)
    assert decode("q8_0", n_threads=4) < decode("q8_0", n_threads=1) < decode("q8_0", n_threads=5)
    assert decode("q8_0", type_k="q4_0") > decode("q8_0", type_k="q8_0") > decode("q8_0")
    eight = surface.decode_ms(world, "q8_0", SETTINGS, 128, 8)
    assert decode("q8_0") < eight < 8 * decode("q8_0")


def test_one_thread_does_not_wait():
    passive = World(cpus=2, wait_policy="passive")
    one = {**SETTINGS, "n_threads": 1}
    assert surface.decode_ms(passive, "q8_0", one, 64, 1) == surface.decode_ms(World(2), "q8_0", one, 64, 1)
    assert surface.decode_ms(passive, "q8_0", SETTINGS, 64, 1) > surface.decode_ms(
        World(2), "q8_0", SETTINGS, 64, 1
    )


def test_phases_depend_on_their_own_settings_only():
    world = World(cpus=4)
    assert surface.prefill_ms(world, "q8_0", SETTINGS, 64) == surface.prefill_ms(
        world, "q8_0", {**SETTINGS, "n_threads": 1}, 64
    )
    assert surface.decode_ms(world, "q8_0", SETTINGS, 64, 1) == surface.decode_ms(
        world, "q8_0", {**SETTINGS, "n_threads_batch": 1, "n_ubatch": 16}, 64, 1
    )


def test_the_maker_writes_a_file_that_says_its_variant(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"any")
    make.main([str(source), str(target), json.dumps({"variant": "q8_0"})])
    assert files.variant_of(target) == "q8_0"
    assert files.variant_of(source) == "source"
    assert file_of("bf16", tmp_path).stat().st_size > target.stat().st_size


@pytest.mark.parametrize(
    ("variant", "kl_low", "kl_high", "top1_low", "top1_high"),
    [
        ("f16", 0.0, 0.0, 1.0, 1.0),
        ("bf16", 0.0, 0.001, 0.99, 1.0),
        ("source", 0.0, 0.002, 0.98, 1.0),
        ("q8_0", 0.0003, 0.01, 0.97, 1.0),
        ("q4_0", 0.1, 0.6, 0.5, 0.9),
    ],
)
def test_q8_0_passes_near_lossless_and_q4_0_fails(
    variant: str, kl_low: float, kl_high: float, top1_low: float, top1_high: float, tmp_path: Path
):
    tokens = text.tokenize("A sentence that is long enough to judge by, twice over and again." * 6)

    def logits(name: str) -> np.ndarray:
        scorer = SimulatedScorer()
        scorer.load(file_of(name, tmp_path) if name != "source" else Path(__file__), {})
        scorer.start()
        return np.concatenate([scorer.feed(tokens[:100]), scorer.feed(tokens[100:])]).astype(float)

    def log_softmax(rows: np.ndarray) -> np.ndarray:
        shifted = rows - rows.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    true, seen = log_softmax(logits("f16")), log_softmax(logits(variant))
    assert kl_low <= (np.exp(true) * (true - seen)).sum(axis=1).mean() <= kl_high
    best = np.sort(np.exp(true), axis=1)
    clear = best[:, -1] - best[:, -2] >= 0.1
    agreement = (true.argmax(axis=1) == seen.argmax(axis=1))[clear].mean()
    assert top1_low <= agreement <= top1_high


def test_nan_logits_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(faults.VARIABLE, '{"q8_0": "nan"}')
    scorer = SimulatedScorer()
    scorer.load(file_of("q8_0", tmp_path), {})
    scorer.start()
    assert np.isnan(scorer.feed([5, 6])).all()


def test_an_outlier_is_too_fast_by_ten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(faults.VARIABLE, '{"*": ["outlier"]}')
    session = SimulatedSession()
    session.load(file_of("q8_0", tmp_path), {})
    session.configure({name: value for name, value in SETTINGS.items() if name != "repack"}, 512, 1)
    times = []
    for _ in range(9):
        began = session.now_ns()
        session.add([9] * 100, 1)
        session.step()
        times.append(session.now_ns() - began)
    assert times[8] == pytest.approx(times[0] / 10, rel=1e-3)


@pytest.mark.parametrize("variable", [faults.VARIABLE, surface.VARIABLE])
def test_a_misspelt_wish_is_an_error(variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(variable, '{"*": "segv_on_tuesday"}')
    check: dict[str, Callable[[], object]] = {
        faults.VARIABLE: lambda: faults.active("q8_0"),
        surface.VARIABLE: World.from_environment,
    }
    with pytest.raises(EngineError, match="unknown"):
        check[variable]()
