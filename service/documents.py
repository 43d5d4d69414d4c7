"""What the endpoints answer, as models: the OpenAPI document is made of them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from profiles.records import Conditions, ProfileStatus, StudyStatus
from profiles.vocabulary import Setting, TrialStatus

Settings = dict[str, Setting]


class Document(BaseModel):
    """An answer has these keys and no other ones."""

    model_config = ConfigDict(extra="forbid")


class ErrorText(Document):
    """What went wrong, in OpenAI's form; `param` is the field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Problem(Document):
    """The body of every answer that is an error."""

    error: ErrorText


class Health(Document):
    """The process answers."""

    status: Literal["ok"]


class GeneratorState(Document):
    """The generator; `profile` is null for the engine's defaults, `load_profile` without a second worker."""

    state: Literal["starting", "ready", "restarting", "failed", "closed"]
    reason: str | None
    model: str
    profile: str | None
    load_profile: str | None
    running: int
    waiting: int
    places: int
    restarts: int


class Readiness(Document):
    """Whether requests are served as they will be; `reason` where they are not.

    `degraded` says why nothing can be stored, while requests are answered.
    """

    status: Literal["ready", "not ready"]
    generator: GeneratorState | None
    reason: str | None = None
    degraded: str | None = None


class Running(Document):
    """What the generator runs since a swap."""

    model: str
    profile: str | None
    engine: str
    variant: str
    settings: Settings


class SpeedUp(Document):
    """Default over best of the objective, with the limits of its confidence interval."""

    ratio: float
    low: float
    high: float


class ProfileSummary(Document):
    """A published profile in a list."""

    id: str
    created_at: str
    model: str
    machine: str
    workload: str
    objective: str
    quality: str
    status: ProfileStatus
    conditions: Conditions
    config: dict[str, Any]
    speedup: SpeedUp | None
    invalidated: str | None


class Page(Document):
    """A part of a list: `offset` were left out, at most `limit` are here."""

    limit: int
    offset: int


class Profiles(Page):
    """Published profiles, newest first."""

    profiles: list[ProfileSummary]


class StudySummary(Document):
    """A search in a list; `trials` counts them by status."""

    id: str
    name: str
    status: StudyStatus
    machine: str
    model: str
    workload: str
    objective: str
    quality: str
    limits: list[str]
    created_at: str
    updated_at: str
    speedup: dict[str, Any] | None
    profile: str | None
    trials: dict[TrialStatus, int]


class Studies(Page):
    """Searches, the last changed first."""

    studies: list[StudySummary]


class StudyInFull(StudySummary):
    """A search with what it was asked, and the document that it ended with."""

    engine_builds: dict[str, str]
    environment: dict[str, Any]
    request: dict[str, Any]
    result: dict[str, Any] | None


class TrialInFull(Document):
    """A trial; `effective` are the settings as the engine held them."""

    id: int
    number: int
    stage: str
    status: TrialStatus
    reason: str | None
    engine: str
    variant: str
    config: Settings
    effective: dict[str, Any]
    value: float | None
    metrics: dict[str, float]
    started_at: str
    invalidated: bool


class Trials(Page):
    """A study's trials by number."""

    trials: list[TrialInFull]


class Round(Document):
    """The samples of one round in ms; `dropped` is why it does not count."""

    kind: str
    ttft_ms: list[float]
    gaps_ms: list[list[float]]
    response_ms: list[float]
    dropped: str | None


class TrialSamples(Document):
    """The rounds of one trial."""

    trial: int
    rounds: list[Round]


class Samples(Page):
    """The rounds of a page of trials."""

    samples: list[TrialSamples]


class SearchState(Document):
    """A search that this service started; `result` is the document of `cputune search --json`."""

    id: str
    state: Literal["running", "done", "failed", "cancelled"]
    command: list[str]
    started_at: str
    ended_at: str | None
    error: str | None
    is_stopped: bool
    stopped_s: float
    events: int
    result: dict[str, Any] | None


class Searches(Document):
    """The searches of this service, the last one first."""

    searches: list[SearchState]


class ServedModel(Document):
    """A model in OpenAI's form, with what runs it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["cputune"]
    profile: str | None
    context_tokens: int


class ServedModels(Document):
    """The models that requests may name."""

    object: Literal["list"]
    data: list[ServedModel]


class CachedTokens(Document):
    """Prompt tokens that were not computed again."""

    cached_tokens: int


class Usage(Document):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Timings(Document):
    """Times of a request: waiting for its turn, then to the first token, then per token; what answered."""

    queue_ms: float
    ttft_ms: float
    tpot_ms: float | None
    tokens_per_second: float | None
    cached_tokens: int
    profile: str | None


class AnswerMessage(Document):
    """A model's turn of a conversation."""

    role: Literal["assistant"]
    content: str


class ChatChoice(Document):
    """The one answer to a conversation."""

    index: Literal[0]
    message: AnswerMessage
    logprobs: None
    finish_reason: Literal["stop", "length"]


class TextChoice(Document):
    """The one continuation of a text."""

    index: Literal[0]
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length"]


class Completed(Document):
    """What both kinds of answers have."""

    id: str
    created: int
    model: str
    usage: Usage
    timings: Timings


class ChatCompletion(Completed):
    """An answer to a conversation; a stream brings it as `chat.completion.chunk` events."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class Completion(Completed):
    """A continuation of a text; a stream brings it in `text_completion` events."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
