"""What popular articles advise, as a peer: their values, combined, the best one measured by our own bench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiles.vocabulary import Config, Setting, Workload
from tests.benchmarks.peers.build import PeersError
from tests.benchmarks.peers.contestant import Contestant, Deadline
from tests.benchmarks.peers.llama_bench import within_budget
from tuner.errors import WorkerError
from tuner.search.objectives import measured_value, objective_of
from tuner.search.ports import Runner

NAME = "articles' rules"
BATCHES = (512, 128, 8)
UBATCHES = (512, 16, 8)
"""512 is to leave it alone; the smaller of both sizes is what is computed at once."""


def axes(cores: int) -> list[list[Mapping[str, Setting]]]:
    """The articles' values: threads = cores, half, 1.5 times; batches; KV q8_0; mapping on and off."""
    threads = dict.fromkeys((cores, max(cores // 2, 1), cores * 3 // 2))
    batches = dict.fromkeys(min(batch, ubatch) for batch in BATCHES for ubatch in UBATCHES)
    return [
        [{"n_threads": n, "n_threads_batch": n} for n in threads],
        [{"n_ubatch": size} for size in batches],
        # A quantized V cache needs flash attention.
        [{}, {"type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"}],
        [{"mmap": True}, {"mmap": False}],
    ]


def search(runner: Runner, cells: Sequence[Config], workload: Workload, deadline: Deadline) -> Contestant:
    """The best of the rules' combinations, one full round each."""

    def run(config: Config) -> float:
        try:
            rounds = runner.measure(config, rounds=1, kind="full").rounds
            return measured_value(objective_of(workload), workload, rounds)
        except WorkerError as failure:
            raise PeersError(failure.reason) from failure

    return within_budget(NAME, cells, run, deadline)
