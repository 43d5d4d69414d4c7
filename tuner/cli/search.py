"""`cputune search`: find the best configuration of a model on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import exit_codes


def search(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered name, a .gguf file, or another source.")
    ] = None,
    workload: Annotated[str, typer.Option(help="chat, rag, writer, long or batch.")] = "chat",
    quality: Annotated[str, typer.Option(help="near-lossless, balanced or any.")] = "near-lossless",
    budget: Annotated[
        str | None, typer.Option(help="How long it may take, like 60s or 5m [default: 5m].")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Stop searching after so many trials.")] = None,
    engines: Annotated[
        str | None,
        typer.Option(help="Engines to try, separated by commas, or all [default: installed ones]."),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(help="Variants to try, separated by commas, such as q8_0,bf16 [default: all]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search's random choices.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew instead of going on.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another search measures on this machine.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Find the engine, quantization and settings that answer fastest here without ruining the answers.

    A second search prints the published answer and ends; --budget or --trials go on with it.
    """
    from tuner.cli.progress import Progress
    from tuner.cli.render import search_report
    from tuner.home import Home
    from tuner.request import DEFAULT_BUDGET_S, SearchRequest, parse_budget_s, quality_named, workload_named
    from tuner.tune import tune

    request = SearchRequest(
        model=model,
        workload=workload_named(workload),
        quality=quality_named(quality),
        budget_s=DEFAULT_BUDGET_S if budget is None else parse_budget_s(budget),
        trials=trials,
        engines=split_names(engines),
        variants=split_names(variants),
        seed=seed,
        fresh=fresh,
        wait=wait,
        bounded=budget is not None or trials is not None,
    )
    with Progress() as progress:
        document = tune(request, home=Home.find(), observer=progress.observe)
    if as_json:
        from tuner.cli.output import print_json

        print_json(document)
    else:
        search_report(document)
    return exit_codes.NOTHING_FEASIBLE if document["status"] == "infeasible" else exit_codes.DONE


def split_names(text: str | None) -> tuple[str, ...] | None:
    """The names in a list separated by commas; None for none and for "all"."""
    if text is None or text.strip() == "all":
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())
