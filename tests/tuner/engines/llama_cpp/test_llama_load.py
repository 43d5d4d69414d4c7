"""How a model file comes into memory: mapped or read, locked or not, as the engine and the kernel tell."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from probes.machine import probe
from tests.support.builds import safe
from tuner import process
from tuner.engines.llama_cpp import locking

pytestmark = pytest.mark.real

# A process of its own for each: what is resident of a model is the process's, not the session's.
CHILD = """
import json, sys
from pathlib import Path
from tests.support.privileges import drop_privileges
settings, unprivileged = json.loads(sys.argv[2]), sys.argv[3] == "unprivileged"
if unprivileged:
    drop_privileges(lockable_bytes=64 << 10)
from tuner.engines.llama_cpp import locking
from tuner.engines.llama_cpp.session import LlamaSession
session = LlamaSession()
session.load(Path(sys.argv[1]), settings)
session.configure({"n_threads": 1, "n_threads_batch": 1}, 32, 1)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "effective": dict(session.effective()),
    "file_mib": int(status["RssFile"].split()[0]) / 1024,
    "locked_mib": locking.locked_bytes() / 2**20,
    "limit_bytes": locking.lock_limit_bytes(),
}))
"""


def opened(path: Path, *, unprivileged: bool = False, **settings: bool | str) -> dict[str, object]:
    argv = [sys.executable, "-P", "-c", CHILD, str(path), json.dumps(settings)]
    ending = process.run([*argv, "unprivileged" if unprivileged else "as is"], deadline_s=60)
    assert ending.returncode == 0, ending.log_tail
    found: dict[str, object] = json.loads(ending.stdout.splitlines()[-1])
    return found


def test_e12_mapping_is_read_back_and_measured(demo_model: Path) -> None:
    size_mib = demo_model.stat().st_size / 2**20
    plain = safe("llama_cpp", {"repack": False})
    mapped, read = (opened(demo_model, mmap=mmap, **plain) for mmap in (True, False))
    assert (mapped["effective"]["mmap"], read["effective"]["mmap"]) == (True, False)
    assert mapped["file_mib"] - read["file_mib"] > 0.8 * size_mib
    assert mapped["effective"]["mlock"] is False


def test_e17_a_lock_is_told_as_the_kernel_holds_it(demo_model: Path) -> None:
    size = demo_model.stat().st_size
    refused = opened(demo_model, unprivileged=True, mlock=True)
    assert refused["effective"]["mlock"] is False
    assert refused["limit_bytes"] == 64 << 10
    limit = locking.lock_limit_bytes()
    is_enough = limit is None or limit > 2 * size
    held = opened(demo_model, mlock=True)
    assert held["effective"]["mlock"] is is_enough
    assert (held["locked_mib"] * 2**20 > 0.5 * size) is is_enough


def test_e12_a_numa_strategy_that_has_no_effect_is_seen(demo_model: Path) -> None:
    """On a machine of one node every strategy is none; on others the engine does not tell which it has."""
    nodes = [node for node in probe().numa_nodes if node.cpus]
    held = {name: opened(demo_model, numa=name)["effective"].get("numa") for name in ("off", "distribute")}
    assert held == {"off": "off", "distribute": "off" if len(nodes) == 1 else None}
    assert "numa" not in opened(demo_model)["effective"]
