"""The real session on the made-up model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.engines.base import EngineError, Sampling, Token
from tuner.engines.onnxruntime.session import OnnxSession

pytestmark = pytest.mark.real

SETTINGS = {"intra_op_num_threads": 1, "spinning": "off", "graph_optimization_level": "all"}
TEXT = "When it rains in the mountains, the rivers rise. "


@pytest.fixture(scope="module")
def opened(tiny_folder: Path) -> Iterator[OnnxSession]:
    session = OnnxSession()
    session.load(tiny_folder, SETTINGS)
    yield session
    session.close()


@pytest.fixture
def session(opened: OnnxSession) -> OnnxSession:
    """The module's model on generators that no other test has used."""
    opened.configure({}, 300, 1)
    opened.configure({}, 256, 1)
    return opened


def finish(session: OnnxSession, *numbers: int) -> dict[int, list[Token]]:
    made: dict[int, list[Token]] = {number: [] for number in numbers}
    for _ in range(2000):
        for token in session.step():
            made[token.sequence].append(token)
        if all(tokens and tokens[-1].finish for tokens in made.values()):
            return made
    raise AssertionError(f"not finished: {made}")


def generate(session: OnnxSession, prompt: list[int], count: int = 12, **options: Any) -> list[int]:
    number = session.add(prompt, count, ignore_eos=True, **options)
    return [token.token for token in finish(session, number)[number]]


def test_greedy_equals_genai_s_own_loop(session: OnnxSession, tiny_folder: Path) -> None:
    import onnxruntime_genai as og

    model = og.Model(str(tiny_folder))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=200, do_sample=False)
    generator = og.Generator(model, parameters)
    generator.append_tokens(np.array(session.tokenize(TEXT), np.int32))
    own = []
    for _ in range(12):
        generator.generate_next_token()
        own.append(int(generator.get_next_tokens()[0]))
    assert generate(session, session.tokenize(TEXT)) == own


def test_interleaved_sequences_say_the_same_as_alone(session: OnnxSession) -> None:
    prompts = [session.tokenize(text) for text in (TEXT, "Another one.")]
    alone = [generate(session, prompt) for prompt in prompts]
    session.configure({}, 256, 2)
    numbers = [session.add(prompt, 12, ignore_eos=True) for prompt in prompts]
    made = finish(session, *numbers)
    assert [[token.token for token in made[number]] for number in numbers] == alone


@pytest.mark.parametrize("change", ["longer", "other end", "shorter", "same"])
def test_a_reused_prefix_changes_no_token(session: OnnxSession, change: str) -> None:
    base = session.tokenize(TEXT) * 2
    other = {
        "longer": base + session.tokenize("More."),
        "other end": base[:20] + session.tokenize("Else."),
        "shorter": base[:25],
        "same": base,
    }[change]
    kept = {"longer": len(base), "other end": 20, "shorter": 24, "same": len(base) - 1}[change]
    wanted = generate(session, other)
    generate(session, base)
    number = session.add(other, 12, ignore_eos=True, reuse_prefix=True)
    assert [token.token for token in finish(session, number)[number]] == wanted
    assert session.reused(number) >= kept


