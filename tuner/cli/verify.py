"""`cputune verify`: how much of a profile's gain a running server keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from tuner.cli.options import AsJson, Storage


def verify(
    profile: Annotated[str, typer.Argument(help="A profile's id, or its beginning.")],
    url: Annotated[
        str, typer.Option(help="The server on this machine, such as http://127.0.0.1:8080 or .../v1.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model's name there [default: its only one].")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the token.")
    ] = None,
    token_file: Annotated[str | None, typer.Option(metavar="FILE", help="A file that holds it.")] = None,
    budget: Annotated[str, typer.Option(help="How long it may take, like 60s or 5m.")] = "2m",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another search measures on this machine.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Measure a running OpenAI-compatible server against a profile.

    Requests to the server (llama-server, Ollama and the like) take turns with the profile in cputune's own
    session, with the same lengths and another prompt each time. The answer says what serving costs, and how
    much of the promised gain is left.
    """
    from tuner.cli.output import print_json, say
    from tuner.cli.progress import Progress
    from tuner.home import Home
    from tuner.request import parse_budget_s
    from tuner.verify import VerifyRequest
    from tuner.verify import verify as run

    request = VerifyRequest(
        profile,
        url,
        server_model=model,
        token=token_given(token_env, token_file),
        budget_s=parse_budget_s(budget),
        wait=wait,
        storage=storage,
    )
    with Progress() as progress:
        document = run(request, home=Home.find(), observer=progress.observe)
    if as_json:
        print_json(document)
    else:
        say(lines(document))


def token_given(variable: str | None, path: str | None) -> str | None:
    """The token of an environment variable or a file, None for neither; UsageError where there is none in
    it. It is never an argument: those are seen by everyone on the machine."""
    import os
    from pathlib import Path

    from tuner.errors import UsageError

    if variable is not None and path is not None:
        raise UsageError("--token-env and --token-file name two tokens: give one of them")
    if variable is None and path is None:
        return None
    if variable is not None:
        token, place = os.environ.get(variable, ""), f"--token-env {variable}"
    else:
        place = f"--token-file {path}"
        try:
            token = Path(os.path.expanduser(str(path))).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{place} can't be read: {getattr(error, 'strerror', 'it is no text')}"
            ) from None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise UsageError(f"{place} holds no token: one line of text is expected")
    return token


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The answer on a page of text."""
    from tuner.cli.render import formatted

    server, profile = document["server"], document["profile"]
    yield f"{server['model']} at {server['url']} against {profile['id']}, {document['workload']['name']}:"
    for metric in ("response_ms.p50", "ttft_ms.p50", "tpot_ms.p50", "decode_tps.p50"):
        both = [formatted(document[side], metric) for side in ("ours", "theirs")]
        name = metric.partition(".")[0]
        yield f"  {name:<12} {both[0]:>16} in cputune's session, {both[1]:>16} of the server"
    speed, tax = document["speed"], document["serving_tax"]
    interval = f"{speed['low']:.2f} to {speed['high']:.2f} at {100 * speed['confidence']:.1f} %"
    verdict = {
        "slower": "it is slower",
        "faster": "it is faster",
        "as fast": "shown to be within 2 %",
        "not resolved": "not resolved: a longer --budget may resolve it",
    }[document["verdict"]]
    yield (
        f"The server has {speed['estimate']:.2f}x the profile's speed by {document['metric']} ({interval},"
        f" {document['pairs']} pairs): {verdict}. Serving adds {_percent(tax['estimate'])}"
        f" ({_percent(tax['low'])} to {_percent(tax['high'])})."
    )
    reached, kept, promised = document["reached"], document["gain_kept"], document["promised"]
    if reached is None:
        yield f"{profile['id']} promises no gain over the default ({profile['status']})."
    else:
        share = kept["estimate"]
        left = f"{_percent(share)} of the gain" if share > 0 else "nothing of the gain"
        yield (
            f"Of the promised {promised['estimate']:.2f}x the default, {reached['estimate']:.2f}x is reached"
            f" ({reached['low']:.2f} to {reached['high']:.2f}): {left} is left."
        )
    yield from (f"note: {server['url']}: {note}" for note in document["notes"])
    if document["conditions"] == "loaded":
        yield "Measured under load: other work kept the CPUs busy."
    if document["verdict"] == "slower":
        yield f"Does it run with the profile's settings? cputune export {profile['id']}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
