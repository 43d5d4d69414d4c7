"""A model with a sliding window: its cache is a setting, and what slid out of it is not reused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from profiles.vocabulary import Setting
from tuner.engines.llama_cpp.session import LlamaSession
from tuner.models.inspect import inspect
from tuner.models.shapes import Shape, write_shape

pytestmark = pytest.mark.real

WINDOW = 32
SHAPE = Shape(
    "gemma3", 6, 64, 2, 1, 32, 128, 320, 4096, 1e6,
    attention_norm=True, sandwich_norms=True, sliding_window=WINDOW,
)  # fmt: skip
SETTINGS: dict[str, Setting] = {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 32}
CELLS = 256
"""The least cache of a window; more tokens than that let it slide."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaSession]:
    path = tmp_path_factory.mktemp("models") / "window.gguf"
    write_shape(SHAPE, "window", path)
    assert inspect([path], name="window").sliding_window == WINDOW
    session = LlamaSession()
    session.load(path, {"repack": False})
    yield session
    session.close()


def configured(opened: LlamaSession, *, swa_full: bool) -> LlamaSession:
    opened.configure({**SETTINGS, "swa_full": swa_full}, 1023, 1)
    opened.configure({**SETTINGS, "swa_full": swa_full}, 1024, 1)
    return opened


def generate(session: LlamaSession, prompt: list[int], *, reuse_prefix: bool = False) -> list[int]:
    session.add(prompt, 8, ignore_eos=True, reuse_prefix=reuse_prefix)
    made: list[int] = []
    while len(made) < 8:
        made += [token.token for token in session.step()]
    return made


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 320) for _ in range(length)]


@pytest.mark.parametrize("swa_full", [True, False])
def test_e12_the_windows_cache_is_read_back(opened: LlamaSession, swa_full: bool) -> None:
    assert configured(opened, swa_full=swa_full).effective()["swa_full"] is swa_full


def test_both_caches_say_the_same(opened: LlamaSession) -> None:
    prompt = prompt_of(3 * CELLS)
    full = generate(configured(opened, swa_full=True), prompt)
    assert len(set(full)) > 1
    assert generate(configured(opened, swa_full=False), prompt) == full


@pytest.mark.parametrize("swa_full", [True, False])
@pytest.mark.parametrize("kept", [3 * CELLS - 10, 2 * CELLS, 40])
def test_a_reused_prefix_changes_no_token(opened: LlamaSession, swa_full: bool, kept: int) -> None:
    session = configured(opened, swa_full=swa_full)
    first = prompt_of(3 * CELLS)
    second = [*first[:kept], *prompt_of(30, seed=1)]
    wanted = generate(session, second)
    generate(session, first)
    assert generate(session, second, reuse_prefix=True) == wanted


@pytest.mark.parametrize(
    ("swa_full", "kept", "reused"),
    [
        (True, 40, 40),
        (True, 3 * CELLS - 10, 3 * CELLS - 10),
        (False, 3 * CELLS - 10, 3 * CELLS - 10),
        # Its window is gone: all is computed again.
        (False, 40, 0),
    ],
)
def test_only_what_the_window_holds_is_reused(
    opened: LlamaSession, swa_full: bool, kept: int, reused: int
) -> None:
    session = configured(opened, swa_full=swa_full)
    first = prompt_of(3 * CELLS)
    generate(session, first)
    number = session.add([*first[:kept], *prompt_of(30, seed=1)], 1, reuse_prefix=True)
    session._place()
    assert session._slots[0].past == reused
    session.cancel(number)
    session.step()
