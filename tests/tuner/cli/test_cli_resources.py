"""What an answer takes is shown in full: load, first request, memory, CPU, switches, faults, policies."""

import pytest

from tuner.cli.resources import policy_lines, resources_report

METRICS = {
    "load_ms": 85.4, "first_request_ms": 60.1, "peak_rss_mib": 300.0, "peak_anon_mib": 180.0,
    "peak_file_mib": 120.0, "huge_pages_mib": 164.0, "model_file_mib": 94.0, "cpu_utilisation": 0.98,
    "cpu_s_per_token": 0.0123, "switches_per_token": 1.5, "page_faults_per_token": 0.25,
}  # fmt: skip
TRIED = {"value": 400.0, "adopted": False, "reason": None}
DOCUMENT = {
    "baseline": {"metrics": METRICS},
    "best": {"metrics": {**METRICS, "load_ms": 70.2}},
    "policies": [
        {**TRIED, "changes": {"mmap": False}, "metrics": {"load_ms": 120.0, "peak_rss_mib": 236.0}},
        {
            **TRIED,
            "changes": {"mlock": True},
            "metrics": {},
            "value": None,
            "reason": "limit 64 KiB < 94 MiB",
        },
    ],
}


def test_every_resource_has_a_line_with_both_sides(capsys: pytest.CaptureFixture[str]):
    resources_report(DOCUMENT)
    printed = capsys.readouterr().out
    for shown in ("85.4 ms", "70.2 ms", "60.1 ms", "300 MiB", "164 MiB", "0.98", "0.0123 s", "1.50", "0.25"):
        assert shown in printed, shown
    assert "page faults per output token" in printed
    assert "mmap=false: load 120.0 ms, memory 236 MiB; not better, left as it is" in printed


def test_what_was_not_allowed_says_why():
    assert list(policy_lines(DOCUMENT))[1] == "mlock=true: not measured: limit 64 KiB < 94 MiB"
    assert list(policy_lines({})) == []
