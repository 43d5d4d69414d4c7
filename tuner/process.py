"""Child processes that end: by themselves, at their deadline, at their memory limit, or with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from probes.cgroup_paths import find_cgroup_paths
from probes.sysfs import Sysfs
from profiles.vocabulary import TrialStatus
from tuner.clock import monotonic_s

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds the top-level packages: a checkout, or site-packages of a wheel."""

TERMINATE_GRACE_S = 0.3
"""What a process group gets between SIGTERM and SIGKILL."""

MAX_STDOUT_BYTES = 16 << 20
LOG_TAIL_BYTES = 4096

# Runs before the real program in the child itself, in place of a preexec_fn, which is unsafe once the
# parent has threads. PR_SET_PDEATHSIG (1) outlives exec; the parent may have died before it was set.
_LAUNCHER = """
import ctypes, os, resource, signal, sys
parent, memory, cpus, node, *argv = sys.argv[1:]
libc = ctypes.CDLL(None)
libc.prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(parent):
    os._exit(1)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    # Where the kernel weighs sessions against each other, a new one would start at an equal weight.
    if os.nice(0) > 0:
        with open("/proc/self/autogroup", "w") as group:
            group.write(str(os.nice(0)))
except OSError:
    pass
if cpus:
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
if node:
    # set_mempolicy(MPOL_BIND), as numactl --membind; threads inherit it, and it outlives exec. Where it is
    # refused, as in some containers, memory lies where it is touched first: the worker tells its policy.
    calls = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
    call = calls.get(os.uname().machine)
    mask = (ctypes.c_ulong * 16)()
    mask[int(node) // 64] = 1 << int(node) % 64
    if call:
        libc.syscall(call, 2, mask, 8 * ctypes.sizeof(mask) + 1)
if memory:
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.stderr.write(f"{argv[0]}: {error.strerror}\\n")
    os._exit(127)
"""


@dataclass(frozen=True)
class Ending:
    """How a child ended: `returncode` is negative for a signal; `log_tail` is the end of its stderr.

    `oom_killed` says that the kernel's out-of-memory killer struck in our control group meanwhile.
    """

    returncode: int
    timed_out: bool
    stdout: bytes
    log_tail: str
    oom_killed: bool = False


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
) -> Ending:
    """Run a program to its end, or kill its whole process group after `deadline_s` seconds.

    `memory_bytes` bounds its private writable memory. `environment` replaces the caller's; None means
    `python_environment()`. Raises nothing for what the program does: the `Ending` says it.
    """
    (ending,) = run_together(
        [argv], deadline_s=deadline_s, environment=environment, memory_bytes=memory_bytes
    )
    return ending


def run_together(
    argvs: Sequence[Sequence[str]],
    *,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
) -> list[Ending]:
    """As `run`, several programs side by side under one deadline; their endings in the same order."""
    started: list[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]] = []
    until = monotonic_s() + deadline_s
    kills = oom_kills()
    with ExitStack() as files:
        with ExitStack() as groups:
            for argv in argvs:
                stdout, stderr = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
                process = spawn(
                    argv, environment=environment, memory_bytes=memory_bytes, stdout=stdout, stderr=stderr
                )
                # Also after a normal end: what the program started and left behind goes with it.
                groups.callback(kill_group, process)
                started.append((process, stdout, stderr))
            late = [not _wait(process, until) for process, _stdout, _stderr in started]
        oom_killed = oom_kills() > kills
        return [
            Ending(process.returncode, timed_out, _content(stdout), tail(stderr), oom_killed)
            for (process, stdout, stderr), timed_out in zip(started, late, strict=True)
        ]


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MAX_STDOUT_BYTES)


