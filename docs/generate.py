"""Writes what repeats the code, the pages' tables and the JSON schemas: `python docs/generate.py`.

A page marks the place of a table by a pair of comments; `render` fills it, and tests/test_docs.py fails
where a page differs from that.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_EXIT_MEANINGS = {
    "DONE": "done; a search without a gain too",
    "FAILED": "the store can't be used; `verify`: the server does not answer as asked;"
    " a fault of cputune's own (the line names a file with what led to it);"
    " `doctor`: nothing can run",
    "ARGUMENTS": "an argument is unknown or out of range, a file given is not what it should be, or no"
    " machine is found under `--root`",
    "NOTHING_FEASIBLE": "nothing feasible was measured, or nothing is known by that id or name",
    "MODEL_UNUSABLE": "the model is missing, broken, or no text-generation model",
    "NO_ENGINE": "no engine can run here; the line has every reason",
    "BUSY": "another process measures on this machine; the line names it",
    "INTERRUPTED": "interrupted (Ctrl-C); what was finished is kept",
    "TERMINATED": "ended by SIGTERM; what was finished is kept, as after Ctrl-C",
}


def render(text: str) -> str:
    """The page with every marked table made anew; KeyError for a mark that names no table."""
    return _BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]().rstrip() + "\n" + found[3], text)


def pages() -> dict[Path, str]:
    """Every page that has a marked table, as it should read."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.md"))}
    return {path: render(text) for path, text in texts.items() if _BLOCK.search(text)}


def schemas() -> dict[Path, str]:
    """The JSON schema of every document that a command prints."""
    from tuner.cli.documents import schemas as made

    return {
        FOLDER / "schemas" / f"{name}.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in made().items()
    }


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")


