"""Every error is one line on stderr with its own exit code, and nothing on stdout."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tiny import write_tiny_model
from tuner.cli.main import run
from tuner.measurement.lock import measuring_lock

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
    assert (seen, out) == (code, ""), err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("cputune: ")
    for part in parts:
        assert part in err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("serch", ("No such command 'serch'", "'search'")),
        ("models rm", ("No such command 'rm'", "see cputune models --help")),
        ("search --modle x", ("--modle", "--model")),
        ("search --xyz", ("--xyz", "see cputune search --help")),
        ("search --budget 5x", ("budget '5x'", "60s, 5m or 1h")),
        ("search --budget 1s", ("budget '1s' is 1 s", "10 s")),
        ("search --workload chta", ("unknown workload 'chta'", "did you mean chat?")),
        (
            "search --quality nearlossles",
            ("unknown quality level 'nearlossles'", "did you mean near-lossless?"),
        ),
        ("search --engines simulatde", ("unknown engine 'simulatde'", "did you mean simulated?")),
        ("search --engines ,", ("--engines ',' names nothing",)),
        ("search --variants ,", ("--variants ',' names nothing",)),
        ("search --trials 0", ("--trials", "0", "x>=1")),
        ("search --trials many", ("--trials", "'many'", "int")),
        ("search --seed x", ("--seed", "'x'", "int")),
        ("show", ("Missing argument 'STUDY|PROFILE|COMPARISON'", "see cputune show --help")),
        ("history --limit 0", ("--limit", "got '0'")),
        ("history extra", ("extra", "see cputune history --help")),
        ("models add", ("Missing argument", "see cputune models add --help")),
        ("probe --root /no/such/folder", ("/no/such/folder", "not a directory")),
    ],
)
@pytest.mark.parametrize("json", [False, True])
def test_a_wrong_argument_is_one_line(arguments: str, parts: tuple[str, ...], json: bool, call: Call):
    words = arguments.split()
    # Only behind a whole command line: elsewhere --json would be the value that is missing.
    more = ["--json"] if json and not arguments.startswith(("serch", "models rm")) else []
    check_one_line(call(*words, *more), 2, *parts)


def test_a_variant_that_no_engine_makes(call: Call, tiny_model: Path):
    answer = call(
        "search", "--model", str(tiny_model), "--engines", "simulated", "--variants", "q8", "--json"
    )
    check_one_line(answer, 2, "unknown variant 'q8'", "did you mean q8_0?")


@pytest.mark.parametrize("command", [("search", "--model"), ("models", "prepare"), ("models", "add")])
def test_a_model_that_does_not_exist(command: tuple[str, ...], call: Call):
    check_one_line(call(*command, "/no/such/model.gguf", "--json"), 4, "/no/such/model.gguf does not exist")


def test_a_models_name_that_is_not_registered_is_answered_with_the_nearest(call: Call, tiny_model: Path):
    check_one_line(call("search", "--model", "tynny"), 4, "no model 'tynny'", "none is registered yet")
    assert call("models", "add", str(tiny_model))[0] == 0
    check_one_line(call("search", "--model", "tiyn"), 4, "registered are tiny", "did you mean tiny?")
    check_one_line(call("search", "--model", ""), 4, "no model ''")


def test_several_registered_models_ask_for_one(call: Call, tiny_model: Path, tmp_path: Path):
    # Another content: one content is one model, whatever its names.
    other = write_tiny_model(tmp_path / "other.gguf", weight=0.03)
    for name, path in (("one", tiny_model), ("two", other)):
        assert call("models", "add", str(path), "--name", name)[0] == 0
    check_one_line(call("search"), 2, "2 models are registered (one, two)", "--model")


def gguf_of(version: int, tensors: int, keys: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


BROKEN = {
    "text.gguf": (b"hello, I am no model\n", "is not a GGUF file"),
    "empty.gguf": (b"", "empty"),
    "page.gguf": (b"<!DOCTYPE html><html>Not found</html>", "HTML"),
    "pointer.gguf": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "LFS"),
    "cut.gguf": (gguf_of(3, 2, 2), "is truncated"),
    "future.gguf": (gguf_of(99, 0, 0), "99"),
    "huge.gguf": (gguf_of(3, 1 << 60, 1 << 60), ""),
    "part-00001-of-00003.gguf": (gguf_of(3, 0, 0), "lacks 2 of the model's 3 parts"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_reason(name: str, call: Call, tmp_path: Path):
    content, reason = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    check_one_line(call("models", "add", str(path), "--json"), 4, reason)
    code, listed, _ = call("models", "list", "--json")
    assert (code, '"models": []' in listed) == (0, True)


def test_a_folder_a_package_and_a_half_file_are_refused(call: Call, tmp_path: Path, tiny_model: Path):
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny_model.read_bytes()[: tiny_model.stat().st_size // 2])
    check_one_line(call("models", "add", str(tmp_path)), 4, "holds no model", "a .gguf file by its own name")
    check_one_line(call("models", "add", "package:no_such_package/x.gguf"), 4, "no package 'no_such_package'")
    check_one_line(call("models", "add", str(half)), 4, "half.gguf")


def test_a_file_that_may_not_be_read(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By a permission error of the file's own; the tests may run as root, whom nothing is forbidden."""
    path = tmp_path / "secret.gguf"
    path.write_bytes(gguf_of(3, 0, 0))
    opened = Path.open

    def refuse(self: Path, *arguments: object, **options: object) -> object:
        if self.name == "secret.gguf":
            raise PermissionError(13, "Permission denied")
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    check_one_line(call("models", "add", str(path)), 4, "secret.gguf", "ermission denied")


@pytest.mark.parametrize("wanted", ["s-nope", "p-nope", "nope", "p-"])
def test_an_unknown_id_is_answered_with_what_is_known(wanted: str, call: Call):
    check_one_line(call("show", wanted, "--json"), 3, f"'{wanted}'", "none yet")


@pytest.mark.parametrize("words", ["show c-{}", "invalidate {}", "history --limit {}"])
def test_a_number_that_no_database_holds(words: str, call: Call):
    check_one_line(call(*words.format(2**63).split()), 1, "too large", "2^63 - 1")


def test_no_engine_that_runs(call: Call, tiny_model: Path, set_faults: Callable[..., None]):
    set_faults({"*": "segv_on_import"})
    answer = call("search", "--model", str(tiny_model), "--engines", "simulated", "--json")
    check_one_line(answer, 5, "no engine can run here", "simulated", "SIGSEGV")


def test_nothing_feasible(call: Call, tiny_model: Path, set_faults: Callable[..., None]):
    set_faults({"*": "refuse_on_load"})
    code, out, err = call(
        "search", "--model", str(tiny_model), "--engines", "simulated", "--trials", "1", "--json"
    )
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith("cputune: the default configuration does not run: the simulated")


def test_another_search_measures(call: Call, tiny_model: Path, tmp_path: Path):
    with measuring_lock(tmp_path / "measuring.lock"):
        answer = call("search", "--model", str(tiny_model), "--engines", "simulated", "--trials", "1")
    check_one_line(answer, 75, "another process measures", "--wait")


def test_a_data_folder_that_cannot_be_made(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CPUTUNE_HOME", str(tmp_path / "file" / "home"))
    check_one_line(call("history", "--json"), 1, "can't write", "CPUTUNE_HOME")
