"""A pytest suite that every engine passes, ours or a third party's: subclass it with four fixtures.

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def engine(self): return MyEngine()
        # and `machine`, `model` and `model_path` likewise

Sessions run in the test's own process, so run one native engine per pytest process.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner import process
from tuner.engines import resolve
from tuner.engines.base import FOLDERS, Dimension, Engine, EngineError, Sampling, Scope, Session, Token

HEAVY = ("llama_cpp", "numpy", "onnxruntime", "openvino", "torch", "transformers", "optuna", "sqlmodel")
WORKLOADS = (Workload("one", 96, 16), Workload("many", 48, 16, streams=3, objective="decode_tps"))


class EngineContract:
    """What the protocols of `tuner.engines.base` promise, as tests."""

    @pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.name)
    def workload(self, request: pytest.FixtureRequest) -> Workload:
        """One stream, then several."""
        return cast("Workload", request.param)

    @pytest.fixture
    def default(self, engine: Engine, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """The engine's default within the effective CPUs, so that it can run here."""
        config = engine.default(machine, model, workload)
        limit = machine.effective.cpu_count
        threads = {
            dimension.name: min(int(config.as_dict()[dimension.name]), limit)
            for dimension in engine.dimensions(machine, model, workload)
            if dimension.role is Role.THREADS
        }
        return config.with_settings(**threads)

    @pytest.fixture
    def described(
        self, engine: Engine, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Dimension, ...]:
        """The engine's dimensions."""
        return engine.dimensions(machine, model, workload)

    @pytest.fixture
    def open_session(
        self, engine: Engine, described: tuple[Dimension, ...], default: Config, model_path: Path
    ) -> Iterator[Callable[[int, int], Session]]:
        """Opens a session on the default for (context tokens a stream, streams); closes them all."""
        opened: list[Session] = []

        def make(context_tokens: int, streams: int) -> Session:
            session = cast("Session", cast("Callable[[], object]", resolve(engine.session))())
            opened.append(session)
            session.load(model_path, scoped(described, default, lambda scope: scope >= Scope.LOAD))
            session.configure(
                scoped(described, default, lambda scope: scope <= Scope.CONTEXT), context_tokens, streams
            )
            return session

        yield make
        for session in opened:
            session.close()

    # --- the description -----------------------------------------------------------------------

    def test_describing_imports_nothing_heavy(self, engine: Engine) -> None:
        """Descriptions serve `--help` and advice, where no engine may be installed."""
        code = (
            "import json, sys\n"
            f"import {type(engine).__module__} as module\n"
            f"engine = module.{type(engine).__qualname__}()\n"
            "engine.probe_code(), engine.maker(), engine.session, engine.scorer\n"
            "print(json.dumps(sorted(sys.modules)))\n"
        )
        ending = process.run([sys.executable, "-P", "-c", code], deadline_s=60)
        assert ending.returncode == 0, ending.log_tail
        assert sorted(set(json.loads(ending.stdout)) & set(HEAVY)) == []

    def test_references_name_a_module_and_a_class(self, engine: Engine) -> None:
        """Only a worker imports them."""
        for reference in (engine.session, engine.scorer, *([engine.everyday] if engine.everyday else [])):
            module, colon, name = reference.partition(":")
            assert module, reference
            assert colon == ":", reference
            assert name.isidentifier(), reference

    def test_dimensions_are_complete(
        self,
        engine: Engine,
        machine: Machine,
        model: ModelInfo,
        workload: Workload,
        described: tuple[Dimension, ...],
    ) -> None:
        """Unique names, values without repeats, a role and a scope each, the default named for each."""
        names = [dimension.name for dimension in described]
        assert len(names) == len(set(names))
        default = engine.default(machine, model, workload)
        assert default.engine == engine.name
        assert default.variant == engine.recipes(model)[0].label
        for dimension in described:
            assert isinstance(dimension.scope, Scope)
            assert isinstance(dimension.role, Role)
            assert dimension.values, dimension.name
            assert len(set(dimension.values)) == len(dimension.values), dimension
            assert default.get(dimension.name) == dimension.default, dimension

    def test_thread_counts_stay_within_the_effective_cpus(
        self, machine: Machine, described: tuple[Dimension, ...]
    ) -> None:
        """P18, S16: never more threads than CPUs, and 1 is always tried."""
        for dimension in described:
            if dimension.role is Role.THREADS:
                assert min(dimension.values) == 1
                assert max(int(value) for value in dimension.values) <= machine.effective.cpu_count

    def test_recipes_are_complete(self, engine: Engine, model: ModelInfo) -> None:
        """Labels are unique and announced; every step says who makes what; the source is the file itself."""
        recipes = engine.recipes(model)
        labels = [recipe.label for recipe in recipes]
        assert len(labels) == len(set(labels))
        assert set(labels) <= set(engine.variant_labels)
        for recipe in (*recipes, engine.reference(model)):
            assert recipe.label
            assert recipe.is_source == (not recipe.chain)
            for step in recipe.chain:
                assert step.estimated_bytes > 0
                assert step.format in (*FOLDERS, *engine.formats)
                module = step.maker or engine.maker()
                assert importlib.util.find_spec(module) is not None, module

    def test_a_model_that_can_not_be_taken_is_refused_in_one_line(
        self, engine: Engine, model: ModelInfo
    ) -> None:
        """This one can; of one that can't the reason names what it is."""
        assert model.format in engine.formats
        assert engine.refuses(model) is None
        foreign = replace(model, architecture="no-such-architecture")
        reason = engine.refuses(foreign)
        assert reason is None or ("no-such-architecture" in reason and "\n" not in reason)

    def test_canonical_is_idempotent_and_keeps_what_it_must(
        self,
        engine: Engine,
        machine: Machine,
        model: ModelInfo,
        workload: Workload,
        described: tuple[Dimension, ...],
        default: Config,
    ) -> None:
        """For every value of every dimension, on every variant."""
        for recipe in engine.recipes(model):
            for config in neighbours(described, Config(default.engine, recipe.label, default.settings)):
                once = engine.canonical(config, model, workload)
                assert engine.canonical(once, model, workload) == once
                assert (once.engine, once.variant) == (config.engine, config.variant)
                assert set(once.as_dict()) == set(config.as_dict())

    def test_violations_name_the_setting(
        self,
        engine: Engine,
        machine: Machine,
        model: ModelInfo,
        workload: Workload,
        described: tuple[Dimension, ...],
        default: Config,
    ) -> None:
        """The default and the starts can run; what can't says why in one line; too many threads can't."""
        assert engine.violation(default, machine, model, workload) is None
        for start in engine.starts(machine, model, workload):
            assert set(start) <= {dimension.name for dimension in described}
            assert engine.violation(default.with_settings(**start), machine, model, workload) is None
        for config in neighbours(described, default):
            reason = engine.violation(config, machine, model, workload)
            assert reason is None or (reason and "\n" not in reason)
        for dimension in described:
            if dimension.role is Role.THREADS:
                many = default.with_settings(**{dimension.name: 4096})
                assert dimension.name in (engine.violation(many, machine, model, workload) or "")

    # --- the session ---------------------------------------------------------------------------

    def test_effective_settings_are_as_asked_or_absent(
        self, described: tuple[Dimension, ...], default: Config, open_session: Callable[[int, int], Session]
    ) -> None:
        """E12: what a wrapper drops on the way must not pass for what was asked."""
        session = open_session(128, 1)
        effective = session.effective()
        for name, value in default.settings:
            assert effective.get(name, value) == value, name
        assert session.built().version
        assert session.built().build

    def test_run_settings_change_on_a_living_context(
        self, described: tuple[Dimension, ...], default: Config, open_session: Callable[[int, int], Session]
    ) -> None:
        """A change of run scope alone keeps the context usable and is read back."""
        session = open_session(128, 1)
        for dimension in described:
            for value in dimension.values if dimension.scope is Scope.RUN else ():
                changed = default.with_settings(**{dimension.name: value})
                session.configure(scoped(described, changed, lambda scope: scope <= Scope.CONTEXT), 128, 1)
                assert session.effective().get(dimension.name, value) == value
        assert len(finish(session, [session.add(prompt(20), 3, ignore_eos=True)])[0]) == 3

    def test_output_is_exact_when_the_end_is_ignored(
        self, open_session: Callable[[int, int], Session]
    ) -> None:
        """One "length" at the end, no finish before it, nothing after it; also for a single token."""
        session = open_session(160, 1)
        for length in (1, 40):
            (tokens,) = finish(session, [session.add(prompt(70), length, ignore_eos=True)])
            assert [token.finish for token in tokens] == [None] * (length - 1) + ["length"]
            assert session.step() == []

    def test_nothing_is_computed_before_step(self, open_session: Callable[[int, int], Session]) -> None:
        """TTFT begins with `add`; the clock never goes back."""
        session = open_session(128, 1)
        before = session.now_ns()
        session.add(prompt(60), 2, ignore_eos=True)
        added = session.now_ns()
        while not session.step():
            pass
        assert before <= added < session.now_ns()

    def test_interleaved_streams_are_kept_apart(self, open_session: Callable[[int, int], Session]) -> None:
        """Requests join between steps; each gets as many tokens as it asked for."""
        session = open_session(128, 3)
        first = session.add(prompt(30), 12, ignore_eos=True)
        tokens = session.step()
        second = session.add(prompt(50, start=40), 5, ignore_eos=True)
        third = session.add(prompt(10, start=90), 8, ignore_eos=True)
        assert len({first, second, third}) == 3
        rest = finish(session, [first, second, third])
        assert [len(tokens) + len(rest[0]), len(rest[1]), len(rest[2])] == [12, 5, 8]

    def test_greedy_output_repeats(self, open_session: Callable[[int, int], Session]) -> None:
        """The same prompt, computed anew, gives the same tokens."""
        session = open_session(128, 1)
        one, two = (
            finish(session, [session.add(prompt(40), 10, sampling=Sampling(), ignore_eos=True)])[0]
            for _ in range(2)
        )
        assert [token.token for token in one] == [token.token for token in two]

    def test_a_reused_prefix_changes_time_only(self, open_session: Callable[[int, int], Session]) -> None:
        """S12: without `reuse_prefix` the same prompt again is computed again; what was reused is told."""
        session = open_session(224, 1)
        times, outputs = [], []
        for reuse in (False, False, True):
            begun = session.now_ns()
            sequence = session.add(prompt(160), 4, ignore_eos=True, reuse_prefix=reuse)
            got: list[Token] = []
            while not got:
                got = session.step()
            times.append(session.now_ns() - begun)
            assert session.reused(sequence) == (159 if reuse else 0)
            outputs.append([token.token for token in got + finish(session, [sequence])[0]])
        assert outputs[0] == outputs[1]
        assert len(outputs[2]) == 4
        assert times[2] < 0.6 * min(times[:2])

    def test_cancel_frees_the_stream(self, open_session: Callable[[int, int], Session]) -> None:
        """Running, not yet begun, finished or unknown: cancel is safe, and others go on."""
        session = open_session(128, 2)
        kept = session.add(prompt(20), 10, ignore_eos=True)
        dropped = session.add(prompt(20, start=50), 10, ignore_eos=True)
        session.step()
        session.cancel(dropped)
        session.cancel(dropped)
        session.cancel(10**6)
        rest = finish(session, [kept, dropped])
        assert len(rest[0]) in (9, 10)
        assert rest[1] == []
        session.cancel(kept)
        again = session.add(prompt(20), 2, ignore_eos=True)
        session.cancel(again)
        assert session.step() == []

    def test_text_survives_the_tokenizer(
        self, model: ModelInfo, open_session: Callable[[int, int], Session]
    ) -> None:
        """Words in, the same words out."""
        if not model.has_tokenizer:
            pytest.skip("this model has no tokenizer")
        session = open_session(128, 1)
        text = "the quick brown fox"
        assert text.encode() in session.detokenize(session.tokenize(text))
        assert session.detokenize(session.tokenize(text, leading=False)) == text.encode()
        if model.has_chat_template:
            assert text in (session.chat_prompt([{"role": "user", "content": text}]) or "")

    def test_what_can_not_be_done_is_an_engine_error(
        self, open_session: Callable[[int, int], Session]
    ) -> None:
        """A prompt that the context can't hold is refused, and the session stays usable."""
        session = open_session(128, 1)
        with pytest.raises(EngineError):
            finish(session, [session.add(prompt(4000), 8, ignore_eos=True)])
        assert len(finish(session, [session.add(prompt(20), 2, ignore_eos=True)])[0]) == 2

    def test_a_missing_file_is_an_engine_error(self, engine: Engine, tmp_path: Path) -> None:
        """Or an OSError: the worker reports both as the engine's."""
        session = cast("Session", cast("Callable[[], object]", resolve(engine.session))())
        with pytest.raises((EngineError, OSError)):
            session.load(tmp_path / "absent.gguf", {})
        session.close()

    def test_close_frees_and_may_be_repeated(self, open_session: Callable[[int, int], Session]) -> None:
        """Also with a request under way."""
        session = open_session(128, 1)
        session.add(prompt(20), 5, ignore_eos=True)
        session.step()
        session.close()
        session.close()


def scoped(
    described: Sequence[Dimension], config: Config, wanted: Callable[[Scope], bool]
) -> Mapping[str, Setting]:
    """The settings of a configuration whose scope is wanted."""
    scopes = {dimension.name: dimension.scope for dimension in described}
    return {name: value for name, value in config.settings if wanted(scopes[name])}


def neighbours(described: Sequence[Dimension], config: Config) -> Iterator[Config]:
    """The configuration with each setting in turn at each of its values."""
    for dimension in described:
        for value in dimension.values:
            yield config.with_settings(**{dimension.name: value})


def prompt(length: int, start: int = 20) -> list[int]:
    """Token ids that every vocabulary has."""
    return [start + i % 50 for i in range(length)]


def finish(session: Session, sequences: Sequence[int]) -> list[list[Token]]:
    """Step until nothing runs; the tokens of each sequence from here on."""
    found: dict[int, list[Token]] = {sequence: [] for sequence in sequences}
    idle = 0
    while idle < 3:
        tokens = session.step()
        # A step may only prefill; three empty ones in a row are the end.
        idle = 0 if tokens else idle + 1
        for token in tokens:
            found[token.sequence].append(token)
    return [found[sequence] for sequence in sequences]
