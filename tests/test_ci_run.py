"""`.ci/run`: what it tries, what it tries again, and what it leaves, however it ends.

Its programs are stand-ins here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_MAKES_ENVIRONMENTS = """#!/bin/sh
[ "$2" = venv ] || { basename "$0"; exit; }
echo "venv $(basename "$3")"
mkdir -p "$3/bin"
for name in python aoe ruff mypy; do cp "$STAND_IN" "$3/bin/$name"; done
echo "PATH='$3/bin:$PATH'" > "$3/bin/activate"
"""
_STAND_IN = """#!/bin/sh
called="$(basename "$0") $*"
echo "$called"
echo "$called" >> "$(dirname "$0")/../calls"
record="${PYTEST_ADDOPTS#*cache_dir=}/v/cache"
case "$called" in
    *"--last-failed"*) exit "$FAILS_AGAIN_WITH" ;;
    "$FAILS"*)
        case "$called" in "python -m pytest"*)
            mkdir -p "$record"
            printf '{\n  "tests/test_a.py::test_b[1]": true\n}' > "$record/lastfailed" ;;
        esac
        exit "$FAILS_WITH" ;;
    "$HANGS"*) exec sleep 60 ;;
    "aoe demo"*) mkdir -p aoe_demo ;;
    *tests/aoe/test_end_to_end.py*) echo "cores: $(taskset -pc $$ | sed 's/.*: //')" ;;
esac
"""
_NOTHING = "nothing"
_TESTS = "python -m pytest"
_AGAIN = "-n 0 --last-failed --last-failed-no-failures none"
_LINES = re.findall(r"(?m)^\$ (.* && .*)$", (_ROOT / "README.md").read_text("utf-8"))[:2]
"""README's two command lines."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of what the script needs of the project."""
    project = tmp_path / "project"
    shutil.copytree(_ROOT / ".ci", project / ".ci")
    for name in ("README.md", "LICENSE", "pyproject.toml", "setup.py"):
        shutil.copyfile(_ROOT / name, project / name)
    (project / "tests").symlink_to(_ROOT / "tests")
    return project


@pytest.fixture
def environment(tmp_path: Path, project: Path) -> dict[str, str]:
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
        "PROJECT": str(project),
    }


def _run(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"{environment['PROJECT']}/.ci/run", *options],
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


def _calls_in(environment: dict[str, str], name: str) -> list[str]:
    """Return what was called in the kept environments of a name."""
    (folder,) = Path(environment["XDG_CACHE_HOME"], "aoebank-ci").glob(name)
    return (folder / "calls").read_text().splitlines()


def _commands(*lines: str) -> list[str]:
    """Return the commands of lines for a shell, as the stand-ins write them down."""
    return [" ".join(shlex.split(part)) for line in lines for part in line.split(" && ")]


def test_run_tries_both_lines_of_readme_and_a_slice_of_the_slow_tests(
    environment: dict[str, str],
) -> None:
    done = _run(environment)
    assert done.returncode == 0, done.stderr
    everyday, with_torch, *beside = _calls(done, _TESTS)
    assert everyday == _TESTS
    assert with_torch.startswith(f"{_TESTS} tests/aoe/torch ")
    some, one_core = sorted(beside)
    assert some.startswith(f"{_TESTS} -m slow --slice ")
    assert one_core.startswith(f"{_TESTS} tests/aoe/")
    assert all((_ROOT / file).is_file() for file in one_core.split()[3:])
    (cores,) = _calls(done, "cores: ")
    assert cores.removeprefix("cores: ").isdigit()  # one, no list or range
    assert len(_calls(done, "venv")) == 2
    assert "flaky tests: 0" in done.stdout
    assert _left(environment) == []


def test_nothing_but_the_lines_of_readme_fills_their_environment(
    environment: dict[str, str],
) -> None:
    assert _run(environment).returncode == 0
    assert _calls_in(environment, "venv-*-readme") == _commands(*_LINES)
    torch = [call for call in _calls_in(environment, f"venv-{'?' * 16}") if "torch" in call]
    assert torch[0].startswith("python -m pip install ") and "[torch]" in torch[0]


