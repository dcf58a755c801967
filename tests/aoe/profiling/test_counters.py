"""Hardware counters: what perf writes, and what it says where it may not count."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from aoe.profiling.counters import HardwareCounters, count_runs, parse_counts

_COUNTED = """3000;;instructions:u;1000;100.00;;
2000;;cycles:u;1000;100.00;;
<not supported>;;cache-misses;0;100.00;;
"""


def test_counts_are_those_of_one_run() -> None:
    counters = parse_counts(_COUNTED, runs=10)
    assert counters == HardwareCounters(per_run={"instructions": 300.0, "cycles": 200.0}, reason="")
    assert counters.instructions_per_cycle == 1.5


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("<not supported>;;cycles;0;100.00;;\n", "has no counters"),
        ("Error:\nNo permission to enable cycles event.\n", "perf may not count: Error:"),
        ("", "perf may not count: nothing"),
    ],
)
def test_where_nothing_is_counted_it_is_said_why(told: str, reason: str) -> None:
    counters = parse_counts(told, runs=1)
    assert counters.per_run == {}
    assert reason in counters.reason
    assert counters.instructions_per_cycle is None


def test_runs_happen_while_the_program_counts(tmp_path: Path) -> None:
    program = tmp_path / "perf"
    program.write_text(
        "#!/bin/sh\n"
        f"trap \"printf '%s' '{_COUNTED}' >&2; exit 0\" INT\n"
        "while :; do sleep 0.01; done\n"
    )
    program.chmod(0o755)
    runs: list[int] = []
    counters = count_runs(lambda: runs.append(1), runs=5, program=str(program))
    assert len(runs) == 6  # one warms up
    assert counters.per_run["cycles"] == 400.0


def test_run_that_fails_ends_the_program(tmp_path: Path) -> None:
    program, noted = tmp_path / "perf", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {noted}\nexec sleep 60\n")
    program.chmod(0o755)
    runs = iter([None])  # one warms up
    with pytest.raises(StopIteration):
        count_runs(lambda: next(runs), runs=5, program=str(program))
    assert not psutil.pid_exists(int(noted.read_text()))


def test_program_that_refuses_costs_one_run(tmp_path: Path) -> None:
    program = tmp_path / "perf"
    program.write_text("#!/bin/sh\necho 'not permitted' >&2\nexit 255\n")
    program.chmod(0o755)
    runs: list[int] = []
    counters = count_runs(lambda: runs.append(1), runs=5, program=str(program))
    assert len(runs) == 1
    assert counters.reason == "perf may not count: not permitted"


def test_without_the_program_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert count_runs(lambda: None, runs=1).reason == "there is no program perf"
