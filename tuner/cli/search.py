"""`cputune search`: find the best configuration of a model on this machine."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tuner.cli import exit_codes


def search(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered name, a .gguf file, or another source.")
    ] = None,
    workload: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="chat, rag, writer, long, batch, or a YAML file.")
    ] = "chat",
    prompt_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Length of the prompt, in place of the workload's.")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Length of the answer, in place of the workload's.")
    ] = None,
    streams: Annotated[
        int | None, typer.Option(metavar="N", help="Requests at a time, in place of the workload's.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What to make best: response_ms, ttft_ms, itl_ms, tpot_ms, prefill_tps or decode_tps"
            " [default: the workload's].",
        ),
    ] = None,
    quality: Annotated[str, typer.Option(help="near-lossless, balanced or any.")] = "near-lossless",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'METRIC<=VALUE'",
            help="A bound that the answer must keep, with <= or >=, such as 'peak_rss_mib<=400' or"
            " 'itl_ms.p95<=20'; may be given several times.",
        ),
    ] = None,
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
    space: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A YAML file with the values to try by setting, such as n_ubatch: [64, 512]."
        ),
    ] = None,
    answers_unchanged: Annotated[
        bool,
        typer.Option(
            "--answers-unchanged", help="Keep to settings that don't alter the output beyond rounding."
        ),
    ] = False,
    leave_cores: Annotated[
        int, typer.Option(metavar="N", help="Leave so many of the CPUs to other work.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, metavar="N", help="Seed of the search's random choices.")
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew instead of going on.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another search measures on this machine.")
    ] = False,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Database URL or path [default: in the data folder].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Find what answers fastest here without ruining the answers.

    Engine, quantization and settings are searched together and measured on this machine. A second
    search prints the published answer and ends; --budget or --trials go on with it.
    """
    from tuner.cli.progress import Progress
    from tuner.cli.render import search_report
    from tuner.home import Home
    from tuner.request import (
        DEFAULT_BUDGET_S,
        SearchRequest,
        parse_budget_s,
        parse_limits,
        quality_named,
        with_lengths,
        with_objective,
    )
    from tuner.tune import tune
    from tuner.userfiles import space_given, workload_given

    asked = with_lengths(workload_given(workload), prompt_tokens, output_tokens, streams)
    request = SearchRequest(
        model=model,
        workload=with_objective(asked, objective),
        quality=quality_named(quality),
        budget_s=DEFAULT_BUDGET_S if budget is None else parse_budget_s(budget),
        trials=trials,
        engines=split_names("--engines", engines),
        variants=split_names("--variants", variants),
        seed=seed,
        fresh=fresh,
        wait=wait,
        bounded=budget is not None or trials is not None,
        limits=parse_limits(limit or ()),
        leave_cores=leave_cores,
        answers_unchanged=answers_unchanged,
        space={} if space is None else space_given(space),
        storage=storage,
    )
    # Its pool would print a traceback where Ctrl-C comes while a connection is closed.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    with Progress() as progress:
        document = tune(request, home=Home.find(), observer=progress.observe)
    if as_json:
        from tuner.cli.output import print_json

        print_json(document)
    else:
        search_report(document)
    return exit_codes.NOTHING_FEASIBLE if document["status"] == "infeasible" else exit_codes.DONE


def split_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """The names in a list separated by commas; None for none and for "all".

    Raises UsageError for a list without a name.
    """
    from tuner.errors import UsageError

    if text is None or text.strip() == "all":
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"{option} '{text}' names nothing: write names separated by commas, or all")
    return names
