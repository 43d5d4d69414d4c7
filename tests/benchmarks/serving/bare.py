"""What is served, measured without HTTP: the session loop on the same file, threads and prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

from probes.machine import probe
from profiles.metrics import flat_name
from profiles.records import Profile, ProfileStatus
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Workload
from service.generator.launching import Serving, serving_of
from service.settings import settings_from
from tuner.events import ignore
from tuner.home import Home
from tuner.measurement.isolation import Deadlines, Worker
from tuner.request import SearchRequest
from tuner.search.objectives import objective_of
from tuner.setup import open_workshop

START_S = 120.0


def publish(home: Home, model: str, engine: str, variant: str, workload: Workload, **settings: object) -> str:
    """The id of a profile with the engine's defaults on a variant, and other settings where given."""
    request = SearchRequest(model, workload, QUALITY_LEVELS["any"], engines=(engine,))
    with (
        Store.open(home.database) as store,
        closing(open_workshop(request, probe(), store, home, ignore)) as shop,
    ):
        store.save_machine(shop.machine, "bench")
        default = shop.engine(engine).default(shop.machine, shop.model, workload)
        config = Config.of(engine, variant, {**default.as_dict(), **settings})
        made = shop.variant(engine, variant)
        profile = Profile(
            fingerprint=shop.machine.fingerprint,
            model_digest=shop.model.digest,
            workload=workload,
            objectives=(objective_of(workload),),
            quality_level="any",
            status=ProfileStatus.NO_GAIN,
            conditions="quiet",
            config=config,
            variant_digest=made.digest,
            bits_per_weight=made.bits_per_weight,
            # Without a value of its objective a profile is nobody's best; nothing here reads the number.
            metrics={flat_name(objective_of(workload).metric): 1.0},
            baseline_config=config,
            baseline_metrics={},
            engine_build=shop.build(engine),
            kernel=shop.machine.kernel or "",
        )
        return store.publish(profile).id


def served(home: Home, **settings: object) -> Serving:
    """What a service with these settings runs."""
    with Store.open(home.database) as store:
        return serving_of(settings_from(**settings), store, probe(), home, ignore)


@contextmanager
def worker(serving: Serving, folder: Path) -> Iterator[Worker]:
    """The measuring worker's session, opened as the service opens its own."""
    with Worker.start(
        serving.engine,
        environment=serving.environment,
        affinity=serving.affinity,
        log_path=folder / "bare.log",
        deadline_s=START_S,
    ) as started:
        started.load(serving.path, serving.load_settings, Deadlines())
        configured = {
            "settings": dict(serving.run_settings),
            "context_tokens": serving.context_tokens,
            "streams": serving.streams,
        }
        started.request("configure", configured, START_S)
        yield started


def times_s(started: Worker, prompt: str, output_tokens: int) -> list[float]:
    """Seconds from the request to each of its tokens in the bare loop."""
    tokens = started.request("tokenize", {"text": prompt}, START_S)["tokens"]
    asked = {"prompts": [tokens], "output_tokens": output_tokens, "reuse_prefix": False}
    (times_ns,) = cast("list[list[int]]", started.request("round", asked, START_S)["token_ns"])
    return [at / 1e9 for at in times_ns]
