"""A launch as a Python script on llama-cpp-python's `Llama`."""

from __future__ import annotations

from tuner.export.launch import LLAMA_CPP, Launch, comments

_BEFORE_START = ("GLIBC_TUNABLES",)
"""The C library reads them when the process starts."""


def as_python(launch: Launch) -> str:
    """A script that runs as it is: it loads the model and answers one prompt.

    What `Llama` has no argument for is a comment in it.
    """
    launch.require(LLAMA_CPP, "llama-cpp-python")
    arguments = {
        "model_path": repr(launch.model_path),
        "n_ctx": str(launch.context_tokens),
        "n_batch": str(launch.batch),
        "n_ubatch": str(launch.setting("n_ubatch", 512)),
        "n_threads": str(launch.setting("n_threads", 1)),
        "n_threads_batch": str(launch.setting("n_threads_batch", launch.setting("n_threads", 1))),
        "flash_attn": str(launch.setting("flash_attn", "off") == "on"),
    }
    for name in ("type_k", "type_v"):
        if launch.setting(name, "f16") != "f16":
            arguments[name] = f"llama_cpp.GGML_TYPE_{str(launch.setting(name, 'f16')).upper()}"
    for argument, name, default in (
        ("use_mmap", "mmap", True),
        ("use_mlock", "mlock", False),
        ("swa_full", "swa_full", True),
    ):
        if bool(launch.setting(name, default)) is not default:
            arguments[argument] = str(not default)
    if launch.setting("numa", "off") != "off":
        strategy = str(launch.setting("numa", "off")).upper()
        arguments["numa"] = f"llama_cpp.GGML_NUMA_STRATEGY_{strategy}"
    arguments["verbose"] = "False"
    lines = "".join(f"    {name}={value},\n" for name, value in arguments.items())
    return (
        comments((*launch.remarks, *_unsaid(launch)))
        + _before_import(launch)
        + f"import llama_cpp\n\nllm = llama_cpp.Llama(\n{lines})\n\n"
        + 'answer = llm.create_completion("The capital of France is", max_tokens=16, temperature=0.0)\n'
        + 'print(answer["choices"][0]["text"])\n'
    )


def _before_import(launch: Launch) -> str:
    """The threads' runtime reads both when it is loaded, so they are set before the import."""
    here = {name: value for name, value in launch.variables.items() if name not in _BEFORE_START}
    lines = [f'os.environ["{name}"] = "{value}"\n' for name, value in here.items()]
    if launch.cpus is not None:
        lines.append(f"os.sched_setaffinity(0, {{{', '.join(map(str, launch.cpus))}}})\n")
    return f"import os\n\n{''.join(lines)}\n" if lines else ""


def _unsaid(launch: Launch) -> tuple[str, ...]:
    found = [
        f"start Python with {name}={value} in its environment: later is too late"
        for name, value in launch.variables.items()
        if name in _BEFORE_START
    ]
    if launch.node is not None:
        found.append(f"start Python with numactl --membind={launch.node}: the script binds no memory")
    if not launch.setting("repack", True):
        found.append("Llama has no argument that switches weight repacking off (repack=false): it repacks")
    if launch.streams > 1:
        found.append(f"Llama answers one request at a time: {launch.streams} streams need llama-server")
    return tuple(found)
