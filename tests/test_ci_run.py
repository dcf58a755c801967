"""`.ci/run` tries what failed once more, and removes what it has made, however it ends.

Its programs are stand-ins here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_MAKES_ENVIRONMENTS = """#!/bin/sh
mkdir -p "$3/bin"
for name in python ruff mypy; do cp "$STAND_IN" "$3/bin/$name"; done
echo "PATH=\\"$3/bin:\\$PATH\\"" > "$3/bin/activate"
"""
_STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*"
case "$(basename "$0") $*" in
    "$FAILS"*) exit "$FAILS_WITH" ;;
    "python -m pytest --last-failed"*) exit "$FAILS_AGAIN_WITH" ;;
    "$HANGS"*) exec sleep 60 ;;
esac
"""
_NOTHING = "nothing"
_FIRST = "python -m pytest -n 2 --dist loadfile"
_AGAIN = "python -m pytest --last-failed --last-failed-no-failures none"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with which nothing is installed, and an empty folder for what is made."""
    programs, made = tmp_path / "programs", tmp_path / "made"
    for folder in (programs, made):
        folder.mkdir()
    for file, text in (
        (programs / "python3", _MAKES_ENVIRONMENTS),
        (tmp_path / "stand_in", _STAND_IN),
    ):
        file.write_text(text)
        file.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "AOEBANK_CI_VENV"}
    return kept | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(made),
        "STAND_IN": str(tmp_path / "stand_in"),
        "FAILS": _NOTHING,
        "FAILS_WITH": "9",
        "FAILS_AGAIN_WITH": "0",
        "HANGS": _NOTHING,
    }


def _run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_ROOT / ".ci" / "run")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _left(environment: dict[str, str]) -> list[str]:
    return [file.name for file in Path(environment["TMPDIR"]).iterdir()]


def test_nothing_is_left_by_a_run_that_succeeds(environment: dict[str, str]) -> None:
    done = _run(environment)
    assert done.returncode == 0, done.stderr
    assert "tests/aoe/torch" in done.stdout.splitlines()[-1]
    assert "--last-failed" not in done.stdout
    assert _left(environment) == []


@pytest.mark.parametrize("program", ["ruff check", "mypy", "python -m pytest -n"])
def test_nothing_is_left_by_a_run_that_fails(environment: dict[str, str], program: str) -> None:
    done = _run(environment | {"FAILS": program})
    assert done.returncode == 9
    assert done.stdout.splitlines()[-1].startswith(program)
    assert _left(environment) == []


@pytest.mark.parametrize("again", ["0", "5"])
def test_failed_tests_are_tried_once_more(environment: dict[str, str], again: str) -> None:
    done = _run(environment | {"FAILS": _FIRST, "FAILS_WITH": "1", "FAILS_AGAIN_WITH": again})
    assert done.returncode == 0, done.stderr
    tried = [line for line in done.stdout.splitlines() if line.startswith("python -m pytest")]
    assert "--seconds 4" in tried[0]
    assert [_AGAIN in line for line in tried] == [False, True] * 3
    assert [line.rpartition(" ")[2] for line in tried[-2:]] == ["tests/aoe/torch"] * 2
    assert all("tests/reliability -m slow" in line for line in tried[2:4])


@pytest.mark.parametrize("again", ["1", "2"])
def test_tests_that_fail_twice_fail_the_run(environment: dict[str, str], again: str) -> None:
    done = _run(environment | {"FAILS": _FIRST, "FAILS_WITH": "1", "FAILS_AGAIN_WITH": again})
    assert done.returncode == int(again)
    assert done.stdout.splitlines()[-1].startswith(_AGAIN)
    assert _left(environment) == []


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_pytest_that_does_not_get_to_its_tests_is_not_tried_again(
    environment: dict[str, str], code: int
) -> None:
    done = _run(environment | {"FAILS": _FIRST, "FAILS_WITH": str(code)})
    assert done.returncode == code
    assert "--last-failed" not in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="signals of a group of processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_by_a_run_that_is_ended(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [str(_ROOT / ".ci" / "run")],
        env=environment | {"HANGS": "python -m pytest -n"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if line.startswith("python -m pytest -n"):
                    break
            assert _left(environment) != []
            os.killpg(running.pid, number)
            assert running.wait(timeout=50) != 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert _left(environment) == []


def test_environment_that_was_named_stays(environment: dict[str, str], tmp_path: Path) -> None:
    named = tmp_path / "named"
    done = _run(environment | {"AOEBANK_CI_VENV": str(named)})
    assert done.returncode == 0, done.stderr
    assert (named / "bin" / "python").exists()
    assert _left(environment) == []


def test_late_run_leaves_out_what_has_not_begun(environment: dict[str, str]) -> None:
    """`SECONDS` of the environment is where bash begins to count."""
    done = _run(environment | {"SECONDS": "3700"})
    assert done.returncode == 0, done.stderr
    tried = [line for line in done.stdout.splitlines() if line.startswith("python -m pytest")]
    assert len(tried) == 1
    assert "61 minutes have gone: the rest is left out" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("seconds", "outcome"), [("0", "skipped"), ("3600", "passed")])
def test_tests_that_have_not_begun_in_time_are_skipped(
    seconds: str, outcome: str, tmp_path: Path
) -> None:
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", "--seconds", seconds]
    one = "tests/test_ci_run.py::test_environment_that_was_named_stays"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, one],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"1 {outcome}" in done.stdout
