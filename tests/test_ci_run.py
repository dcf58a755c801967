"""`.ci/run`: what it tries, what it tries again, and what it leaves, however it ends.

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
[ "$2" = venv ] || { echo "Python stand-in"; exit; }
echo "venv $(basename "$3")"
mkdir -p "$3/bin"
for name in python ruff mypy; do cp "$STAND_IN" "$3/bin/$name"; done
"""
_STAND_IN = """#!/bin/sh
called="$(basename "$0") $*"
echo "$called"
record="${PYTEST_ADDOPTS#*cache_dir=}/v/cache"
case "$called" in
    *"--last-failed"*) exit "$FAILS_AGAIN_WITH" ;;
    "$FAILS"*)
        mkdir -p "$record"
        printf '{\n  "tests/test_a.py::test_b[1]": true\n}' > "$record/lastfailed"
        exit "$FAILS_WITH" ;;
    "$HANGS"*) exec sleep 60 ;;
esac
"""
_NOTHING = "nothing"
_TESTS = "python -m pytest"
_AGAIN = "-n 0 --last-failed --last-failed-no-failures none"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with which nothing is installed, and empty folders for what is made."""
    programs = tmp_path / "programs"
    for folder in (programs, tmp_path / "made", tmp_path / "kept"):
        folder.mkdir()
    for file, text in (
        *((programs / name, _MAKES_ENVIRONMENTS) for name in ("python3", "python3.12")),
        (programs / "python3.13", "#!/bin/sh\nexit 1\n"),
        (tmp_path / "stand_in", _STAND_IN),
    ):
        file.write_text(text)
        file.chmod(0o755)
    own = ("AOEBANK_CI_VENV", "PYTHON", "PYTEST_ADDOPTS")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return kept | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "made"),
        "XDG_CACHE_HOME": str(tmp_path / "kept"),
        "STAND_IN": str(tmp_path / "stand_in"),
        "FAILS": _NOTHING,
        "FAILS_WITH": "9",
        "FAILS_AGAIN_WITH": "0",
        "HANGS": _NOTHING,
    }


def _run(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_ROOT / ".ci" / "run"), *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _left(environment: dict[str, str]) -> list[str]:
    return [file.name for file in Path(environment["TMPDIR"]).iterdir()]


def _calls(done: subprocess.CompletedProcess[str], of: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith(of)]


def test_run_tries_the_everyday_tests_and_a_slice_of_the_slow_ones(
    environment: dict[str, str],
) -> None:
    done = _run(environment)
    assert done.returncode == 0, done.stderr
    everyday, some = _calls(done, _TESTS)
    assert everyday == _TESTS
    assert some.startswith(f"{_TESTS} -m slow --slice ")
    assert len(_calls(done, "venv")) == 1
    assert "flaky tests: 0" in done.stdout
    assert _left(environment) == []


def test_all_tries_every_test_the_oldest_pytorch_and_other_pythons(
    environment: dict[str, str],
) -> None:
    done = _run(environment, "--all")
    assert done.returncode == 0, done.stderr
    torch = [f"{_TESTS} tests/aoe/torch", f"{_TESTS} tests/aoe/torch -m slow"]
    assert _calls(done, _TESTS) == [_TESTS, f"{_TESTS} -m slow", *torch, *torch, _TESTS]
    assert len(_calls(done, "venv")) == 4
    assert "torch==2.9.*" in done.stdout
    assert "Python 3.12" in done.stdout and "Python 3.13" not in done.stdout
    assert _left(environment) == []


def test_unknown_option_is_refused(environment: dict[str, str]) -> None:
    done = _run(environment, "--everything")
    assert done.returncode == 2
    assert done.stderr == "usage: .ci/run [--all]\n"


def test_environment_is_made_once_and_again_where_its_installation_failed(
    environment: dict[str, str],
) -> None:
    failed = _run(environment | {"FAILS": "python -m pip install --quiet -e ."})
    assert failed.returncode == 9
    first, second = _run(environment), _run(environment)
    assert [len(_calls(done, "venv")) for done in (first, second)] == [1, 0]
    (again,) = _calls(second, "python -m pip")
    assert again.endswith("--no-deps --no-build-isolation -e .")


@pytest.mark.parametrize("program", ["ruff check", "mypy", _TESTS])
def test_first_failure_ends_the_run(environment: dict[str, str], program: str) -> None:
    done = _run(environment | {"FAILS": program})
    assert done.returncode == 9
    assert len(_calls(done, program)) == 1
    assert len(_calls(done, _TESTS)) == (program == _TESTS)
    assert _left(environment) == []


@pytest.mark.parametrize("again", ["0", "5"])
def test_tests_that_pass_when_tried_again_are_called_flaky(
    environment: dict[str, str], again: str
) -> None:
    done = _run(environment | {"FAILS": _TESTS, "FAILS_WITH": "1", "FAILS_AGAIN_WITH": again})
    assert done.returncode == 0, done.stderr
    everyday, everyday_again, slow, slow_again = _calls(done, _TESTS)
    assert everyday_again == f"{everyday} {_AGAIN}"
    assert slow_again == f"{slow} {_AGAIN}"
    assert "flaky tests: 2\n" + 2 * "  tests/test_a.py::test_b[1]\n" in done.stdout


@pytest.mark.parametrize("again", ["1", "2"])
def test_tests_that_fail_twice_fail_the_run(environment: dict[str, str], again: str) -> None:
    done = _run(environment | {"FAILS": _TESTS, "FAILS_WITH": "1", "FAILS_AGAIN_WITH": again})
    assert done.returncode == int(again)
    assert done.stdout.splitlines()[-1] == f"{_TESTS} {_AGAIN}"
    assert _left(environment) == []


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_pytest_that_does_not_get_to_its_tests_is_not_tried_again(
    environment: dict[str, str], code: int
) -> None:
    done = _run(environment | {"FAILS": _TESTS, "FAILS_WITH": str(code)})
    assert done.returncode == code
    assert "--last-failed" not in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="signals of a group of processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_by_a_run_that_is_ended(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [str(_ROOT / ".ci" / "run")],
        env=environment | {"HANGS": _TESTS},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if line.startswith(_TESTS):
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
