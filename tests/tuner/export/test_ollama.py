"""A Modelfile by Ollama's own rules: its grammar, and the parameters that a model may set."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from profiles.vocabulary import Config
from tuner.errors import UsageError
from tuner.export import Launch, export

COMMANDS = frozenset({"from", "template", "system", "adapter", "renderer", "parser", "parameter"})
INTEGERS = frozenset({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "num_predict"})
BOOLEANS = frozenset({"use_mmap"})
"""Of api.Options and api.Runner what is no sampling; `use_mlock` is deprecated and passed over."""

LAUNCH = Launch(
    Config.of(
        "llama_cpp",
        "q8_0",
        {
            "n_threads": 2, "n_threads_batch": 2, "n_ubatch": 128, "flash_attn": "on", "type_k": "q8_0",
            "type_v": "q8_0", "repack": True, "mmap": True, "mlock": False, "wait_policy": "default",
        },
    ),
    "/models/my model.gguf",
    256,
    remarks=("profile 7",),
)  # fmt: skip


def parsed(text: str) -> tuple[str, dict[str, int | bool], list[str]]:
    """The model, the parameters and the comments of a Modelfile, read as Ollama's parser does: a comment
    begins a line, a value runs to the end of its line."""
    model, parameters, remarks = "", {}, []
    for line in text.splitlines():
        if line.startswith("#"):
            remarks.append(line)
            continue
        command, _, rest = line.partition(" ")
        assert command.lower() in COMMANDS, line
        if command == "FROM":
            model = rest.strip()
            continue
        name, _, value = rest.partition(" ")
        assert command == "PARAMETER"
        assert name in INTEGERS | BOOLEANS, f"unknown parameter {name}"
        parameters[name] = value == "true" if name in BOOLEANS else int(value)
        assert name not in BOOLEANS or value in ("true", "false")
    assert model, "no FROM line"
    return model, parameters, remarks


def with_settings(**changes: object) -> Launch:
    return replace(LAUNCH, config=LAUNCH.config.with_settings(**changes))


def test_what_a_model_can_set() -> None:
    model, parameters, remarks = parsed(export(LAUNCH, "ollama"))
    assert model == "/models/my model.gguf"
    assert parameters == {"num_ctx": 256, "num_batch": 128, "num_thread": 2, "num_gpu": 0}
    assert remarks[0] == "# profile 7"
    assert len(remarks) == 2


def test_what_only_the_server_can_be_told() -> None:
    launch = replace(with_settings(wait_policy="passive", placement="cores"), streams=4, cpus=(0, 1))
    _, parameters, remarks = parsed(export(launch, "ollama"))
    words = shlex.split(remarks[1].partition("starts: ")[2])
    assert words[-5:] == ["taskset", "-c", "0-1", "ollama", "serve"]
    assert dict(word.split("=") for word in words[:-5]) == {
        "OMP_WAIT_POLICY": "passive",
        "OLLAMA_FLASH_ATTENTION": "1",
        "OLLAMA_NUM_PARALLEL": "4",
        "OLLAMA_KV_CACHE_TYPE": "q8_0",
    }
    # Of one stream: the server multiplies.
    assert parameters["num_ctx"] == 256


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_threads_batch": 4}, "4 for the prompt can't be said"),
        ({"type_v": "f16"}, "K q8_0 with V f16 can't be said, it is f16"),
        ({"mlock": True}, "can't lock the model into memory"),
        ({"repack": False}, "can't switch weight repacking off"),
        ({"swa_full": True}, "sliding window itself"),
        ({"kv_unified": True}, "kv_unified=true"),
    ],
)
def test_what_can_t_be_said_is_a_comment(changes: dict[str, object], said: str) -> None:
    _, _, remarks = parsed(export(with_settings(**changes), "ollama"))
    assert any(said in remark for remark in remarks), remarks


def test_mapping_and_parts() -> None:
    launch = replace(with_settings(mmap=False), model_path="/m/x-00001-of-00003.gguf")
    _, parameters, remarks = parsed(export(launch, "ollama"))
    assert parameters["use_mmap"] is False
    assert any("put the parts together first" in remark for remark in remarks)


def test_another_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="ollama runs llama_cpp, this configuration is for simulated"):
        export(replace(LAUNCH, config=Config.of("simulated", "source", {})), "ollama")