def _code(value: object) -> str:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{shown}`"


# --- command line --------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its arguments and options."""
    return "\n".join(_command(name, command) for name, command in walk())


def walk() -> Iterator[tuple[str, Any]]:
    """Each command's full name and the object behind it, in the order of the program's own help."""
    import typer

    from tuner.cli.main import application

    yield from _below("cputune", typer.main.get_command(application()))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for part, below in inner.items():
        yield from _below(f"{name} {part}", below)


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p not in arguments and not p.hidden]
    shown = [p.metavar or p.name.upper() for p in arguments]
    parts = [f"### `{' '.join([name, *shown])}`\n", f"{command.help.strip()}\n"]
    rows = [(_code(label), _help(p)) for label, p in zip(shown, arguments, strict=True)]
    rows += [(_option(p), _help(p)) for p in options]
    return "\n".join([*parts, table(("argument or option", "meaning"), rows)])


def _option(option: Any) -> str:
    names = ", ".join(_code(flag) for flag in sorted(option.opts, key=len, reverse=True))
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _help(parameter: Any) -> str:
    text = str(parameter.help)
    if parameter.default is None or getattr(parameter, "is_flag", False):
        return text
    return f"{text} Default: {_code(parameter.default)}."


def exit_codes() -> str:
    """Code, constant, errors that lead to it, meaning."""
    from tuner.cli import exit_codes as module

    names = {value: name for name, value in vars(module).items() if name.isupper() and isinstance(value, int)}
    errors: dict[int, list[str]] = {code: [] for code in names}
    for kind, code in module._CODES:
        errors[code].append(_code(kind.__name__))
    rows = [
        (code, _code(names[code]), ", ".join(errors[code]) or "-", _EXIT_MEANINGS[names[code]])
        for code in sorted(names)
    ]
    return table(("exit code", "constant", "errors", "meaning"), rows)


# --- measuring -----------------------------------------------------------------------------------


def metrics() -> str:
    """The registry of metrics."""
    from profiles.metrics import DISTRIBUTIONS, METRICS

    rows = [
        (
            _code(m.name),
            m.unit or "-",
            "lower" if m.direction == "minimize" else "higher",
            "yes" if m.name in DISTRIBUTIONS else "",
            m.description,
        )
        for m in METRICS.values()
    ]
    return table(("metric", "unit", "better", "samples", "what it is"), rows)


def workloads() -> str:
    """The built-in workloads."""
    from profiles.vocabulary import WORKLOADS

    rows = [
        (_code(w.name), w.prompt_tokens, w.output_tokens, w.streams, _code(w.objective))
        for w in WORKLOADS.values()
    ]
    return table(("workload", "prompt tokens", "output tokens", "streams", "objective"), rows)


def quality_levels() -> str:
    """The quality levels."""
    from profiles.vocabulary import QUALITY_LEVELS

    rows = [
        (
            _code(level.name),
            f"<= {level.max_kl_divergence:g}" if isfinite(level.max_kl_divergence) else "-",
            f">= {level.min_top1_agreement:g}" if level.min_top1_agreement > 0 else "-",
        )
        for level in QUALITY_LEVELS.values()
    ]
    return table(("quality level", "KL, upper bound", "top-1, lower bound"), rows)


def detectors() -> str:
    """What drops a round, with the thresholds in force."""
    from tuner.measurement import contamination as c

    floor_ms = c.RUN_DELAY_NS / 1e6
    rows = [
        (
            "run delay",
            "second field of `/proc/self/task/*/schedstat`, worst thread",
            f"> {_percent(c.RUN_DELAY_SHARE)} of the round and > {floor_ms:g} ms",
            "`RUN_DELAY_SHARE`, `RUN_DELAY_NS`",
        ),
        (
            "others' CPU",
            "`/proc/stat` busy time of the allowed CPUs minus the worker's own CPU time",
            f"> {_percent(c.OTHERS_SHARE)} of the round + 1 tick per CPU",
            "`OTHERS_SHARE`",
        ),
        (
            "steal",
            "`/proc/stat` stolen time of the allowed CPUs",
            f">= {c.STEAL_TICKS_PER_CPU} ticks per CPU, or > {_percent(c.STEAL_SHARE)} of the CPUs' time"
            " and > 1 tick",
            "`STEAL_TICKS_PER_CPU`, `STEAL_SHARE`",
        ),
        (
            "memory pressure, io pressure",
            "totals of `/proc/pressure/memory` and `io`",
            f"> {_percent(c.PRESSURE_SHARE)} of the round and > {floor_ms:g} ms",
            "`PRESSURE_SHARE`, `RUN_DELAY_NS`",
        ),
        (
            "canary",
            "fixed hashing, and one pass over 8 MiB, before and after; the slower of the two moments",
            f"> {c.CANARY_HASH_RATIO:g} (hash) or {c.CANARY_MEMORY_RATIO:g} (memory) times the lower decile"
            f" of the clean rounds before, once there are {c.CANARY_HISTORY}",
            "`CANARY_HASH_RATIO`, `CANARY_MEMORY_RATIO`, `CANARY_HISTORY`",
        ),
    ]
    return table(("detector", "reads", "drops the round at", "constants"), rows)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


# --- engines -------------------------------------------------------------------------------------


def engine_settings(name: str) -> Callable[[], str]:
    """A table of an engine's settings on the example of docs/engines.md."""

    def made() -> str:
        from profiles.vocabulary import WORKLOADS
        from tuner import engines
        from tuner.measurement import placement

        engine = engines.get(name)
        machine, model = example()
        described = engine.dimensions(machine, model, WORKLOADS["rag"])
        known = {d.name for d in described}
        several = (d for d in engine.dimensions(machine, model, WORKLOADS["batch"]) if d.name not in known)
        described = (*described, *several)
        rows = [
            (
                _code(d.name),
                ", ".join(_code(value) for value in d.values),
                _code(d.default),
                d.scope.name.lower(),
                str(d.role),
                " and ".join(str(phase) for phase in sorted(d.phases, reverse=True)),
                "yes" if d.affects_quality else "",
            )
            for d in (*described, *placement.dimensions(engine, machine))
        ]
        columns = ("setting", "values", "default", "scope", "role", "changes", "changes the answers")
        return table(columns, rows)

    return made


def example() -> tuple[Any, Any]:
    """4 cores of two CPUs each; a quantized model of 135 M parameters, heads of 64, a window of 512."""
    from probes.effective import Effective
    from probes.machine import Machine
    from probes.memory import HugePages, Memory
    from probes.topology import Topology
    from profiles.vocabulary import ModelInfo

    machine = Machine(
        topology=Topology(
            logical_cpus=8,
            physical_cores=4,
            threads_per_core=2,
            online=tuple(range(8)),
            cores=tuple((core, core + 4) for core in range(4)),
        ),
        effective=Effective(cpus=tuple(range(8)), cpu_count=8),
        memory=Memory(huge_pages=HugePages(transparent="madvise")),
    )
    model = ModelInfo(
        name="example", digest="00", format="gguf", architecture="llama", parameter_count=134_515_008,
        layer_count=30, hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64,
        vocabulary_size=49152, context_length=8192, file_bytes=98_000_000, tensor_mix=(("q4_1", 96_000_000),),
        bits_per_weight=5.7, sliding_window=512,
    )  # fmt: skip
    return machine, model


def engine_variants() -> str:
    """The registered engines of our own with the variants that they make."""
    from tuner import engines

    rows = [
        (
            _code(name),
            "no" if name in engines.NEVER_BY_DEFAULT else "yes",
            ", ".join(engines.get(name).formats),
            ", ".join(_code(label) for label in engines.get(name).variant_labels),
        )
        for name in engines.BUILT_IN
    ]
    return table(("engine", "by default", "reads", "variants"), rows)


def daemon_settings() -> str:
    """The watcher's own settings; those of the service it shares with `cputune serve`."""
    from service.daemon.settings import DaemonSettings
    from service.settings import ServeSettings

    rows = [
        (_code(name), _shown_default(field.default), field.description)
        for name, field in DaemonSettings.model_fields.items()
        if name not in ServeSettings.model_fields
    ]
    serve = ", ".join(_code(name) for name in ServeSettings.model_fields if name not in ("follow", "profile"))
    return (
        table(("setting", "default", "meaning"), rows)
        + f"\nAnd those of [`cputune serve`](../serving.md#settings): {serve}."
    )


def serve_settings() -> str:
    """The settings of `cputune serve`."""
    from service.settings import ServeSettings

    rows = [
        (_code(name), _shown_default(field.default), field.description)
        for name, field in ServeSettings.model_fields.items()
    ]
    return table(("setting", "default", "meaning"), rows)


def _shown_default(value: object) -> str:
    return "" if value in (None, ()) else _code(value)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "exit-codes": exit_codes,
    "metrics": metrics,
    "workloads": workloads,
    "quality-levels": quality_levels,
    "detectors": detectors,
    "daemon-settings": daemon_settings,
    "serve-settings": serve_settings,
    "engines": engine_variants,
    "settings-llama_cpp": engine_settings("llama_cpp"),
    "settings-onnxruntime": engine_settings("onnxruntime"),
    "settings-openvino": engine_settings("openvino"),
    "settings-simulated": engine_settings("simulated"),
    "settings-transformers": engine_settings("transformers"),
}
"""The name in a page's mark -> what makes the table."""


def main() -> int:
    """Rewrite every page whose tables have changed, and every schema."""
    (FOLDER / "schemas").mkdir(exist_ok=True)
    for path, text in (pages() | schemas()).items():
        if not path.exists() or text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"rewrote {path.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
