"""Landscapes of several engines: replayed by every strategy, and all engines against each alone."""

from dataclasses import replace

import pytest

from tests.benchmarks import by_engine, synthetic
from tests.benchmarks.by_engine import ALL, Compared, cost_at_end
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.replay import Truth
from tests.benchmarks.report import opened
from tests.benchmarks.strategies import STRATEGIES
from tests.support.surface import RUINED
from tuner.engines.base import Phase

NAME = "made-up:engines-2"


@pytest.fixture(scope="module")
def engines():
    return opened(NAME)


def test_the_made_up_engines_differ_as_they_are_meant_to(engines):
    land, truth, _ = engines
    defaults = {name: truth.cost(land.space.default(name)) for name in ("llama_cpp", "onnxruntime")}
    assert truth.best.engine == "onnxruntime"
    assert defaults["onnxruntime"] > defaults["llama_cpp"]
    hopeless = [
        truth.phase_ms(config, Phase.DECODE)
        for config in land.wanted()[Phase.DECODE]
        if config.engine == "transformers"
    ]
    assert min(hopeless) > 5 * truth.phase_ms(truth.best, Phase.DECODE)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_searches_all_engines(engines, name):
    """By hand, that engine is tuned whose default is the fastest."""
    land, truth, grid_s = engines
    advice = STRATEGIES[name](land, grid_s, 0).at(grid_s)
    assert advice.engine == ("llama_cpp" if name == "by hand" else "onnxruntime")
    assert truth.regret(advice) < truth.regret(land.space.default("llama_cpp"))


def test_by_hand_tunes_the_engine_with_the_fastest_default(engines):
    land, _, grid_s = engines
    space = land.space
    first, second, last = space.engines
    turned = replace(land, space=replace(space, engines=(last, first, second)))
    assert STRATEGIES["by hand"](turned, grid_s, 0).at(grid_s).engine == "llama_cpp"


def test_a_file_of_several_engines_is_replayed(engines, tmp_path, capsys):
    path = tmp_path / "engines.json.gz"
    engines[0].save(path)
    assert Truth(Landscape.load(path)).best == engines[1].best
    by_engine.main([str(path), "--seeds", "2", "--horizon", "120"])
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == ["| search over", "| all engines", "| llama_cpp", "| onnxruntime", "| transformers"]


def test_a_search_of_one_engine_advises_that_engine(engines):
    _, truth, _ = engines
    alone = {name: cost_at_end(NAME, name, 120.0, 0) for name in ("llama_cpp", "onnxruntime", "transformers")}
    assert alone["onnxruntime"] == pytest.approx(truth.cost(truth.best), rel=0.03)
    assert alone["onnxruntime"] < alone["llama_cpp"] < alone["transformers"] / 5


def test_quality_is_that_of_all_engines(tmp_path):
    """Alone, an engine's default would be taken as given."""
    land = synthetic.engines(2, seed=1)
    land.quality = {
        key: RUINED if key.engine == "transformers" else quality for key, quality in land.quality.items()
    }
    path = tmp_path / "ruined.json.gz"
    land.save(path)
    assert cost_at_end(str(path), "transformers", 120.0, 0) == float("inf")


def test_one_engine_has_nothing_to_be_compared_with(engines, tmp_path):
    land = engines[0]
    path = tmp_path / "one.json.gz"
    replace(land, space=replace(land.space, engines=land.space.engines[:1])).save(path)
    with pytest.raises(SystemExit, match="holds one engine"):
        by_engine.main([str(path), "--seeds", "1"])


def compared(everything, alone):
    return Compared("made", 60.0, 100.0, {ALL: everything, "a": alone, "b": [float("inf")] * len(alone)})


@pytest.mark.parametrize(
    ("everything", "within"),
    [
        ([100.0] * 20, True),
        ([102.9] * 20, True),
        ([103.1] * 20, False),
        ([100.0] * 18 + [150.0] * 2, False),
        ([float("inf")] * 20, False),
    ],
)
def test_the_limit_holds_at_the_median_and_at_the_95th_percentile(everything, within):
    found = compared(everything, [100.0] * 20)
    assert found.best_alone == "a"
    assert found.is_within is within
    assert f"best alone (a): {'kept' if within else 'NOT KEPT'}" in found.table()


def test_an_engine_without_an_answer_is_shown_as_such():
    assert "| b | no answer / no answer | - / - |" in compared([101.0] * 3, [100.0] * 3).table()


def test_the_command_fails_where_the_limit_is_not_kept(monkeypatch, capsys):
    found = {"kept": compared([100.0], [100.0]), "lost": compared([110.0], [100.0])}
    monkeypatch.setattr(by_engine, "compare", lambda name, seeds, **_: found[name])
    assert by_engine.main(["kept"]) == 0
    assert by_engine.main(["kept", "lost"]) == 1
    assert "NOT KEPT" in capsys.readouterr().out
