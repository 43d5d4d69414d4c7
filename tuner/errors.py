"""Errors of searching and measuring; all under `probes.errors.CputuneError`.

CputuneError                     probes/errors.py
  UsageError                     an argument that is unknown or out of range
  NothingFeasibleError           no configuration keeps the limits
  ModelFileError                 a model that can't be used
  EngineUnavailableError         no engine can run here
  BusyError                      another search measures on this machine
  ServerError                    a running server that was to be measured does not answer as asked
  WorkerError                    a worker process ended, hung or refused: becomes a TrialStatus
"""

from __future__ import annotations

from probes.errors import CputuneError
from profiles.vocabulary import TrialStatus


class UsageError(CputuneError):
    """An argument is unknown or out of range; the message names what is allowed."""


class NothingFeasibleError(CputuneError):
    """No configuration was measured that keeps the quality level and the limits."""


class ModelFileError(CputuneError):
    """A model source is missing, broken, or not a text-generation model."""


class EngineUnavailableError(CputuneError):
    """None of the asked engines can run on this machine; the message holds the reasons."""


class BusyError(CputuneError):
    """Another process holds the host-wide measuring lock; the message names its process id."""


class ServerError(CputuneError):
    """A running server that was to be measured can't be reached, refuses, or does not answer as asked."""


class WorkerError(CputuneError):
    """A worker did not answer as asked; `status` is the row it becomes.

    `refuses_load` says that the engine itself, still running, would not open the file.
    """

    def __init__(
        self, status: TrialStatus, reason: str, log_tail: str = "", *, refuses_load: bool = False
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.log_tail = log_tail
        self.refuses_load = refuses_load
