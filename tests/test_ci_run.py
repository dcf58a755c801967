"""`.ci/run` removes what it has made, however it ends; its programs are stand-ins here."""

from __future__ import annotations

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
    "$FAILS"*) exit 9 ;;
    "$HANGS"*) exec sleep 600 ;;
esac
"""
_NOTHING = "nothing"


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
        "HANGS": _NOTHING,
    }


def _run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_ROOT / ".ci" / "run")], env=environment, capture_output=True, text=True, check=False
    )


def _left(environment: dict[str, str]) -> list[str]:
    return [file.name for file in Path(environment["TMPDIR"]).iterdir()]


def test_nothing_is_left_by_a_run_that_succeeds(environment: dict[str, str]) -> None:
    done = _run(environment)
    assert done.returncode == 0, done.stderr
    assert "python -m pytest tests/aoe/torch" in done.stdout.splitlines()[-1]
    assert _left(environment) == []


@pytest.mark.parametrize("program", ["ruff check", "python -m pytest -n", "python -m pytest tests"])
def test_nothing_is_left_by_a_run_that_fails(environment: dict[str, str], program: str) -> None:
    done = _run(environment | {"FAILS": program})
    assert done.returncode == 9
    assert done.stdout.splitlines()[-1].startswith(program)
    assert _left(environment) == []


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
        for line in running.stdout:
            if line.startswith("python -m pytest -n"):
                break
        assert _left(environment) != []
        os.killpg(running.pid, number)
        assert running.wait(timeout=60) != 0
    assert _left(environment) == []


def test_environment_that_was_named_stays(environment: dict[str, str], tmp_path: Path) -> None:
    named = tmp_path / "named"
    done = _run(environment | {"AOEBANK_CI_VENV": str(named)})
    assert done.returncode == 0, done.stderr
    assert (named / "bin" / "python").exists()
    assert _left(environment) == []
