"""`cputune search`: find the best configuration of a model on this machine."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tuner.cli import exit_codes
from tuner.cli.options import AsJson, Storage


def search(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered name, a .gguf file, or another source.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="chat, rag, writer, long, batch, or a YAML file [default: chat]."
        ),
    ] = None,
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
            metavar="METRIC[,METRIC]",
            help="What to make best: response_ms, ttft_ms, itl_ms, tpot_ms, prefill_tps or decode_tps"
            " [default: the workload's]. A second one, also peak_rss_mib, model_file_mib or itl_ms.p95, is"
            " weighed against it: the answer then has the Pareto front of both.",
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
        str | None,
        typer.Option(
            help="How long it may take, like 60s or 5m; three pairs confirm whatever it says [default: 5m]."
        ),
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
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="'COMMAND'",
            help="Your own llama-server command: the search starts from it, and says which flags to change.",
        ),
    ] = None,
    answers_unchanged: Annotated[
        bool,
        typer.Option(
            "--answers-unchanged", help="Keep to settings that don't alter the output beyond rounding."
        ),
    ] = False,
    load: Annotated[
        str,
        typer.Option(
            metavar="quiet|background",
            help="What counts: times on a quiet machine, or half of them beside a busy neighbour that cputune"
            " starts for it; background:0.3 gives these another share.",
        ),
    ] = "quiet",
    leave_cores: Annotated[
        int, typer.Option(metavar="N", help="Leave so many of the CPUs to other work.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, metavar="N", help="Seed of the search's random choices.")
    ] = 0,
    full_budget: Annotated[
        bool, typer.Option("--full-budget", help="Search on when nothing better is likely any more.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew instead of going on.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another search measures on this machine.")
    ] = False,
    storage: Storage = None,
    progress: Annotated[
        str,
        typer.Option(
            metavar="text|json", help="Progress on stderr for people, or one JSON object a line for programs."
        ),
    ] = "text",
    as_json: AsJson = False,
) -> int:
    """Find what answers fastest here without ruining the answers.

    Engine, quantization and settings are searched together and measured on this machine. A second
    search prints the published answer and ends; --budget or --trials go on with it.
    """
    from tuner.cli.eventlines import EventLines
    from tuner.cli.progress import Progress
    from tuner.cli.render import search_report
    from tuner.export import parse_command
    from tuner.home import Home
    from tuner.narrowing import check_names
    from tuner.request import (
        DEFAULT_BUDGET_S,
        SearchRequest,
        objective_metrics,
        parse_budget_s,
        parse_limits,
        parse_load,
        quality_named,
        with_lengths,
        with_objective,
    )
    from tuner.tune import tune
    from tuner.userfiles import space_given, workload_given

    command = None if from_ is None else parse_command(from_)
    if command is not None and workload is None and streams is None:
        # As many requests at a time as the user's server takes.
        streams = command.streams
    asked = with_lengths(workload_given(workload or "chat"), prompt_tokens, output_tokens, streams)
    first, second = (None, None) if objective is None else objective_metrics(objective)
    request = SearchRequest(
        model=model,
        workload=with_objective(asked, first),
        second_objective=second,
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
        command=command,
        busy_share=parse_load(load),
        full_budget=full_budget,
    )
    # Its pool would print a traceback where Ctrl-C comes while a connection is closed.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    check_names("progress", (progress,), ("text", "json"))
    with EventLines() if progress == "json" else Progress() as shown:
        document = tune(request, home=Home.find(), observer=shown.observe)
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
