"""Errors of the store and its documents."""

from __future__ import annotations

from probes.errors import CputuneError


class StoreError(CputuneError):
    """The database can't be opened, read or written; the message names the place and the cause."""


class SchemaTooNewError(StoreError):
    """The database was written by a newer version; it is left untouched."""


class NotFoundError(CputuneError):
    """What was asked for by name or id is not in the store."""


class DocumentError(CputuneError):
    """A YAML or JSON document does not have the expected shape."""
