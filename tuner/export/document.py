"""A launch as a YAML or JSON document."""

from __future__ import annotations

from profiles.documents import dumps
from tuner.export.launch import Launch, comments

SCHEMA_VERSION = 1


def as_json(launch: Launch) -> str:
    """One JSON document; remarks are a key of it."""
    return dumps({**_document(launch), "remarks": list(launch.remarks)}, "json")


def as_yaml(launch: Launch) -> str:
    """One YAML document under its remarks."""
    return comments(launch.remarks) + dumps(_document(launch), "yaml")


def _document(launch: Launch) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": launch.config.engine,
        "variant": launch.config.variant,
        "model": launch.model_path,
        "context_tokens": launch.context_tokens,
        "streams": launch.streams,
        "cpus": None if launch.cpus is None else list(launch.cpus),
        "environment": dict(launch.variables),
        "settings": launch.config.as_dict(),
    }
