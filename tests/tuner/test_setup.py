"""What a search is set up from: the model, the engines that run, the space."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import probe
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS
from tests.support.flow import Flow
from tests.support.tiny import write_tiny_model
from tuner import setup
from tuner.engines.base import Availability
from tuner.errors import EngineUnavailableError, ModelFileError, UsageError
from tuner.events import Event, ignore
from tuner.measurement import availability as measured
from tuner.request import SearchRequest
from tuner.setup import build_space, choose_model, open_study, open_workshop, running_engines
from tuner.workshop import Workshop


@pytest.fixture
def with_shop(flow: Flow) -> Callable[..., None]:
    """Call something with the workshop of a request."""

    def call(use: Callable[[Workshop], None], **changes: object) -> None:
        with flow.store() as store:
            shop = open_workshop(flow.request(**changes), probe(), store, flow.home, ignore)
            try:
                use(shop)
            finally:
                shop.close()

    return call


def test_a_model_is_found_by_its_name_by_its_path_and_alone(flow: Flow, tmp_path: Path):
    with flow.store() as store:
        _, by_path = choose_model(store, flow.home, str(flow.model))
        _, by_name = choose_model(store, flow.home, "tiny")
        _, alone = choose_model(store, flow.home, None)
        assert by_path == by_name == alone
        choose_model(store, flow.home, str(write_tiny_model(tmp_path / "other.gguf", weight=0.03)))
        with pytest.raises(UsageError, match=r"2 models are registered \(other, tiny\)"):
            choose_model(store, flow.home, None)


def test_a_name_that_is_neither_registered_nor_a_file(flow: Flow):
    with flow.store() as store:
        choose_model(store, flow.home, str(flow.model))
        with pytest.raises(ModelFileError, match=r"no model 'tini' is registered .*; did you mean tiny"):
            choose_model(store, flow.home, "tini")
        with pytest.raises(ModelFileError, match=r"/no/such\.gguf does not exist"):
            choose_model(store, flow.home, "/no/such.gguf")


def test_an_engine_that_does_not_run_is_a_note_while_another_does(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
):
    def answers(engines, **_options):
        caution = Availability("simulated", True, "1", note="a word of caution")
        lacking = [Availability(engine.name, False, reason="no such package") for engine in engines]
        return [caution if one.name == "simulated" else one for one in lacking]

    monkeypatch.setattr(setup, "availabilities", answers)
    notes: list[Event] = []
    with flow.store() as store:
        _, model = choose_model(store, flow.home, str(flow.model))
        found = running_engines(("simulated", "llama_cpp"), probe(), model, notes.append)
        assert set(found) == {"simulated"}
        assert [event.message for event in notes] == [
            "simulated: a word of caution", "not used: llama_cpp: no such package",
        ]  # fmt: skip
        with pytest.raises(EngineUnavailableError, match="llama_cpp: no such package"):
            running_engines(("llama_cpp",), probe(), model, ignore)


def test_the_simulated_engine_is_used_only_where_it_is_named(flow: Flow, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def answers(engines, **_options):
        asked.extend(engine.name for engine in engines)
        return [Availability(engine.name, True, "1") for engine in engines]

    monkeypatch.setattr(setup, "availabilities", answers)
    with flow.store() as store:
        _, model = choose_model(store, flow.home, str(flow.model))
        running_engines(None, probe(), model, ignore)
    assert "simulated" not in asked
    assert asked


def test_values_that_kill_this_build_are_not_searched(with_shop, monkeypatch: pytest.MonkeyPatch):
    real = measured.availabilities

    def unsafe(engines, **options):
        return [replace(found, unsafe=(("flash_attn", "on"),)) for found in real(engines, **options)]

    monkeypatch.setattr(setup, "availabilities", unsafe)

    request = SearchRequest(None, WORKLOADS["chat"], QUALITY_LEVELS["any"], engines=("simulated",))

    def check(shop: Workshop) -> None:
        space = build_space(request, shop)
        assert space.part("simulated").by_name["flash_attn"].values == ("off",)

    with_shop(check)


def test_only_the_asked_variants_are_in_the_space(flow: Flow, with_shop):
    def check(shop: Workshop) -> None:
        request = flow.request(variants=("q8_0",))
        assert build_space(request, shop).part("simulated").variants == ("q8_0",)
        with pytest.raises(UsageError, match=r"unknown variant 'q9_0'.*did you mean q8_0"):
            build_space(flow.request(variants=("q9_0",)), shop)

    with_shop(check)


def test_a_study_is_resumed_while_nothing_changed_and_begun_anew_for_another_build(
    flow: Flow, with_shop, monkeypatch: pytest.MonkeyPatch
):
    def check(shop: Workshop) -> None:
        space = build_space(flow.request(), shop)
        first = open_study(flow.request(), shop, space)
        assert open_study(flow.request(seed=2), shop, space).id == first.id
        assert open_study(flow.request(fresh=True), shop, space).id != first.id
        second = open_study(flow.request(), shop, space)
        monkeypatch.setattr(Workshop, "build", lambda _shop, _engine: "simulated 2")
        assert open_study(flow.request(), shop, space).id not in {first.id, second.id}

    with_shop(check)


def test_the_sampler_is_stored_with_the_study(flow: Flow, with_shop):
    def check(shop: Workshop) -> None:
        study = open_study(flow.request(seed=137), shop, build_space(flow.request(), shop))
        assert (study.seed, bool(study.sampler)) == (137, True)

    with_shop(check)
