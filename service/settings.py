"""The settings of `cputune serve`: one table for flags, environment and documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tuner.errors import UsageError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

SHORTEST_TOKEN = 16


def _parted(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Several = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parted)]
"""Several values; as one text, such as the environment's, with commas between."""


class ServeSettings(BaseSettings):
    """Every setting may come from the environment as CPUTUNE_SERVE_NAME; flags go before it."""

    model_config = SettingsConfigDict(env_prefix="CPUTUNE_SERVE_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; any other than loopback needs a token.")
    port: int = Field(8765, ge=0, le=65535, description="Port; 0 takes a free one.")
    model: str | None = Field(None, description="Registered model that the generator runs.")
    workload: str = Field("chat", description="Workload whose best profile the generator runs.")
    engine: str | None = Field(None, description="Engine to run; the best profile's where not given.")
    profile: str | None = Field(None, description="Profile to run in place of the best one.")
    generator: bool = Field(True, description="Whether to run a generator.")
    token: SecretStr | None = Field(None, description="Bearer token that requests must carry.")
    token_file: Path | None = Field(None, description="File that holds the token, in its first line.")
    allowed_hosts: Several = Field((), description="Host names that are served besides loopback's.")
    context_tokens: int = Field(4096, ge=64, description="Context of one conversation, at most the model's.")
    parallel: int = Field(4, ge=1, le=64, description="Requests that run in one batch; the others wait.")
    load_workload: str | None = Field(
        None, description="Workload, such as batch, whose best profile takes new requests while others run."
    )
    follow: bool = Field(True, description="Whether a newly published best profile replaces the running one.")
    kv_mib: int | None = Field(
        None, ge=1, description="Memory for kept conversations; else half of what is free beside the weights."
    )
    queue: int = Field(64, ge=0, description="Requests that may wait; more are answered 429.")
    request_timeout_s: float = Field(600.0, gt=0, description="A request that runs longer is ended.")
    body_bytes: int = Field(1 << 20, ge=1024, description="Largest request body.")
    deterministic_cache: int = Field(0, ge=0, description="Answers kept for equal requests at temperature 0.")
    storage: str | None = Field(None, description="Database URL or path in place of the data folder's.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return self.host in LOOPBACK

    def secret(self) -> str | None:
        """The token, from its setting or its file; None where none is needed.

        Raises UsageError for one that can't be read, is too short or can't be sent, and for a missing one.
        """
        token = self.token.get_secret_value() if self.token else None
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().partition("\n")[0].strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"token file {self.token_file} can't be read: {error}") from error
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise UsageError(f"the token has {len(token)} characters: at least {SHORTEST_TOKEN} are needed")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("the token has characters that no header carries: allowed are those of ASCII")
        if token is None and not self.is_loopback:
            raise UsageError(
                f"host {self.host} can be reached from other machines: give --token-file,"
                " or listen on 127.0.0.1"
            )
        return token


def settings_from(**given: Any) -> ServeSettings:
    """The settings with what was given (None: not given) before the environment.

    Raises UsageError with the first value that is not allowed.
    """
    try:
        return ServeSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        wanted = first["msg"].replace("Input should be", "allowed is what is")
        raise UsageError(f"--{name.replace('_', '-')} {first['input']}: {wanted}") from error
