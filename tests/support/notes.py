"""A recorder that remembers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notes:
    begun: list = field(default_factory=list)
    ended: list = field(default_factory=list)
    more: list = field(default_factory=list)

    def begin(self, config):
        self.begun.append(config)
        return len(self.begun)

    def finish(self, trial, config, status, reason, value, measured):
        self.ended.append((config, status, reason, measured))

    def more_rounds(self, config, rounds):
        self.more.append((config, rounds))
