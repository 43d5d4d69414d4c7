"""A launch as an Ollama Modelfile."""

from __future__ import annotations

import re

from tuner.export.launch import LLAMA_CPP, Launch, comments
from tuner.export.server import prefix

KV_TYPES = ("f16", "q8_0", "q4_0")
"""What OLLAMA_KV_CACHE_TYPE takes."""


def as_ollama(launch: Launch) -> str:
    """A Modelfile for `ollama create NAME -f FILE`; what only its server can be told stands in comments.

    Of llama.cpp's settings a model can set the context of a stream, the physical batch, one number of
    threads, and memory mapping (api.Options and its runner in Ollama's sources).
    """
    launch.require(LLAMA_CPP, "ollama")
    threads = launch.setting("n_threads", 1)
    parameters = {
        "num_ctx": launch.context_tokens,
        "num_batch": launch.setting("n_ubatch", 512),
        "num_thread": threads,
        # Measured on the CPU: a graphics card, where there is one, would take over.
        "num_gpu": 0,
    }
    if not launch.setting("mmap", True):
        parameters["use_mmap"] = "false"
    lines = [
        f"FROM {launch.model_path}",
        *(f"PARAMETER {name} {value}" for name, value in parameters.items()),
    ]
    return comments((*launch.remarks, *_server(launch), *_unsaid(launch))) + "\n".join(lines) + "\n"


def _server(launch: Launch) -> tuple[str, ...]:
    """How the server itself is to be started, in one command."""
    key, value = launch.setting("type_k", "f16"), launch.setting("type_v", "f16")
    variables = dict(launch.variables)
    flash = launch.setting("flash_attn", "off") == "on"
    variables["OLLAMA_FLASH_ATTENTION"] = "1" if flash else "0"
    variables["OLLAMA_NUM_PARALLEL"] = str(launch.slots)
    if key == value != "f16" and key in KV_TYPES:
        variables["OLLAMA_KV_CACHE_TYPE"] = str(key)
    words = [f"{name}={setting}" for name, setting in variables.items()]
    words += prefix(launch)
    return (f"for all models of a server, when it starts: {' '.join(words)} ollama serve",)


def _unsaid(launch: Launch) -> tuple[str, ...]:
    found = []
    threads, batch = (launch.setting(name, 1) for name in ("n_threads", "n_threads_batch"))
    if batch != threads:
        found.append(f"Ollama has one number of threads for both: {batch} for the prompt can't be said")
    key, value = launch.setting("type_k", "f16"), launch.setting("type_v", "f16")
    if key != value or key not in KV_TYPES:
        found.append(f"Ollama has one type for both caches: K {key} with V {value} can't be said, it is f16")
    if launch.setting("mlock", False):
        found.append("Ollama can't lock the model into memory (mlock=true)")
    if not launch.setting("repack", True):
        found.append("Ollama can't switch weight repacking off (repack=false)")
    if launch.config.get("swa_full") is not None:
        found.append("Ollama decides about the cache of a sliding window itself (swa_full)")
    if launch.setting("numa", "off") != "off":
        found.append(f"Ollama can't spread threads over NUMA nodes (numa={launch.setting('numa', 'off')})")
    if launch.setting("kv_unified", False):
        found.append("Ollama can't share one cache among the streams (kv_unified=true)")
    if re.search(r"-\d{5}-of-\d{5}\.gguf$", launch.model_path):
        found.append("Ollama reads one file: put the parts together first (llama-gguf-split --merge)")
    return tuple(found)
