"""A simulated session that is given no settings, as an engine's everyday interface."""

from __future__ import annotations

from collections.abc import Mapping

from profiles.vocabulary import Setting
from tuner.engines.simulated.session import SimulatedSession

REFERENCE = "tests.support.everyday:SimulatedEveryday"
_CHOICE: Mapping[str, Setting] = {
    "n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64,
    "flash_attn": "off", "type_k": "f16", "type_v": "f16",
}  # fmt: skip


class SimulatedEveryday(SimulatedSession):
    """Chooses its own settings and refuses others."""

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        assert not settings
        super().configure(_CHOICE, context_tokens, streams)