def test_lines_are_those_that_readme_has(environment: dict[str, str], project: Path) -> None:
    readme = project / "README.md"
    lines = ["python -m pip install '.[all]' && aoe demo --here", f"true && {_TESTS} --some"]
    readme.write_text(readme.read_text().replace(_LINES[0], lines[0]).replace(_LINES[1], lines[1]))
    done = _run(environment, "--readme")
    assert done.returncode == 0, done.stderr
    assert _calls_in(environment, "venv-*") == _commands(lines[0], lines[1].partition("&& ")[2])
    readme.write_text(readme.read_text().replace(f"$ {lines[1]}\n", ""))
    done = _run(environment, "--readme")
    assert done.returncode == 2
    assert 'README.md: two command lines below "Two commands" expected (got 1)' in done.stderr


@pytest.mark.parametrize("was_there", [False, True])
def test_what_the_demo_writes_is_removed_unless_there_was_something(
    environment: dict[str, str], project: Path, was_there: bool
) -> None:
    if was_there:
        (project / "aoe_demo").mkdir()
    assert _run(environment, "--readme").returncode == 0
    assert (project / "aoe_demo").exists() == was_there


def test_every_file_with_tests_that_need_pytorch_is_tried_with_it(
    environment: dict[str, str],
) -> None:
    skips = re.compile(r"""(importorskip|find_spec)\(["']torch["']""")
    files = {
        file.relative_to(_ROOT)
        for file in (_ROOT / "tests").rglob("test_*.py")
        if skips.search(file.read_text("utf-8"))
    }
    tried = [Path(word) for word in _calls(_run(environment), _TESTS)[1].split()[3:]]
    assert len(files) > 20
    assert not [file for file in files if not any(file.is_relative_to(one) for one in tried)]


def test_all_tries_every_test_the_oldest_pytorch_and_other_pythons(
    environment: dict[str, str],
) -> None:
    done = _run(environment, "--all")
    assert done.returncode == 0, done.stderr
    everyday, with_torch, one_core, *others = _calls(done, _TESTS)
    assert everyday == _TESTS
    assert "tests/aoe/torch" in with_torch and "test_end_to_end" in one_core
    torch = [f"{_TESTS} tests/aoe/torch", f"{_TESTS} tests/aoe/torch -m slow"]
    assert others == [f"{_TESTS} -m slow", *torch, *torch, _TESTS]
    assert len(_calls(done, "venv")) == 5
    assert "torch==2.9.*" in done.stdout
    assert "Python 3.12" in done.stdout and "Python 3.13" not in done.stdout
    assert _left(environment) == []


def test_unknown_option_is_refused(environment: dict[str, str]) -> None:
    done = _run(environment, "--everything")
    assert done.returncode == 2
    assert done.stderr == "usage: .ci/run [--all | --readme]\n"


@pytest.mark.parametrize(
    "failing", ["python -m pip install --no-build", "python -m pip install -e"]
)
def test_environment_is_made_once_and_again_where_its_installation_failed(
    environment: dict[str, str], failing: str
) -> None:
    failed = _run(environment | {"FAILS": failing})
    assert failed.returncode == 9
    first, second = _run(environment), _run(environment)
    assert [len(_calls(done, "venv")) for done in (first, second)] == [1, 0]
    assert sorted(_calls(second, "python -m pip")) == [
        "python -m pip install --no-deps --no-build-isolation -e .",
        *sorted(_commands(*_LINES)[::2]),
    ]


@pytest.mark.parametrize("program", ["ruff check", "mypy", "aoe demo", _TESTS])
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
    calls = _calls(done, _TESTS)
    tried = [call for call in calls if not call.endswith(_AGAIN)]
    assert len(tried) == 4 and sorted(calls) == sorted(
        [*tried, *(f"{call} {_AGAIN}" for call in tried)]
    )
    assert "flaky tests: 4\n" + 4 * "  tests/test_a.py::test_b[1]\n" in done.stdout


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


def test_installation_that_fails_as_tests_do_is_not_tried_again(
    environment: dict[str, str],
) -> None:
    install = _commands(_LINES[1])[0]
    done = _run(environment | {"FAILS": install, "FAILS_WITH": "1"})
    assert done.returncode == 1
    assert _calls(done, _TESTS) == []


@pytest.mark.skipif(sys.platform != "linux", reason="signals of a group of processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_by_a_run_that_is_ended(
    environment: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(
        [f"{environment['PROJECT']}/.ci/run"],
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
    for folder in (named, named.with_name("named-readme")):
        assert (folder / "bin" / "python").exists()
    assert _left(environment) == []
