"""`cputune compare`: two configurations side by side, with an interval and a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import AsJson, Storage

SIDE_HELP = "default, best, a profile's id, a YAML file, or a llama-server command."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE_HELP)],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered name, a .gguf file, or another source.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help="chat, rag, writer, long, batch, or a YAML file [default: that of a profile named, or chat]."
        ),
    ] = None,
    quality: Annotated[str, typer.Option(help="The quality level that best stands for.")] = "near-lossless",
    engines: Annotated[
        str | None,
        typer.Option(
            help="Engines that default and best stand for, separated by commas [default: installed ones]."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="How long it may take, like 60s or 5m.")] = "2m",
    pairs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100,
            help="Run exactly so many pairs [default: as many as the answer needs].",
        ),
    ] = None,
    is_check: Annotated[bool, typer.Option("--check", hidden=True)] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another search measures on this machine.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Measure two configurations side by side: which is faster?

    The answer has an interval and says how sure it is. Both run in turn in fresh processes, so that
    whatever else happens on the machine meets them alike. A YAML file holds a profile, or engine, variant and
    settings; what it leaves out is the default's.
    """
    from tuner.cli.output import print_json
    from tuner.cli.progress import Progress
    from tuner.cli.render import comparison_report
    from tuner.cli.search import split_names
    from tuner.compare import CompareRequest
    from tuner.compare import compare as run
    from tuner.home import Home
    from tuner.request import parse_budget_s, quality_named
    from tuner.userfiles import workload_given

    request = CompareRequest(
        a,
        b,
        model=model,
        workload=None if workload is None else workload_given(workload),
        quality=quality_named(quality),
        engines=split_names("--engines", engines),
        budget_s=parse_budget_s(budget),
        pairs=pairs,
        is_check=is_check,
        wait=wait,
        storage=storage,
    )
    with Progress() as progress:
        document = run(request, home=Home.find(), observer=progress.observe)
    if as_json:
        print_json(document)
    else:
        comparison_report(document)
