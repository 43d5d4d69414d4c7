"""Finds the folders of this process's cgroups, leaf first, for each controller and hierarchy."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from probes.sysfs import Sysfs

__all__ = ["CgroupPaths", "Mount", "find_cgroup_paths", "read_mounts"]

_CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory"})
_ROOT_V2 = "sys/fs/cgroup"


@dataclass(frozen=True)
class Mount:
    """One mounted cgroup hierarchy: `root` is the cgroup that appears at `point`."""

    point: str
    root: str
    fstype: str
    options: frozenset[str]


@dataclass(frozen=True)
class CgroupPaths:
    """Folders below the root, from the process's own cgroup up to the mount point; () where not mounted."""

    unified: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    cpuset: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


def find_cgroup_paths(sysfs: Sysfs) -> CgroupPaths:
    """The folders of v1, v2 and hybrid layouts at whatever mount points they have."""
    mounts = read_mounts(sysfs) or _usual_mounts(sysfs)
    own = _own_groups(sysfs)
    legacy = _own_cpuset(sysfs)
    unified = [mount for mount in mounts if mount.fstype == "cgroup2"]
    v1_cpuset = _mounts_of(mounts, "cpuset")
    unified_path = own.get("", legacy if not v1_cpuset and legacy else "/")
    return CgroupPaths(
        unified=_chain(unified, unified_path),
        cpu=_chain(_mounts_of(mounts, "cpu"), own.get("cpu", "/")),
        cpuset=_chain(v1_cpuset, own.get("cpuset", legacy or "/")),
        memory=_chain(_mounts_of(mounts, "memory"), own.get("memory", "/")),
    )


def read_mounts(sysfs: Sysfs) -> list[Mount]:
    """The cgroup mounts by mountinfo, else by the mounts files."""
    found = [_from_mountinfo(line) for line in sysfs.lines("proc/self/mountinfo")]
    mounts = [mount for mount in found if mount is not None]
    for path in ("proc/self/mounts", "proc/mounts"):
        if not mounts:
            mounts = [mount for mount in map(_from_mounts, sysfs.lines(path)) if mount is not None]
    return mounts


def _from_mountinfo(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    fields, tail = left.split(), right.split()
    if not dash or len(fields) < 5 or not tail or tail[0] not in ("cgroup", "cgroup2", "cpuset"):
        return None
    options = frozenset(tail[2].split(",")) if len(tail) > 2 else frozenset()
    return Mount(_unescape(fields[4]), _unescape(fields[3]), tail[0], options)


def _from_mounts(line: str) -> Mount | None:
    fields = line.split()
    if len(fields) < 4 or fields[2] not in ("cgroup", "cgroup2", "cpuset"):
        return None
    return Mount(_unescape(fields[1]), "/", fields[2], frozenset(fields[3].split(",")))


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8) & 0xFF), path)


def _usual_mounts(sysfs: Sysfs) -> list[Mount]:
    """Where no mount table is readable: the places where distributions mount them."""
    if sysfs.exists(f"{_ROOT_V2}/cgroup.controllers") or sysfs.exists(f"{_ROOT_V2}/cpu.max"):
        return [Mount(f"/{_ROOT_V2}", "/", "cgroup2", frozenset())]
    found = []
    for name in sysfs.names(_ROOT_V2):
        controllers = _CONTROLLERS.intersection(name.split(","))
        if controllers:
            found.append(Mount(f"/{_ROOT_V2}/{name}", "/", "cgroup", controllers))
    return found


def _own_groups(sysfs: Sysfs) -> dict[str, str]:
    """Controller -> path of the process; "" is the unified hierarchy."""
    groups: dict[str, str] = {}
    for line in sysfs.lines("proc/self/cgroup"):
        number, colon, rest = line.partition(":")
        controllers, colon2, path = rest.partition(":")
        if colon and colon2 and path.startswith("/"):
            for controller in controllers.split(","):
                groups.setdefault(controller if controllers or number == "0" else "?", path)
    return groups


def _own_cpuset(sysfs: Sysfs) -> str | None:
    path = sysfs.text("proc/self/cpuset")
    return path if path and path.startswith("/") else None


def _mounts_of(mounts: list[Mount], controller: str) -> list[Mount]:
    found = [mount for mount in mounts if mount.fstype == "cgroup" and controller in mount.options]
    if controller == "cpuset" and not found:
        found = [mount for mount in mounts if mount.fstype == "cpuset"]
    return found


def _chain(mounts: list[Mount], path: str) -> tuple[str, ...]:
    """The folders of the cgroup at `path` and its ancestors under the mount that shows most of them.

    A path outside of the mounted part (another namespace's) leaves the mount point itself.
    """
    best: tuple[str, ...] = ()
    for mount in mounts:
        inner = _below(posixpath.normpath(path), posixpath.normpath(mount.root))
        parts = [part for part in (inner or "").split("/") if part]
        point = mount.point.strip("/")
        chain = tuple("/".join([point, *parts[:depth]]).strip("/") for depth in range(len(parts), -1, -1))
        if not best or (inner is not None and len(chain) > len(best)):
            best = chain
    return best


def _below(path: str, root: str) -> str | None:
    if root == "/" and not path.startswith("/.."):
        return path
    return path[len(root) :] if path == root or path.startswith(root + "/") else None
