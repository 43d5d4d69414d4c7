"""Odd files, names, streams and folders end in one clear line and the right exit code."""

import io
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import argv, environment
from tuner.cli.main import run
from tuner.cli.progress import Progress
from tuner.errors import ModelFileError, UsageError
from tuner.events import Event
from tuner.home import Home
from tuner.measurement.lock import measuring_lock
from tuner.models.source import resolve
from tuner.userfiles import space_given, workload_given
from tuner.workshop import Workshop

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(home: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the program in this process: its exit code, stdout and stderr."""

    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        out = capsys.readouterr()
        return code, out.out, out.err

    return run_it


def check_one_line(answer: tuple[int, str, str], code: int, *parts: str) -> None:
    seen, out, err = answer
    assert (seen, out, len(err.splitlines())) == (code, "", 1), err
    for part in ("cputune: ", *parts):
        assert part in err


@pytest.mark.parametrize("text", ["[" * 20_000, "{a: " + "[" * 20_000, "a: " + "[" * 20_000])
def test_a_file_that_is_nested_too_deeply(text: str, tmp_path: Path):
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"deep\.yaml"):
        space_given(str(file))


def test_an_endless_device_is_read_up_to_the_bound():
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        space_given("/dev/zero")


@pytest.mark.parametrize("name", [r"a\nb", r"a\0b", r"a\ud800b", " "])
def test_a_workload_name_must_be_printable(name: str, tmp_path: Path):
    file = tmp_path / "w.yaml"
    file.write_text(f'prompt_tokens: 64\noutput_tokens: 8\nname: "{name}"\n')
    with pytest.raises(UsageError, match="one line"):
        workload_given(str(file))


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_that_nothing_could_store_or_use(seed: str, call: Call):
    check_one_line(call("search", "--seed", seed, "--json"), 2, "--seed", seed)


@pytest.mark.parametrize("model", ["a" * 500, "~no-such-user/x.gguf", "a" * 500 + "/x-00001-of-00002.gguf"])
def test_a_model_name_that_the_system_refuses(model: str, call: Call):
    check_one_line(call("search", "--model", model, "--json"), 4, model[:500])


def test_a_folder_with_parts_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "f").touch()
    with pytest.raises(ModelFileError, match="cannot be read: Not a directory"):
        resolve(str(tmp_path / "f" / "x-00001-of-00002.gguf"))


@pytest.mark.parametrize(
    "arguments",
    [("search", "--storage", "\udcff/x", "--json"), ("search", "--model", "\udcff.gguf"), ("show", "\udcff")],
)
def test_an_argument_that_is_no_text(arguments: tuple[str, ...], call: Call):
    check_one_line(call(*arguments), 2, "is not UTF-8 text")


def test_a_data_folder_whose_name_is_no_text(call: Call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CPUTUNE_HOME", "/tmp/\udcff")
    check_one_line(call("history", "--json"), 2, "is not UTF-8 text")


def test_a_data_folder_of_an_unknown_user(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CPUTUNE_HOME", "~no-such-user/x")
    assert Home.find().root == Path.cwd() / "~no-such-user/x"


def test_a_working_folder_that_is_gone(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setenv("CPUTUNE_HOME", "relative")
    monkeypatch.chdir(folder)
    shutil.rmtree(folder)
    answer = call("history", "--json")
    monkeypatch.undo()
    check_one_line(answer, 1, "the system refused", "No such file or directory", "user id")


def test_a_folder_as_the_measuring_lock(tmp_path: Path):
    with (
        pytest.raises(UsageError, match="Is a directory; name a file in CPUTUNE_LOCK"),
        measuring_lock(tmp_path),
    ):
        pass


def test_what_the_system_refuses_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch):
    def full() -> None:
        raise OSError(28, "No space left on device", "/x/worker.log")

    monkeypatch.setattr(Home, "find", full)
    check_one_line(call("history", "--json"), 1, "/x/worker.log", "No space left on device")


def test_a_full_stderr_ends_no_search_and_keeps_the_exit_code(home: Path, monkeypatch: pytest.MonkeyPatch):
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    with Progress() as progress:
        progress.observe(Event("note", "a line"))
    assert run(["show", "nope"]) == 3


def test_prepare_ends_with_1_when_a_variant_cannot_be_made(
    call: Call, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_room(*_: object) -> None:
        raise ModelFileError("no room")

    monkeypatch.setattr(Workshop, "variant", no_room)
    code, out, _ = call("models", "prepare", str(tiny_model), "--engines", "simulated", "--json")
    assert code == 1
    assert {row["reason"] for row in json.loads(out)["variants"]} == {"no room"}


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_nothing(closed: str, home: Path, tiny_model: Path):
    words = argv("models", "prepare", str(tiny_model), "--engines", "simulated", "--variants", "q8_0")
    ended = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], env=environment(), timeout=60)
    assert ended.returncode == 0
