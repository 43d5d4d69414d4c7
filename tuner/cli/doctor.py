"""`cputune doctor`: every check in one line, with what mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.cli import exit_codes
from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from probes.machine import Machine


def doctor(storage: Storage = None, as_json: AsJson = False) -> int:
    """Check the machine and the engines, with what mends each fault.

    Ends with 1 only if nothing can run.
    """
    from probes.machine import probe
    from tuner.cli.output import print_json, say

    machine = probe()
    checks = [*condition_checks(machine), *engine_checks(machine), *store_checks(storage)]
    can_run = any(check["id"] == "engine" and check["state"] == "ok" for check in checks)
    if as_json:
        print_json({"checks": checks, "can_run": can_run})
    else:
        say(
            f"{check['state']:<9}{check['message']}" + (f"; {check['fix']}" if check["fix"] else "")
            for check in checks
        )
    return exit_codes.DONE if can_run else exit_codes.FAILED


def condition_checks(machine: Machine) -> Iterator[dict[str, Any]]:
    """What the probe advises, or that there is nothing to mend."""
    for advice in machine.advice:
        yield _check(advice.id, advice.severity, advice.message, advice.fix)
    if not machine.advice:
        yield _check("conditions", "ok", "the machine is fit to measure on")


def engine_checks(machine: Machine) -> Iterator[dict[str, Any]]:
    """Whether each engine runs, tried in a child process."""
    from tuner import engines
    from tuner.measurement.availability import availabilities

    names = engines.default_names()
    every = [engines.get(name) for name in names]
    for name, found in zip(names, availabilities(every, features=machine.features), strict=True):
        if found.available:
            yield _check("engine", "ok", f"{name} {found.version} runs")
            if found.note:
                yield _check("engine_build", "warning", f"{name}: {found.note}")
        else:
            yield _check("engine", "missing", f"{name}: {found.reason}")


def store_checks(storage: str | None = None) -> Iterator[dict[str, Any]]:
    """Whether the data folder can be used."""
    from probes.errors import CputuneError
    from tuner.home import Home
    from tuner.opening import known_store

    try:
        with known_store(Home.find(), storage) as store:
            yield _check("store", "ok", f"{store.path or 'the database'} can be read and written")
    except CputuneError as error:
        yield _check("store", "critical", str(error))


def _check(name: str, state: str, message: str, fix: str = "") -> dict[str, Any]:
    return {"id": name, "state": state, "message": message, "fix": fix}
