"""A configuration with all that it takes to start it elsewhere: file, context, streams, CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from probes.machine import Machine
from profiles.vocabulary import Config, Setting, Workload
from tuner.errors import UsageError
from tuner.measurement import placement

LLAMA_CPP = "llama_cpp"
LEAST_BATCH = 512
"""The logical batch that configurations are measured with; a larger ubatch raises it."""


@dataclass(frozen=True)
class Launch:
    """What is started: `context_tokens` is one stream's, `cpus` where it may run (None: anywhere).

    `remarks` are lines that stand above an export: what it is, and how good it was.
    """

    config: Config
    model_path: str
    context_tokens: int
    streams: int = 1
    cpus: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        config: Config,
        model_path: str,
        workload: Workload,
        machine: Machine,
        remarks: tuple[str, ...] = (),
    ) -> Self:
        """The launch of a configuration for a workload on this machine.

        Raises UsageError where its placement means nothing here.
        """
        cpus = placement.affinity(config, machine)
        return cls(config, model_path, workload.context_tokens, workload.streams, cpus, remarks)

    def setting(self, name: str, default: Setting) -> Setting:
        """A setting, or what the engine does where it is left out."""
        value = self.config.get(name)
        return default if value is None else value

    @property
    def slots(self) -> int:
        """How many of the streams run at a time; the others wait for their turn."""
        return int(self.setting("active_streams", self.streams))

    @property
    def batch(self) -> int:
        """Tokens of the logical batch."""
        return max(LEAST_BATCH, int(self.setting("n_ubatch", LEAST_BATCH)))

    @property
    def variables(self) -> Mapping[str, str]:
        """What the environment must hold before the program starts."""
        return placement.variables(self.config)

    @property
    def node(self) -> int | None:
        """The NUMA node of the placement; None for any other one."""
        return placement.node(self.config)

    def require(self, engine: str, target: str) -> None:
        """UsageError where the target runs another engine."""
        if self.config.engine != engine:
            raise UsageError(
                f"{target} runs {engine}, this configuration is for {self.config.engine}:"
                " allowed are yaml and json"
            )


def comments(lines: tuple[str, ...]) -> str:
    """Lines as comments, each ended; "" for none."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
