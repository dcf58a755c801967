"""Completion in a real bash: for words that are typed, bash has what TAB would insert."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aoebank

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "aoe": "from aoe.cli.app import main; main()",
    "aoebank": "import sys; from aoebank.cli import main; sys.exit(main())",
}
ASK = """
source ../completion
complete -p aoebank aoe > ../registered
COMP_LINE=$1
COMP_POINT=${#COMP_LINE}
read -r -a plain <<< "$COMP_LINE"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_${COMP_WORDS[0]}_completion "${COMP_WORDS[0]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bank of git and of snapshots, and the scripts that bash has sourced."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    root = tmp_path_factory.mktemp("completion")
    shutil.copytree(ROOT / "sample_banks/ascend", root / "banks")
    aoebank.snapshot(root / "banks", message="first", tag="v1")
    (root / "bin").mkdir()
    for name, code in PROGRAMS.items():
        program = root / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{code}\' "$@"\n')
        program.chmod(0o755)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root))
    for words in (("init", "-q", "-b", "main"), ("add", "banks"), ("commit", "-qm", "banks")):
        subprocess.run((*git, *words), check=True)
    scripts = (_run(root, name, "--show-completion", "bash").stdout for name in PROGRAMS)
    (root / "completion").write_text("\n".join(scripts))
    return root


def _environment(root: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "TUNE_BANK_PATH": str(root / "banks"),
        "HOME": str(root),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }


def _run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=root / "banks",
        env=_environment(root),
        capture_output=True,
        text=True,
        check=True,
    )


def _completed(root: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of some words, cut as readline cuts them."""
    script = root / "ask"
    script.write_text(ASK)
    asked = _run(root, "bash", str(script), " ".join(words), *words)
    assert not asked.stderr
    return asked.stdout.splitlines()


def test_scripts_are_registered_with_bash(place: Path) -> None:
    assert "resolve" in _completed(place, "aoebank", "")
    registered = (place / "registered").read_text()
    assert "-F _aoebank_completion aoebank" in registered
    assert "-F _aoe_completion aoe" in registered


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("aoebank", "sho"), "show"),
        (("aoebank", "show", "586e"), "586e56843677f11dbf0ab1228a2e6a0a"),
        (("aoebank", "blame", "586e"), "586e56843677f11dbf0ab1228a2e6a0a"),
        (("aoebank", "stale", "--op", "Mat"), "MatMulV3"),
        (("aoebank", "stale", "--op", "=", "Mat"), "MatMulV3"),
        (("aoebank", "stale", "--soc", "Asc"), "Ascend910B2"),
        (("aoebank", "restore", "v"), "v1"),
        (("aoebank", "restore", "late"), "latest"),
        (("aoebank", "tag", "v"), "v1"),
        (("aoebank", "ls", "git"), "git:HEAD"),
        (("aoebank", "ls", "git", ":"), "main"),  # bash has cut the word at the colon
        (("aoebank", "ls", "snapshot", ":", "v"), "v1"),
        (("aoebank", "explain", "AB30"), "AB301"),
        (("aoebank", "validate", "--sel"), "--select"),
        (("aoebank", "git", "ver"), "verify-merge"),
        (("aoebank", "--color", "=", "al"), "always"),
        (("aoe", "ver"), "verify"),
        (("aoe", "--job_t"), "--job_type"),
        (("aoe", "--job_type", "=", "sg"), "sgat,opat"),
        (("aoe", "--precision_mode", "=", "force"), "force_fp32"),
        (("aoe", "--soc_version", "=", "Asc"), "Ascend910B2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_word_is_completed(place: Path, words: tuple[str, ...], expected: str) -> None:
    assert expected in _completed(place, *words)


def test_what_cannot_be_completed_is_left_to_the_shell(place: Path) -> None:
    for words in (
        ("aoebank", "ls", "Asc"),  # a path
        ("aoebank", "show", "zz"),
        ("aoebank", "no-such-command", "x"),
        ("aoe", "--model", "=", "no/such"),
        # CANN's own program is not started for a line that is being typed
        ("aoe", "--soc_version", "=", "Ascend910B2", "--model", "=", "x"),
    ):
        assert _completed(place, *words) == []


def test_completion_is_installed_by_the_program(place: Path) -> None:
    _run(place, "aoebank", "--install-completion", "bash")
    assert "_aoebank_completion" in (place / ".bash_completions/aoebank.sh").read_text()
    assert "aoebank.sh" in (place / ".bashrc").read_text()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(place: Path, shell: str) -> None:
    line = "aoebank stale --op Mat"
    found = subprocess.run(
        ["aoebank"],
        cwd=place / "banks",
        env=_environment(place)
        | {
            "_AOEBANK_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "MatMulV3" in found.stdout and not found.stderr
