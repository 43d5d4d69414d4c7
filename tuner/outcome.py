"""What a search came to, before it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.records import Conditions, ProfileStatus
from profiles.vocabulary import Config, Interval
from tuner.search.by_engine import EngineBest
from tuner.search.confirm import Confirmation
from tuner.search.ledger import Estimate
from tuner.search.limits import Broken, Metrics
from tuner.search.policy import Tried

SAME = Interval(1.0, 1.0, 1.0, 1.0)
"""The speed-up of the default over itself."""


@dataclass(frozen=True)
class Outcome:
    """What a search came to. `confirmation` is None where the default itself is the best that was found.

    `known` holds what is measured once a process (memory, load) by configuration. `default_unkept` says why
    the default may not be published, `nearest` which configuration breaks the limits by the least.
    """

    baseline: Config
    best: Config
    runners_up: tuple[Estimate, ...]
    confirmation: Confirmation | None
    comparison_id: int | None
    conditions: Conditions
    dropped_rounds: int
    elapsed_s: float
    ended: str | None = None
    """Why the search stopped although there was time left."""
    busy_share: float = 0.0
    """The weight of times beside a busy neighbour in what was made best."""
    default_failure: str | None = None
    """Why the default itself does not run; `baseline` is the nearest that does then."""
    known: Mapping[Config, Metrics] = field(default_factory=dict)
    default_unkept: tuple[str, ...] = ()
    unconfirmed: str | None = None
    """Why leaders could not be confirmed, where the default is published for that."""
    nearest: tuple[Config, tuple[Broken, ...]] | None = None
    throttling: Mapping[str, float] = field(default_factory=dict)
    """How often heat or a quota slowed the CPUs while it ran (`tuner.environment`)."""
    policies: tuple[Tried, ...] = ()
    """Mapping and locking, as tried around the winner."""
    engines: tuple[EngineBest, ...] = ()
    pareto: tuple[tuple[Config, Metrics], ...] = ()
    """With several engines: what nothing betters in speed, memory and quality at once."""
    reference: tuple[Config, float] | None = None
    """The reference engine as it comes, and its cost over that of the answer, by the search's own rounds."""
    front: tuple[tuple[Config, Metrics], ...] = ()
    """With two objectives: what no other one betters in both, by the search's own rounds."""

    @property
    def status(self) -> ProfileStatus:
        """Of the profile that is published."""
        return ProfileStatus(self.confirmation.status if self.confirmation else "no_gain")

    @property
    def profile_conditions(self) -> Conditions:
        """Of the profile: where other work disturbed even the quiet rounds, that is what it says."""
        return "background" if self.busy_share and self.conditions == "quiet" else self.conditions

    @property
    def published(self) -> Config:
        """The best, or the default where no gain is shown."""
        return self.baseline if self.status is ProfileStatus.NO_GAIN else self.best

    @property
    def keeps_default(self) -> bool:
        """Whether the answer is to change nothing."""
        return self.status is ProfileStatus.NO_GAIN and self.default_failure is None

    @property
    def speedup(self) -> Interval:
        """The default over the best, 1 where the default is the best."""
        return self.confirmation.speedup if self.confirmation else SAME

    @property
    def is_infeasible(self) -> bool:
        """Whether nothing may be published."""
        return self.published == self.baseline and bool(self.default_unkept)


@dataclass(frozen=True)
class Beside:
    """Numbers that stand beside the answer and decide nothing (`tuner.beside`); None where there are none."""

    everyday: Mapping[str, float] | None = None
    ceiling: Mapping[str, float] | None = None
