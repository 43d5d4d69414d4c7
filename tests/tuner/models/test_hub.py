"""Models from a Hugging Face hub and from ModelScope, as the program fetches them from a server here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from profiles.store import Store
from tests.support.commands import command, environment
from tests.support.folders import write_huggingface
from tests.support.hubs import Hub, HuggingFace, ModelScope, closed_port, serving
from tuner.cli import exit_codes
from tuner.engines.llama_cpp.smoke import tiny_model

MakeGguf = Callable[..., Path]
TOKEN = "hub_secret_0123456789"
RESOLVE = """
import json, sys
from pathlib import Path
from tuner.errors import ModelFileError
from tuner.models.source import model_info, resolve
spec, cache, refresh = sys.argv[1:]
try:
    found = resolve(spec, cache=Path(cache), refresh=refresh == "True")
    print(json.dumps({"source": found.spec, **model_info(found, cache=Path(cache)).to_json()}))
except ModelFileError as error:
    sys.exit(f"REFUSED {error}")
"""
SCHEMES = {"hf": HuggingFace, "ms": ModelScope}
LIBRARIES = {"hf": "huggingface_hub", "ms": "modelscope_hub"}


@dataclass
class World:
    """One hub and the program, whose folders are all below `root`."""

    scheme: str
    hub: Hub
    root: Path
    monkeypatch: pytest.MonkeyPatch

    def ask(self, location: str, *, refresh: bool = True) -> subprocess.CompletedProcess[str]:
        """Resolve and inspect it in a process of its own: the libraries read their environment once."""
        spec = f"{self.scheme}:{location}"
        return subprocess.run(
            [sys.executable, "-P", "-c", RESOLVE, spec, str(self.home), str(refresh)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def found(self, location: str, *, refresh: bool = True) -> dict[str, Any]:
        done = self.ask(location, refresh=refresh)
        assert done.returncode == 0, done.stderr
        described: dict[str, Any] = json.loads(done.stdout)
        return described

    def refused(self, location: str) -> str:
        """The one line that it is refused with."""
        done = self.ask(location)
        assert done.returncode == 1, done.stdout + done.stderr
        # A progress bar of a download that broke off may stand before it.
        line = done.stderr.replace("\r", "\n").rstrip("\n").rpartition("\n")[2]
        of_a_download = line.startswith(f"REFUSED {self.root}")
        assert line.startswith(f"REFUSED {self.scheme}:") or of_a_download, done.stderr
        return line

    @property
    def home(self) -> Path:
        return Path(os.environ["CPUTUNE_HOME"])

    def endpoint(self, url: str) -> None:
        self.monkeypatch.setenv("HF_ENDPOINT", url)
        self.monkeypatch.setenv("MODELSCOPE_ENDPOINT", url)


def folder_files(root: Path) -> dict[str, bytes]:
    """A tiny folder, and what lies beside such ones on hubs."""
    made = write_huggingface(root / "made")
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    shutil.rmtree(made)
    return {**files, "README.md": b"#", "flax_model.msgpack": b"0", "onnx/config.json": b"{}"}


@pytest.fixture(params=sorted(SCHEMES))
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    pytest.importorskip(LIBRARIES[request.param])
    for variable in (
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "MODELSCOPE_API_TOKEN",
        "HF_HUB_CACHE",
        "MODELSCOPE_DOMAIN",
    ):
        monkeypatch.delenv(variable, raising=False)
    for variable, folder in {
        "CPUTUNE_HOME": "cputune",
        "HF_HOME": "hf",
        "MODELSCOPE_CACHE": "ms",
        "MODELSCOPE_HOME": "ms-config",
    }.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    # Their library sleeps between its tries.
    for variable in ("API_MAX_RETRIES", "REPO_TREE_PAGE_MAX_ATTEMPTS"):
        monkeypatch.setenv(f"MODELSCOPE_{variable}", "1")
    model = tiny_model()
    hub = Hub(
        repositories={
            "o/one": {"README.md": b"# one", "sub/m-q4_0.gguf": model, "mmproj-f16.gguf": b"no text model"},
            "o/two": {"a.gguf": model, "b.gguf": model},
            "o/none": {"README.md": b"# none", "model.safetensors": b"0"},
            "o/gated": {"m.gguf": model},
        },
        gated={"o/gated"},
        token=TOKEN,
    )
    with serving(hub, SCHEMES[request.param]):
        served = World(request.param, hub, tmp_path, monkeypatch)
        served.endpoint(hub.url)
        yield served


def test_the_only_model_is_fetched_once_and_named(world: World) -> None:
    found = world.found("o/one")
    assert found["source"] == f"{world.scheme}:o/one:sub/m-q4_0.gguf"
    assert (found["name"], found["architecture"]) == ("m-q4_0", "llama")
    assert world.found("o/one:sub/m-q4_0.gguf")["digest"] == found["digest"]
    assert len(world.hub.fetched()) == 1


def test_what_is_registered_needs_no_network(world: World, make_gguf: MakeGguf) -> None:
    world.hub.repositories["o/long"] = {"long.gguf": make_gguf(context_length=1024).read_bytes()}
    assert command("models", "add", f"{world.scheme}:o/long").returncode == exit_codes.DONE
    world.hub.requests.clear()
    done = command("models", "prepare", "long", "--engines", "simulated", "--variants", "source", "--json")
    assert done.returncode == exit_codes.DONE, done.stderr
    assert world.hub.requests == []


def test_an_unreachable_hub_is_one_line_and_the_cache_serves(world: World) -> None:
    here = world.hub.url
    away = f"http://127.0.0.1:{closed_port()}"
    world.endpoint(away)
    assert f"is not in the hub's cache, and {away} is out of reach" in world.refused("o/two:a.gguf").replace(
        "ModelScope's cache", "the hub's cache"
    )
    world.endpoint(here)
    world.found("o/one")
    world.endpoint(away)
    assert world.found("o/one:sub/m-q4_0.gguf")["name"] == "m-q4_0"


@pytest.mark.parametrize("world", ["hf"], indirect=True)
def test_offline_mode_serves_what_is_cached(world: World) -> None:
    world.found("o/one")
    world.monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    world.hub.requests.clear()
    assert world.found("o/one:sub/m-q4_0.gguf")["name"] == "m-q4_0"
    line = world.refused("o/two:a.gguf")
    assert "hf:o/two:a.gguf is not in the hub's cache, and HF_HUB_OFFLINE is set" in line
    assert world.hub.requests == []


def test_a_repository_with_several_models_lists_them(world: World) -> None:
    line = world.refused("o/two")
    assert f"{world.scheme}:o/two holds 2 models: name one as {world.scheme}:o/two:FILE" in line
    assert "a.gguf, b.gguf" in line


def test_a_repository_without_a_model_says_what_it_holds(world: World) -> None:
    assert "holds no .gguf model: it holds README.md, model.safetensors" in world.refused("o/none")


@pytest.mark.parametrize("world", ["hf"], indirect=True)
def test_a_repository_of_safetensors_is_a_folder(world: World) -> None:
    world.hub.repositories["o/Folder-1B"] = folder_files(world.root)
    found = world.found("o/Folder-1B")
    assert found["source"] == "hf:o/Folder-1B:config.json"
    assert (found["name"], found["format"], found["architecture"]) == ("Folder-1B", "huggingface", "llama")
    sent = {path.rpartition("/")[2] for path in world.hub.fetched()}
    assert sent == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert len(world.hub.fetched()) == len(sent)
    world.hub.requests.clear()
    assert world.found("o/Folder-1B:config.json", refresh=False)["digest"] == found["digest"]
    assert world.hub.requests == []
    world.endpoint(f"http://127.0.0.1:{closed_port()}")
    assert world.found("o/Folder-1B:config.json")["digest"] == found["digest"]


@pytest.mark.parametrize("world", ["hf"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config.json": b'{"architectures": ["BertModel"]}'}, "is not a text-generation model"),
        ({"config.json": b"{" + bytes(5 << 20)}, "allowed: 4194304"),
        (
            {"model.safetensors": None, "pytorch_model.bin": b"0"},
            "holds no .gguf model: it holds ",
        ),
    ],
)
def test_what_is_no_model_costs_no_weights(
    world: World, changes: dict[str, bytes | None], reason: str
) -> None:
    files = {**folder_files(world.root), **changes}
    world.hub.repositories["o/folder"] = {name: data for name, data in files.items() if data is not None}
    assert reason in world.refused("o/folder")
    assert not any("safetensors" in path for path in world.hub.fetched())


@pytest.mark.parametrize("world", ["hf"], indirect=True)
def test_a_folder_without_all_its_weights_is_refused(world: World) -> None:
    index = json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}).encode()
    world.hub.repositories["o/folder"] = {
        **folder_files(world.root), "model.safetensors.index.json": index,
    }  # fmt: skip
    assert "lacks 1 of 2 weight files: model-2.safetensors" in world.refused("o/folder")


def test_a_wrong_file_says_what_is_there(world: World) -> None:
    line = world.refused("o/one:m-f16.gguf")
    assert "the repository has no file m-f16.gguf; it holds sub/m-q4_0.gguf" in line


def test_a_wrong_repository_is_named(world: World) -> None:
    assert "knows no such repository" in world.refused("o/nope")
    assert "knows no such repository" in world.refused("o/nope:m.gguf")


def test_a_gated_repository_wants_a_token_that_is_never_shown(world: World) -> None:
    variable = {"hf": "HF_TOKEN", "ms": "MODELSCOPE_API_TOKEN"}[world.scheme]
    assert variable in world.refused("o/gated:m.gguf")
    world.monkeypatch.setenv(variable, TOKEN[::-1])
    assert TOKEN[::-1] not in world.refused("o/gated:m.gguf")
    world.monkeypatch.setenv(variable, TOKEN)
    done = command("models", "add", f"{world.scheme}:o/gated")
    assert done.returncode == exit_codes.DONE, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    kept = [path for path in (world.root / "cputune").rglob("*") if path.is_file()]
    assert kept
    assert not any(TOKEN.encode() in path.read_bytes() for path in kept)


def test_a_split_model_is_fetched_whole(world: World, make_gguf: MakeGguf) -> None:
    parts = {
        name: make_gguf(name, extra={"split.count": 2, "split.no": number}).read_bytes()
        for number, name in enumerate(("big-00001-of-00002.gguf", "big-00002-of-00002.gguf"))
    }
    world.hub.repositories["o/split"] = dict(parts)
    found = world.found("o/split")
    assert (found["name"], found["file_bytes"]) == ("big", sum(map(len, parts.values())))
    assert world.found("o/split:big-00002-of-00002.gguf")["digest"] == found["digest"]
    assert len(world.hub.fetched()) == 2
    del world.hub.repositories["o/split"]["big-00002-of-00002.gguf"]
    world.monkeypatch.setenv("HF_HOME", str(world.root / "other-hf"))
    world.monkeypatch.setenv("MODELSCOPE_CACHE", str(world.root / "other-ms"))
    assert "the repository has no file big-00002-of-00002.gguf" in world.refused("o/split")


def test_a_broken_connection_is_resumed(world: World) -> None:
    # Longer than what the libraries take in at once, and so keep; padding behind the tensors is legal.
    long = world.hub.repositories["o/one"]["sub/m-q4_0.gguf"] + bytes(12 << 20)
    world.hub.repositories["o/one"]["sub/m-q4_0.gguf"] = long
    world.hub.cut["sub/m-q4_0.gguf"] = 11 << 20
    assert world.found("o/one")["file_bytes"] == len(long)
    ranges = [
        headers.get("Range")
        for method, path, headers in world.hub.requests
        if method == "GET" and ".gguf" in path
    ]
    assert ranges[0] is None
    assert ranges[1] is not None
    assert 0 < int(ranges[1].removeprefix("bytes=").removesuffix("-")) <= 11 << 20


def test_m01_a_broken_file_is_never_registered(world: World) -> None:
    whole = world.hub.repositories["o/one"]["sub/m-q4_0.gguf"]
    # Of the right size, so that only its content tells.
    world.hub.instead["sub/m-q4_0.gguf"] = whole[:-4] + b"\xff\xff\xff\xff"
    done = command("models", "add", f"{world.scheme}:o/one")
    assert done.returncode == exit_codes.MODEL_UNUSABLE
    assert "SHA-256" in done.stderr or "Hash mismatch" in done.stderr
    with Store.open(world.home / "cputune.sqlite3") as store:
        assert store.models() == ()
    # Truncated where the hub has it: its hash is right, its header is not.
    world.hub.repositories["o/cut"] = {"m.gguf": whole[:25_000]}
    assert "is truncated: tensor '" in world.refused("o/cut")


def test_a_newer_file_is_fetched_when_the_model_is_added_again(world: World, make_gguf: MakeGguf) -> None:
    first = world.found("o/one")
    world.hub.repositories["o/one"]["sub/m-q4_0.gguf"] = make_gguf("newer.gguf").read_bytes()
    world.monkeypatch.setattr("tests.support.hubs.COMMIT", "facade" + "0" * 34)
    assert world.found("o/one")["digest"] != first["digest"]


@pytest.mark.parametrize(
    "location", ["no-slash", "a/b/c", "/b", "a/", "o/one:../x.gguf", "o/one:README.md", "o/o?x=1", ""]
)
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_other_forms_are_refused_before_anything_is_asked(scheme: str, location: str) -> None:
    from tuner.errors import ModelFileError
    from tuner.models.source import resolve

    with pytest.raises(ModelFileError, match=r"is not of the form|is no \.gguf file"):
        resolve(f"{scheme}:{location}")


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_without_the_library_the_way_out_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.errors import ModelFileError
    from tuner.models.source import resolve

    monkeypatch.setitem(sys.modules, LIBRARIES[scheme], None)
    with pytest.raises(ModelFileError, match=r"install cputune with its (hub|modelscope) extra"):
        resolve(f"{scheme}:owner/repo")
