"""What commands print of a daemon's decisions, as models."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from profiles.records import PromotionAction


class Promotion(BaseModel):
    """A decision about a profile; `running` runs from then on, null for the engine's defaults.

    `other` ran before (promoted), stayed out (refused) or was given up (rolled_back). `numbers` are those of
    the comparison, how many times faster `ratio` is with its limits; empty where there was none.
    """

    at: str
    action: PromotionAction
    model: str
    workload: str
    machine: str
    running: str | None
    other: str | None
    reason: str
    numbers: dict[str, float]


class Rollback(BaseModel):
    """`cputune rollback --json`."""

    schema_version: Literal[1]
    promotion: Promotion
