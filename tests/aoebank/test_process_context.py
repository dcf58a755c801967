"""Programs end by their documented codes whatever streams and signals they are given."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
import os, sys, time
from pathlib import Path
import typer
from aoebank.program import Program, run_program
from aoebank.errors import AoebankError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

@app.command()
def act(what: str, as_json: bool = typer.Option(False, "--json")) -> None:
    if what == "fail":
        raise AoebankError("it failed")
    if what == "open":
        with open("opened", "w") as file:
            Path("number").write_text(str(file.fileno()))
    if what in ("wait", "stubborn", "spoiled"):
        try:
            print("waiting", flush=True)
            time.sleep(60)
        finally:
            Path("put_away").touch()
            if what == "stubborn":
                Path("again").touch()
                time.sleep(60)
            if what == "spoiled":
                raise ValueError("the half of it is gone")
    if what == "fork":
        ready, is_ready = os.pipe()
        child = os.fork()
        if not child:
            os.write(is_ready, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        os.kill(child, 15)
        print(os.waitpid(child, 0)[1])
    print("progress", file=sys.stderr)
    print("the answer")

program = Program(
    name="program",
    app=app,
    schema=lambda _: "program.error/1",
    interrupted="what was found is kept",
)
sys.exit(run_program(program, sys.argv[1:]))
"""


def _shell(what: str, redirections: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program in a shell that redirects its streams."""
    (folder / "program.py").write_text(_PROGRAM)
    command = f"{shlex.quote(sys.executable)} program.py {what} {redirections}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("what", "redirections", "code"),
    [
        ("work", "2>&-", 0),
        ("work", ">&-", 0),
        ("work", "<&- >&- 2>&-", 0),
        ("fail", "2>&-", 3),
        ("fail", "<&- >&- 2>&-", 3),
        ("fail --json", ">&-", 3),
        ("work", "2>/dev/full", 0),
        ("fail", "2>/dev/full", 3),
        ("work", ">/dev/full", 3),
        ("fail --json", ">/dev/full", 3),
        ("work", "| true", 0),
        ("work", "2> >(true)", 0),
        ("work 2>&-", "| true", 0),
        ("--help", ">&-", 0),
    ],
)
def test_stream_that_takes_nothing_is_no_bug(
    tmp_path: Path, what: str, redirections: str, code: int
) -> None:
    done = _shell(what, redirections, tmp_path)
    assert done.returncode == code, done.stderr
    assert "internal error" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_answer_comes_without_standard_error_and_the_other_way_round(tmp_path: Path) -> None:
    assert _shell("work", "2>&-", tmp_path).stdout == "the answer\n"
    assert _shell("work", ">&-", tmp_path).stderr == "progress\n"


def test_document_nobody_takes_is_told_on_standard_error(tmp_path: Path) -> None:
    assert _shell("fail --json", ">/dev/full", tmp_path).stderr == "error: it failed\n"


def test_answer_nobody_can_take_is_told_by_its_name(tmp_path: Path) -> None:
    said = _shell("work", ">/dev/full", tmp_path).stderr
    assert said == "progress\nerror: standard output: No space left on device\n"


def test_working_directory_that_was_removed_is_told_by_its_name(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    call = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
        "from aoebank.__main__ import main; sys.exit(main())"
    )
    start = shlex.join([sys.executable, "-P", "-c", call, "ls"])
    command = f'cd "$1" && rmdir "$1" && exec {start}'
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", command, "sh", str(gone)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: working directory: it was removed\nhint: cd")


def test_file_never_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    assert _shell("open", "<&- >&- 2>&-", tmp_path).returncode == 0
    assert int((tmp_path / "number").read_text()) > 2


def _started(what: str, folder: Path, *, prefix: str = "") -> subprocess.Popen[str]:
    (folder / "program.py").write_text(_PROGRAM)
    process = subprocess.Popen(
        ["bash", "-c", f"{prefix} exec {shlex.quote(sys.executable)} program.py {what}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("what", ["wait", "spoiled"])
def test_signal_puts_everything_away_and_has_its_exit_code(
    tmp_path: Path, number: signal.Signals, code: int, what: str
) -> None:
    process = _started(what, tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "\nwhat was found is kept\n")
    assert (tmp_path / "put_away").exists()


def test_signal_has_a_document_too(tmp_path: Path) -> None:
    process = _started("wait --json", tmp_path)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["error"] == {"code": "interrupted", "message": "what was found is kept"}


def test_first_signal_of_several_gives_the_code(tmp_path: Path) -> None:
    process = _started("stubborn", tmp_path)
    process.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + 60
    while not (tmp_path / "again").exists():
        assert process.poll() is None and time.monotonic() < deadline_s, "the signal never came"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "\nwhat was found is kept\n")


def test_signal_that_is_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    process = _started("wait", tmp_path, prefix="trap '' HUP;")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_forked_child_is_ended_as_ever(tmp_path: Path) -> None:
    done = _shell("fork", "", tmp_path)
    assert done.stdout == f"{int(signal.SIGTERM)}\nthe answer\n"
    assert done.stderr == "progress\n"


def test_handlers_are_as_before_after_a_call_in_the_same_process() -> None:
    from aoebank.program import stopped_by_signals

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stopped_by_signals() as came:
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert came == []