def test_a_prompt_comes_in_parts_that_change_no_token(session: OnnxSession) -> None:
    prompt = session.tokenize(TEXT)
    wanted = generate(session, prompt)
    session.configure({"prefill_chunk": 10}, 256, 1)
    number = session.add(prompt, 12, ignore_eos=True)
    steps = [session.step() for _ in range(-(-len(prompt) // 10))]
    assert [len(tokens) for tokens in steps] == [0] * (len(steps) - 1) + [1]
    rest = finish(session, number)[number]
    assert [token.token for token in (*steps[-1], *rest)] == wanted


def test_other_sequences_go_on_beside_a_long_prompt(session: OnnxSession) -> None:
    session.configure({"prefill_chunk": 10}, 256, 2)
    first = session.add([1, 2, 3], 20, ignore_eos=True)
    session.step()
    session.add(session.tokenize(TEXT), 1, ignore_eos=True)
    came = [token.sequence for _ in range(6) for token in session.step()]
    assert came == [first] * 3


def test_an_answer_ends_at_the_end_token_unless_that_is_ignored(
    session: OnnxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generate(session, session.tokenize(TEXT))
    loop = session._ready()
    monkeypatch.setattr(loop, "_ends", frozenset({made[3]}))
    number = session.add(session.tokenize(TEXT), 12)
    tokens = finish(session, number)[number]
    assert [token.finish for token in tokens] == [None] * made.index(made[3]) + ["stop"]
    assert generate(session, session.tokenize(TEXT)) == made


def test_a_seed_repeats_its_draws(session: OnnxSession) -> None:
    prompt = session.tokenize(TEXT)
    drawn = [
        generate(
            session, prompt, sampling=Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        )
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_e12_effective_settings_are_read_from_the_session_s_own_log(tiny_folder: Path) -> None:
    for settings in (
        {"intra_op_num_threads": 2, "spinning": "short", "graph_optimization_level": "basic"},
        {"intra_op_num_threads": 1, "spinning": "on", "graph_optimization_level": "extended"},
        {"intra_op_num_threads": 1, "spinning": "off", "graph_optimization_level": "all"},
    ):
        session = OnnxSession()
        session.load(tiny_folder, settings)
        session.configure({"prefill_chunk": 64}, 128, 1)
        assert session.effective() == {**settings, "prefill_chunk": 64}
        session.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "intra_op_num_threads=None"),
        ({"intra_op_num_threads": 0}, "intra_op_num_threads=0"),
        ({"intra_op_num_threads": 1, "spinning": "wildly"}, "spinning=wildly; allowed"),
    ],
)
def test_settings_that_are_not_allowed(tiny_folder: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        OnnxSession().load(tiny_folder, settings)


def test_m10_what_a_folder_lacks_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    session = OnnxSession()
    with pytest.raises(EngineError, match=r"genai_config.json can't be read"):
        session.load(tiny_folder / "model.onnx", SETTINGS)
    folder = tmp_path / "broken"
    shutil.copytree(tiny_folder, folder)
    (folder / "model.onnx").unlink()
    with pytest.raises(EngineError, match=r"model.onnx"):
        session.load(folder, SETTINGS)
    shutil.copytree(tiny_folder, folder, dirs_exist_ok=True)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EngineError, match="tokenizer"):
        session.load(folder, SETTINGS)


def test_a_context_above_the_model_s_is_refused(opened: OnnxSession, tiny_folder: Path) -> None:
    most = json.loads((tiny_folder / "genai_config.json").read_text())["model"]["context_length"]
    with pytest.raises(EngineError, match=str(most)):
        opened.configure({}, most + 1, 1)


def test_bytes_of_a_token_may_end_inside_a_character(session: OnnxSession) -> None:
    tokens = session.tokenize("é€", leading=False)
    assert [session.detokenize([token]) for token in tokens] == [bytes([b]) for b in "é€".encode()]
    assert session.detokenize([256]) == b""


def test_a_leading_token_comes_once_and_only_where_it_is_wanted(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "leading"
    shutil.copytree(tiny_folder, folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    end = {"SpecialToken": {"id": "<end>", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [end, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [end, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<end>": {"id": "<end>", "ids": [256], "tokens": ["<end>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    options = json.loads((folder / "tokenizer_config.json").read_text())
    options |= {"bos_token": "<end>", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    session = OnnxSession()
    session.load(folder, SETTINGS)
    assert session.tokenize("ab") == [256, 97, 98]
    assert session.tokenize("ab", leading=False) == [97, 98]
    assert session.tokenize("<end>ab") == [256, 97, 98]


def test_a_system_prompt_is_in_the_template(session: OnnxSession) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": 'Say "hé".'}]
    assert session.chat_prompt(messages) == 'system: Be brief.\nuser: Say "hé".\nassistant: '
