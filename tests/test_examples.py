"""The examples of the pages: Python is run, commands and their options exist.

Examples with PyTorch or onnxscript, which come together, are whole programs. Each is run in a
process of its own, since what was imported before can hide a fault.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from aoe.cli.app import app as aoe_app
from aoebank.cli import app as aoebank_app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# the first line of an example that cannot be run: what it needs, for readers too
NOT_RUN = re.compile(r"# not run by the tests: \S.*")
# the first line of a program: how it is started, if not as `python FILE`
WITH_TORCH = re.compile(r"# needs (?:PyTorch|onnxscript)(?:; (torchrun .*))?\n")
# the first line of a program with a package that is in no extra for running: it is run where it is
WITH_PACKAGE = re.compile(r"# needs (pandas|optimum)\n")
LIMIT_S = 300
TUNING_PAGES = (
    "run-tuned-models.md",
    "tune-your-model.md",
)  # their examples tune for half a minute
PROGRAMS = {
    name: typer.main.get_command(app) for name, app in (("aoe", aoe_app), ("aoebank", aoebank_app))
}


def _python_pages() -> list[Path]:
    return [page for page in PAGES if PYTHON.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in TUNING_PAGES else ())
        for page in _python_pages()
    ],
    ids=lambda page: page.name,
)
def test_python_examples_of_a_page_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "sample_banks", tmp_path / "sample_banks")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for example in PYTHON.findall(page.read_text(encoding="utf-8")):
        if any(one.match(example) for one in (NOT_RUN, WITH_TORCH, WITH_PACKAGE)):
            compile(example, page.name, "exec")
        elif example.startswith(">>> "):
            _run_session(example, names, page)
        else:
            exec(compile(example, page.name, "exec"), names)


def _programs_with_packages() -> Iterator[object]:
    for page in _python_pages():
        for example in PYTHON.findall(page.read_text(encoding="utf-8")):
            if needed := WITH_PACKAGE.match(example):
                yield pytest.param(needed[1], example, id=f"{page.name}-{needed[1]}")


@pytest.mark.parametrize(("package", "example"), [*_programs_with_packages()])
def test_program_runs_where_its_package_is_installed(
    package: str, example: str, tmp_path: Path
) -> None:
    if not importlib.util.find_spec(package):
        pytest.skip(f"needs {package}")
    shutil.copytree(ROOT / "sample_banks", tmp_path / "sample_banks")
    _run_program([sys.executable, "-c", example], tmp_path)


def _torch_pages() -> list[Path]:
    return [page for page in _python_pages() if "# needs " in page.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch")
@pytest.mark.parametrize("page", _torch_pages(), ids=lambda page: page.name)
def test_every_program_with_torch_runs_in_a_process_of_its_own(page: Path, tmp_path: Path) -> None:
    examples = PYTHON.findall(page.read_text(encoding="utf-8"))
    programs = [example for example in examples if WITH_TORCH.match(example)]
    assert programs
    for number, example in enumerate(programs):
        started = WITH_TORCH.match(example)
        file = tmp_path / f"example_{number}.py"
        file.write_text(example, encoding="utf-8")
        _run_program(_call_of(started[1] if started else None, file), tmp_path)


def _run_program(call: list[str], folder: Path) -> None:
    ended = subprocess.run(
        call,
        cwd=folder,
        env=_own_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert ended.returncode == 0, f"{call}\n{ended.stdout}"
    assert "FallbackWarning" not in ended.stdout, f"{call}\n{ended.stdout}"


def _call_of(torchrun: str | None, file: Path) -> list[str]:
    if torchrun is None:
        return [sys.executable, str(file)]
    options = shlex.split(torchrun)[1:-1]  # torchrun OPTION... FILE
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", *options, str(file)]


def _own_environment(folder: Path) -> dict[str, str]:
    bank = folder / "default_bank"
    bank.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "TUNE_BANK_PATH": str(bank),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _run_session(example: str, names: dict[str, object], page: Path) -> None:
    """Run what a person typed, and compare what the program answered."""
    session = doctest.DocTestParser().get_doctest(example, names, page.name, str(page), 0)
    told: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(session, out=told.append, clear_globs=False)
    names.update(session.globs)
    assert not outcome.failed, "".join(told)


def _command_lines() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        if page.name.startswith("cli-"):  # written from the commands themselves
            continue
        for example in CONSOLE.findall(page.read_text(encoding="utf-8")):
            joined = example.replace("\\\n", " ")
            for line in re.findall(r"^\$ (.*)$", joined, re.MULTILINE):
                for words in _calls(line):
                    yield f"{page.name}: {line}", words


def _calls(line: str) -> Iterator[list[str]]:
    """Yield the calls of our programs in a line of a shell, each as its words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    call: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            program = next((n for n, text in enumerate(call) if text in PROGRAMS), None)
            if program is not None and all("=" in text for text in call[:program]):
                yield call[program:]
            call = []
        else:
            call.append(word)


LINES = list(_command_lines())


def test_there_are_examples_of_both_programs() -> None:
    assert {words[0] for _, words in LINES} == set(PROGRAMS)
    assert len(LINES) > 30


@pytest.mark.parametrize(("place", "words"), LINES, ids=[place for place, _ in LINES])
def test_commands_of_examples_and_their_options_exist(place: str, words: list[str]) -> None:
    command = PROGRAMS[words[0]]
    known = {"--help", *_options(command)}
    arguments = _before_those_of_a_script(words[1:])
    context = typer.Context(command, info_name=words[0])
    for before, word in pairwise([words[0], *arguments]):
        members = command.list_commands(context) if hasattr(command, "list_commands") else ()
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known, place
        elif word in members:
            command = command.get_command(context, word)
            known |= _options(command)
        else:  # an argument, or the value of an option, as in `--color never ls`
            assert not members or before.startswith("-"), place


def _before_those_of_a_script(words: list[str]) -> list[str]:
    """Return the words up to the script to be tuned; those behind it are its own."""
    for place, word in enumerate(words):
        if word.partition("=")[0] == "--script":
            return words[: place + (1 if "=" in word else 2)]
    return words


def _options(command: object) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}  # type: ignore[attr-defined]
