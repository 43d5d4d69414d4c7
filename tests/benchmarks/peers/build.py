"""`make peers`: builds llama-bench and llama-server of the llama.cpp in use, and installs llama-optimus.

The source is that of the installed llama-cpp-python, so peers and cputune compute with the same code; CFLAGS
and CXXFLAGS are heeded as when that package is built. All lies in the user's cache folder, or in the one that
CPUTUNE_PEERS names, a folder for each version; nothing is written into the repository.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import IO, Self

import platformdirs

PROGRAMS = ("llama-bench", "llama-server", "llama-perplexity")
OPTIMUS = "llama-optimus==0.1.9"
PACKAGE = "llama-cpp-python"
CONSTRAINTS = Path(__file__).resolve().parents[3] / "constraints.txt"

# What the package's own build sets; the rest is off because no peer needs it or because it would download.
CMAKE_OPTIONS: Mapping[str, str] = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}


class PeersError(Exception):
    """A peer can't be had; one line with what mends it."""


@dataclass(frozen=True)
class Peers:
    """Where the peers of one version of the package are, built or not."""

    version: str
    folder: Path

    @classmethod
    def find(cls) -> Self:
        """Those of the installed llama-cpp-python; raises PeersError where there is none."""
        try:
            found = version(PACKAGE)
        except PackageNotFoundError:
            raise PeersError(f"{PACKAGE} is not installed: make search installs it") from None
        named = os.environ.get("CPUTUNE_PEERS")
        root = Path(named).expanduser() if named else platformdirs.user_cache_path("cputune") / "peers"
        return cls(found, root.absolute() / found)

    def program(self, name: str) -> Path:
        """A built program; raises PeersError where it is not built."""
        path = self.folder / "bin" / name
        if not path.is_file():
            raise PeersError(f"{name} {self.version} is not built: run make peers")
        return path

    @property
    def optimus(self) -> Path:
        """The program llama-optimus; raises PeersError where it is not installed."""
        path = self.folder / "optimus" / "bin" / "llama-optimus"
        if not path.is_file():
            raise PeersError("llama-optimus is not installed: run make peers")
        return path


def main() -> int:
    """Build what is missing; say where all is."""
    try:
        peers = Peers.find()
        build(peers)
        install_optimus(peers)
    except PeersError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path in (*(peers.program(name) for name in PROGRAMS), peers.optimus):
        sys.stdout.write(f"{path}\n")
    return 0


def recipe(environment: Mapping[str, str]) -> dict[str, object]:
    """What a build depends on; another one is built anew."""
    flags = {name: environment.get(name, "").strip() for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS")}
    return {"options": dict(CMAKE_OPTIONS), "programs": list(PROGRAMS), **flags}


def is_built(peers: Peers, wanted: Mapping[str, object]) -> bool:
    """Whether all programs are there and were built as wanted."""
    programs = peers.folder / "bin"
    return _noted(programs / "built.json") == wanted and all((programs / name).is_file() for name in PROGRAMS)


def _noted(path: Path) -> object:
    """What a build noted of itself; None where it did not, or was interrupted meanwhile."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def build(peers: Peers) -> None:
    """Build the programs unless they are there, about 8 minutes on 2 cores; raises PeersError.

    An interrupted build is gone on with. Nothing but the programs with their libraries stays.
    """
    wanted = recipe(os.environ)
    if is_built(peers, wanted):
        return
    missing = missing_tools(os.environ)
    if missing:
        raise PeersError(missing)
    work = peers.folder / "work"
    started = work / "recipe.json"
    if _noted(started) != wanted:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    started.write_text(json.dumps(wanted))
    log = peers.folder / "build.log"
    sys.stderr.write(f"building {', '.join(PROGRAMS)} of {PACKAGE} {peers.version}; log: {log}\n")
    with log.open("a") as out:
        source = work / "source"
        if not source.is_dir():
            download(peers, work, out)
        options = [f"-D{name}={value}" for name, value in CMAKE_OPTIONS.items()]
        made = work / "made"
        _run(["cmake", "-S", str(source), "-B", str(made), *options], out)
        jobs = str(len(os.sched_getaffinity(0)))
        _run(["cmake", "--build", str(made), "--parallel", jobs, "--target", *PROGRAMS], out)
    (made / "bin" / "built.json").write_text(json.dumps(wanted))
    shutil.rmtree(peers.folder / "bin", ignore_errors=True)
    (made / "bin").rename(peers.folder / "bin")
    shutil.rmtree(work)


def download(peers: Peers, work: Path, log: IO[str]) -> None:
    """Fetch the source package and unpack its llama.cpp as `work`/source, which is there only as a whole."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    package = f"{PACKAGE}=={peers.version}"
    with tempfile.TemporaryDirectory(dir=work) as temporary:
        folder = Path(temporary)
        _run([*pip, "--no-deps", "--no-binary", PACKAGE, "--dest", str(folder), package], log)
        unpacked(next(folder.glob("*.tar.gz")), folder / "package").rename(work / "source")


def missing_tools(environment: Mapping[str, str]) -> str | None:
    """One line for the first tool that the build lacks."""
    compilers = [shlex.split(environment.get(name, "") or usual)[0] for name, usual in COMPILERS.items()]
    path = environment.get("PATH")
    absent = [name for name in ("cmake", *compilers) if shutil.which(name, path=path) is None]
    if not absent:
        return None
    return f"{', '.join(absent)} not found: install with apt-get install cmake build-essential"


COMPILERS: Mapping[str, str] = {"CC": "cc", "CXX": "c++"}


def unpacked(archive: Path, target: Path) -> Path:
    """The llama.cpp inside of a source package, unpacked below `target`; its git history is left out."""
    with tarfile.open(archive) as package:
        wanted = [member for member in package if is_source(member.name)]
        if not wanted:
            raise PeersError(f"{archive.name} holds no vendor/llama.cpp")
        package.extractall(target, members=wanted, filter="data")
    return target / PurePosixPath(wanted[0].name).parts[0] / "vendor" / "llama.cpp"


def is_source(name: str) -> bool:
    """Whether a member of a source package belongs to its llama.cpp."""
    parts = PurePosixPath(name).parts
    return parts[1:3] == ("vendor", "llama.cpp") and ".git" not in parts


def install_optimus(peers: Peers) -> None:
    """Install llama-optimus into an environment of its own unless it is there; raises PeersError."""
    folder = peers.folder / "optimus"
    if (folder / "bin" / "llama-optimus").is_file():
        return
    sys.stderr.write(f"installing {OPTIMUS}\n")
    try:
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeersError(f"can't make an environment for llama-optimus: {error}") from None
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    with (peers.folder / "optimus.log").open("w") as out:
        _run([*pip, "--constraint", str(CONSTRAINTS), OPTIMUS], out)


def _run(argv: Sequence[str], log: IO[str]) -> None:
    """Run one step of a build; PeersError with the end of its log where it fails."""
    path = Path(log.name)
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
    if ended.returncode:
        said = path.read_text(errors="replace").strip().splitlines()
        raise PeersError(
            f"{shlex.join(argv[:3])} ... failed ({ended.returncode}): {said[-1] if said else ''}; see {path}"
        )


if __name__ == "__main__":
    sys.exit(main())
