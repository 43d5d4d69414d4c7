"""Advice with its number and its fix; changes between two snapshots."""

from __future__ import annotations

from trees import CPU, Tree

from probes.advice import Advice
from probes.conditions import change_between, snapshot
from probes.sysfs import Sysfs


def advice(tree: Tree) -> dict[str, Advice]:
    return {item.id: item for item in tree.probe().advice}


def test_a_quiet_machine_needs_no_advice(tree: Tree) -> None:
    tree.plain(4).write("proc/loadavg", "0.10 0.20 0.30 1/100 5\n")
    tree.write(f"{CPU}/cpu0/cpufreq/scaling_governor", "performance\n")
    machine = tree.probe()
    assert (machine.advice, machine.governor) == ((), "performance")


def test_every_disturbance_is_told_with_severity_and_fix(tree: Tree) -> None:
    tree.plain(4).write("proc/loadavg", "3.50 0.20 0.30 1/100 5\n")
    for cpu in range(4):
        base = f"{CPU}/cpu{cpu}/cpufreq"
        tree.write(f"{base}/scaling_governor", "powersave").write(f"{base}/cpuinfo_max_freq", "4000000")
        tree.write(f"{base}/scaling_max_freq", "2000000").write(f"{base}/scaling_cur_freq", "1500000")
        tree.write(f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", "7")
    tree.write(f"{CPU}/intel_pstate/no_turbo", "1")
    tree.write("proc/stat", "".join(f"cpu{cpu} 100 0 0 800 0 0 0 100 0 0\n" for cpu in range(4)))
    tree.write("proc/pressure/cpu", "some avg10=42.00 avg60=1.00 avg300=0.00 total=5000000\n")
    tree.write("proc/pressure/memory", "some avg10=5.50 avg60=1.00 avg300=0.00 total=1\n")
    tree.write("proc/meminfo", "SwapTotal: 4194304 kB\nSwapFree: 1048576 kB\n")
    tree.write("sys/class/power_supply/BAT0/type", "Battery").write(
        "sys/class/power_supply/BAT0/status", "Discharging"
    )
    tree.cgroup2("/a").write(
        "sys/fs/cgroup/a/cpu.stat", "nr_periods 100\nnr_throttled 50\nthrottled_usec 1\n"
    )
    found = advice(tree)
    assert {item.id: (item.severity, item.value) for item in found.values()} == {
        "governor": ("warning", None),
        "turbo_off": ("info", None),
        "frequency_capped": ("warning", 2000.0),
        "thermal_throttle": ("info", 28.0),
        "battery": ("warning", None),
        "steal": ("warning", 10.0),
        "load": ("warning", 3.5),
        "cpu_pressure": ("warning", 42.0),
        "swap": ("warning", float(3 << 30)),
        "memory_pressure": ("warning", 5.5),
        "cgroup_throttled": ("warning", 50.0),
    }
    assert all(item.fix and item.message for item in found.values())


def test_active_pstate_drivers_call_their_good_governor_powersave(tree: Tree) -> None:
    tree.plain(1).write(f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave")
    tree.write(f"{CPU}/cpu0/cpufreq/energy_performance_preference", "balance_performance")
    assert advice(tree) == {}
    tree.write(f"{CPU}/cpu0/cpufreq/energy_performance_preference", "power")
    assert set(advice(tree)) == {"energy_preference"}


def test_plugged_in_and_wireless_mouse_batteries_are_no_trouble(tree: Tree) -> None:
    supply = "sys/class/power_supply"
    tree.plain(1).write(f"{supply}/BAT0/type", "Battery").write(f"{supply}/BAT0/status", "Discharging")
    tree.write(f"{supply}/AC/type", "Mains").write(f"{supply}/AC/online", "1")
    assert "battery" not in advice(tree)
    tree.write(f"{supply}/AC/online", "0")
    assert "battery" in advice(tree)
    tree.write(f"{supply}/BAT0/scope", "Device")
    assert "battery" not in advice(tree)


def test_changes_are_of_the_watched_cpus(tree: Tree) -> None:
    rows = "cpu 0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 {} 0 0\ncpu1 900 0 0 900 0 0 0 0 0 0\n"
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    tree.write("proc/stat", rows.format(100, 100, 0)).write("proc/pressure/cpu", pressure.format(0))
    before = snapshot(Sysfs(tree.root), [0])
    tree.write("proc/stat", rows.format(150, 130, 20)).write("proc/pressure/cpu", pressure.format(10))
    change = change_between(before, snapshot(Sysfs(tree.root), [0]))
    assert (change.busy_share, change.steal_share) == (0.5, 0.2)
    assert change.cpu_stalled_share is not None
    assert change.throttled_periods is change.thermal_events is None


def test_nothing_is_known_of_an_empty_tree(tree: Tree) -> None:
    now = snapshot(Sysfs(tree.root))
    assert (now.busy_s, now.load_1min, now.is_on_battery, now.is_turbo_on, now.throttling) == (None,) * 5
    assert change_between(now, now).busy_share is None