def _wait(process: subprocess.Popen[bytes], until: float) -> bool:
    """Whether it ended by `until`; the time for which we were stopped does not count."""
    while True:
        try:
            process.wait(max(0.0, until - monotonic_s()))
        except subprocess.TimeoutExpired:
            if monotonic_s() >= until:
                return False
        else:
            return True


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
    affinity: Sequence[int] | None = None,
    memory_node: int | None = None,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a session and process group of its own, with an empty stdin.

    The kernel kills it (SIGKILL) when the thread that called this ends, so call it from a thread that
    lives as long as the child may. Affinity and memory limit hold before its first instruction, and so does
    the binding of its memory to a NUMA node, where the kernel allows that.
    """
    launcher = [
        sys.executable, "-I", "-S", "-c", _LAUNCHER,
        str(os.getpid()),
        "" if memory_bytes is None else str(memory_bytes),
        "" if affinity is None else ",".join(map(str, affinity)),
        "" if memory_node is None else str(memory_node),
    ]  # fmt: skip
    return subprocess.Popen(
        [*launcher, *argv],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=dict(python_environment() if environment is None else environment),
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )


def lower_priority(pid: int, nice: int) -> None:
    """Let a child of `spawn`, and what it starts from now on, give way to others: for CPU by `nice`, up to
    19, and for the disk to all."""
    import psutil

    with suppress(psutil.Error, OSError):
        child = psutil.Process(pid)
        child.nice(nice)
        child.ionice(psutil.IOPRIO_CLASS_IDLE)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def kill_group(process: subprocess.Popen[bytes], *, grace_s: float = TERMINATE_GRACE_S) -> None:
    """End a child of `spawn` with everything it started, and reap it.

    A child that still runs gets SIGTERM and `grace_s` seconds (0: none) before SIGKILL.
    """
    if process.poll() is None and grace_s > 0:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    # The leader may be gone while a grandchild lives on in its group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def python_argv(module: str, *args: str, interpreter: str = sys.executable) -> list[str]:
    """The command that runs one of our modules, without the working folder on its path.

    Start it with `python_environment()` (the default of `run` and `spawn`).
    """
    return [interpreter, "-P", "-m", module, *args]


def python_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """`base` (default: the caller's environment) in which our top-level packages can be imported.

    From a checkout that takes PYTHONPATH; from a wheel nothing, since site-packages first on the path
    would hide what another interpreter brings.
    """
    environment = dict(os.environ if base is None else base)
    installed = {Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib")}
    if ROOT not in installed:
        others = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in others if p != str(ROOT))])
    return environment


def describe_exit(
    returncode: int, *, oom_killed: bool = False, log_tail: str = ""
) -> tuple[TrialStatus, str]:
    """The status and one line for a child that ended when it should not have.

    `returncode` as Popen gives it (negative: signal; 128 + n, as shells report one, is understood).
    """
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 160 else 0
    if not number:
        return TrialStatus.CRASH, f"exit code {returncode}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL and oom_killed:
        return TrialStatus.OUT_OF_MEMORY, "SIGKILL by the kernel's out-of-memory killer"
    if number == signal.SIGABRT and "std::bad_alloc" in log_tail:
        return TrialStatus.OUT_OF_MEMORY, "SIGABRT after a failed allocation (std::bad_alloc)"
    if number == signal.SIGILL:
        return TrialStatus.ILLEGAL_INSTRUCTION, "SIGILL: an instruction that this CPU lacks"
    return TrialStatus.CRASH, name


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def tail(log: IO[bytes], limit: int = LOG_TAIL_BYTES) -> str:
    """The last `limit` bytes of a log as text."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - limit))
    return log.read(limit).decode(errors="replace").strip()


def oom_kills() -> int:
    """Processes that the out-of-memory killer ended in our control group so far; 0 where unknown."""
    live = Sysfs()
    paths = find_cgroup_paths(live)
    for path in (
        *(f"{folder}/memory.events" for folder in paths.unified[:1]),
        *(f"{folder}/memory.oom_control" for folder in paths.memory[:1]),
    ):
        for line in (live.text(path) or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0
