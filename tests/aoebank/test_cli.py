"""Errors end in one place; colour, debug and pipes behave; start-up stays light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support import golden_harness
from support.faulty_system import FaultySystem

import aoebank
from aoebank.cli import COMMANDS, load
from aoebank.report.output import printable

run = golden_harness.run
MAIN = "import sys; from aoebank.cli import main; sys.exit(main())"


def test_public_names_can_all_be_imported() -> None:
    for name in aoebank.__all__:
        assert getattr(aoebank, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = aoebank.nothing


def test_dir_shows_the_public_names_and_no_others() -> None:
    assert dir(aoebank) == sorted(aoebank.__all__)


def test_version_is_the_one_of_the_package() -> None:
    assert run("aoebank", ["--version"]).stdout == f"aoebank {aoebank.__version__}\n"


def test_bug_is_told_in_one_line_with_a_log(tmp_path: Path, system: FaultySystem) -> None:
    system.fail("os.scandir", ZeroDivisionError("a bug"))
    system.replace("tempfile.tempdir", str(tmp_path))
    outcome = run("aoebank", ["ls", str(tmp_path)])
    assert outcome.exit_code == 4
    assert outcome.stderr.startswith("error: internal error: ZeroDivisionError: a bug\nhint: ")
    (name,) = os.listdir(tmp_path)  # noqa: PTH208 - pathlib scans, which fails here
    log = tmp_path / name
    assert "Traceback" in log.read_text()
    assert str(log) in outcome.stderr
    assert "Traceback" in run("aoebank", ["--debug", "ls", str(tmp_path)]).stderr
    document = json.loads(run("aoebank", ["ls", str(tmp_path), "--json"]).stdout)
    assert document["error"]["code"] == "bug"


@pytest.mark.parametrize(
    "words",
    [
        ["validate", ""],
        ["fmt", ""],
        ["prune", ""],
        ["snapshot", ""],
        ["tag", "v1", "--root="],
        ["ls", ""],
        ["diff", ".", ""],
        ["merge", ".", "", "-o", "merged"],
        ["validate", ".", "--built-in", ""],
        ["quarantine", "list", ""],
    ],
    ids=" ".join,
)
def test_empty_path_is_not_taken_for_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("aoebank", words)
    assert outcome.exit_code == 2 and "an empty path\n" in outcome.stderr
    assert not [*tmp_path.iterdir()]


def test_interrupt_exits_130(tmp_path: Path, system: FaultySystem) -> None:
    system.fail("os.scandir", KeyboardInterrupt())
    assert run("aoebank", ["ls", str(tmp_path)]).exit_code == 130


def test_interrupt_of_the_start_exits_130_and_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "aoebank", "ls"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_colour_is_off_in_a_pipe_and_on_when_asked_for(tmp_path: Path) -> None:
    arguments = ["validate", str(tmp_path / "gone")]
    assert "\x1b[" not in run("aoebank", arguments).stdout
    assert "\x1b[" in run("aoebank", ["--color", "always", *arguments]).stdout
    assert "\x1b[" not in run("aoebank", ["--color", "never", *arguments]).stdout


def test_bank_content_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a_1_AiCore_x.json"
    path.write_text('{"\\u001b[2J": [{"knowledge": {}, "info_dict": {"[red]": "\\u001b"}}]}')
    for verb in ("validate", "show", "ls"):
        assert "\x1b" not in run("aoebank", [verb, str(path)]).stdout
    assert printable("tab\tand\x9bescape") == "tab\\tand\\x9bescape"


def test_lone_surrogates_in_a_bank_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "a_1_AiCore_x.json"
    path.write_text('{"k": [{"knowledge": {"a": "\\ud800"}, "info_dict": "\\ud800"}]}')
    for verb in ("validate", "show"):
        for option in ([], ["--json"]):
            process = subprocess.run(
                [sys.executable, "-c", MAIN, verb, str(path), *option],
                capture_output=True,
                check=False,
            )
            assert process.returncode in (0, 1)
            assert process.stderr == b""


@pytest.mark.parametrize(
    "words",
    [
        ["quarantine", "list", "nowhere"],
        ["quarantine", "rm", "abcd", "nowhere"],
        ["log", "nowhere"],
        ["restore", "v1", "nowhere"],
        ["tag", "--root", "nowhere"],
        ["stats"],
        ["show", "abcd"],
        ["pack", "-o", "pack.tar.gz"],
    ],
)
def test_bank_that_is_not_there_is_said_to_be_none(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TUNE_BANK_PATH", "ASCEND_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    outcome = run("aoebank", words)
    assert outcome.exit_code == 3
    place = "nowhere" if "nowhere" in words else f"{tmp_path}/Ascend"
    assert outcome.stderr.startswith(f"error: {place}")
    assert ": no such bank" in outcome.stderr.splitlines()[0]


def test_closed_pipe_is_no_error(tmp_path: Path) -> None:
    process = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{MAIN}" --help | true'],
        capture_output=True,
        check=False,
    )
    assert process.stderr == b""


HEAVY = ("rich", "deepdiff", "jsonschema", "sqlite_utils", "hashlib", "importlib.metadata")
BANK = Path(__file__).resolve().parents[2] / "sample_banks" / "x86-64-icelake"
# most modules of this package a call may load: none of another command, no format it has no use for
MOST_MODULES = {
    "--help": ([], 18),
    "one command": (["explain", "AB303"], 36),
    "its help": (["merge", "--help"], 36),
    "a tree": (["ls", str(BANK)], 110),
    "git's text": (["textconv", str(next(BANK.rglob("*.json")))], 98),
}


def _loaded(arguments: list[str]) -> set[str]:
    code = (
        "import sys; from aoebank.cli import main; main(sys.argv[1:]);"
        "print('modules', *sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=True, text=True
    )
    return set(process.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("case", MOST_MODULES)
def test_start_loads_what_the_command_needs(case: str) -> None:
    arguments, most = MOST_MODULES[case]
    loaded = _loaded(arguments or ["--help"])
    ours = {name for name in loaded if name.split(".")[0] == "aoebank"}
    assert len(ours) <= most, sorted(ours)
    verbs = {name for name in ours if name.endswith(".api")}
    assert len(verbs) <= 1
    assert "rich" not in loaded  # nothing is coloured in a pipe
    if not arguments:
        assert not loaded & set(HEAVY)


@pytest.mark.parametrize("name", COMMANDS)
def test_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    target = load(name)
    text = target.info.help if isinstance(target, typer.Typer) else target.__doc__
    assert COMMANDS[name] == text.partition("\n")[0]


def test_unknown_command_gets_a_suggestion_and_loads_none() -> None:
    outcome = run("aoebank", ["validat"])
    assert outcome.exit_code == 2
    assert "Did you mean 'validate'?" in outcome.stderr


@pytest.mark.parametrize("words", [["git"], ["--color", "never", "schema"]])
def test_group_without_a_command_gets_its_help(words: list[str]) -> None:
    outcome = run("aoebank", words)
    asked_for = run("aoebank", [*words, "--help"])
    assert (outcome.exit_code, outcome.stderr) == (2, "")
    assert outcome.stdout == asked_for.stdout
    assert asked_for.exit_code == 0


@pytest.mark.parametrize(
    ("words", "called"),
    [(["ls", "--loud"], "aoebank ls"), (["git", "foo"], "aoebank git"), (["foo"], "aoebank")],
)
def test_hint_of_a_usage_error_is_the_help_of_its_command(words: list[str], called: str) -> None:
    assert run("aoebank", words).stderr.splitlines()[-1] == f"hint: {called} --help"


@pytest.mark.parametrize("words", [[], ["git"], ["quarantine"], ["schema"]])
def test_help_cuts_no_summary(words: list[str]) -> None:
    assert "..." not in run("aoebank", [*words, "--help"]).stdout.partition("Commands:")[2]
