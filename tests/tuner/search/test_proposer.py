"""Proposals are new, allowed, cheap to reach, and stop when nothing better is likely."""

import time

import pytest

from profiles.vocabulary import WORKLOADS, Objective
from tests.support.surface import FakeClock, SurfaceRunner, space_of
from tuner.engines.base import Phase, Scope
from tuner.search.ledger import Ledger
from tuner.search.proposer import Proposer
from tuner.search.table import ENOUGH_ROUNDS

RESPONSE = Objective("response_ms")


class Bench:
    """Measures what is proposed, without noise."""

    def __init__(self, space, objective=RESPONSE, excluded=lambda _: False, seed=0):
        self.space = space
        self.ledger = Ledger(space, objective)
        self.runner = SurfaceRunner(space, FakeClock(), noise=0.005)
        self.proposer = Proposer(space, objective, self.ledger, seed=seed, excluded=excluded)
        self.last = None

    def measure(self, config):
        missing = self.ledger.lacking(config, ENOUGH_ROUNDS)
        self.ledger.add(config, self.runner.measure(config, rounds=1, phases=missing).rounds)
        self.last = config
        return missing

    def best(self):
        return next(iter(self.ledger.ranked()), None)

    def propose(self):
        return self.proposer.propose(self.last, self.best())


@pytest.fixture
def small(machine):
    return space_of(machine, WORKLOADS["chat"], ("source", "q8_0"))


def test_every_proposal_has_something_to_measure_and_the_best_comes_early(small):
    bench = Bench(small)
    bench.measure(small.default("simulated"))
    for _ in range(60):
        assert bench.measure(bench.propose())
    best_ms = min(bench.runner.response_ms(config) for config in small.everything())
    assert bench.runner.response_ms(bench.best().config) < 1.01 * best_ms


def test_without_an_incumbent_it_draws_blindly(small):
    bench = Bench(small)
    assert bench.propose() in small.everything()


def test_everything_known_ends_the_proposals(machine):
    space = space_of(machine, WORKLOADS["chat"], ("source",))
    bench = Bench(space)
    for phase in Phase:
        for config in space.listed(phase, None) * ENOUGH_ROUNDS:
            bench.measure(config)
    assert bench.propose() is None


def test_what_is_excluded_is_never_proposed(small):
    def excluded(config):
        return config.variant == "q8_0" or config.get("n_ubatch") == 128 or config.get("type_k") != "f16"

    bench = Bench(small, excluded=excluded)
    bench.measure(small.default("simulated"))
    for _ in range(40):
        config = bench.propose()
        if config is None:
            break
        assert not excluded(config)
        bench.measure(config)


def test_all_excluded_ends_the_proposals(small):
    bench = Bench(small, excluded=lambda _: True)
    assert bench.propose() is None


def test_it_settles_when_an_improvement_is_unlikely(machine):
    space = space_of(machine, WORKLOADS["chat"], ("q8_0",))
    bench = Bench(space)
    bench.measure(space.make("simulated", "q8_0", {}))
    proposals = 0
    while not bench.proposer.is_settled:
        bench.measure(bench.propose())
        proposals += 1
        assert proposals < 150
    best_ms = min(bench.runner.response_ms(config) for config in space.everything())
    assert bench.runner.response_ms(bench.best().config) < 1.02 * best_ms


def test_the_same_seed_proposes_the_same(small):
    def run():
        bench = Bench(small, seed=5)
        bench.measure(small.default("simulated"))
        found = []
        for _ in range(12):
            found.append(bench.propose())
            bench.measure(found[-1])
        return found

    assert run() == run()


def test_dear_switches_are_put_off(small):
    bench = Bench(small)
    bench.measure(small.default("simulated"))
    for _ in range(20):
        bench.proposer.switched(Scope.PROCESS, 1000.0)
        bench.proposer.switched(Scope.LOAD, 1000.0)
    scopes = []
    for _ in range(8):
        config = bench.propose()
        scopes.append(small.switch(bench.last, config))
        bench.measure(config)
    assert all(scope is None or scope < Scope.LOAD for scope in scopes)


def test_several_streams_are_searched_too(machine):
    space = space_of(machine, WORKLOADS["batch"], ("source", "q8_0"))
    bench = Bench(space, Objective("decode_tps", "maximize"))
    bench.measure(space.default("simulated"))
    first = bench.best().cost
    for _ in range(20):
        bench.measure(bench.propose())
    assert bench.best().cost < first


def test_a_large_space_is_proposed_from_in_little_time(machine):
    from tests.benchmarks.synthetic import llama_space

    space = llama_space(32)
    assert space.combinations > 100_000
    ledger = Ledger(space, RESPONSE)
    runner = SurfaceRunner(space, FakeClock())
    proposer = Proposer(space, RESPONSE, ledger, seed=0, excluded=lambda _: False)
    runner.true_ms = lambda config: (100.0 + len(config.variant), 5.0)
    config = space.default("llama_cpp")
    spent_s = []
    for _ in range(6):
        ledger.add(config, runner.measure(config, rounds=1).rounds)
        began = time.process_time()
        config = proposer.propose(config, ledger.ranked()[0])
        spent_s.append(time.process_time() - began)
    # 50 ms on a quiet machine; ten times that here says nothing of the machine, only of the method.
    assert min(spent_s) < 0.5
