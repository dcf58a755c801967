"""Flipped bits and cut files: never a bug, never a wrong record, no bank touched by it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import golden_harness
from support import sample_bank_files as samples
from support.fuzz.inputs import mutate
from support.mutated_banks import check_commands
from support.reliability.operations import FILE, OPERATIONS, SOFTMAX

from aoebank.formats.provenance import SUFFIX

FEW, MANY = 3, int(os.environ.get("AOEBANK_MUTATIONS", "300"))
AMOUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]
HISTORY = ".aoebank/history.db"
QUARANTINE = ".aoebank/quarantine.jsonl"


def _state(root: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".aoebank" not in path.parts
    }


def _hit(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with one bit flipped, a block zeroed, or cut."""
    place = dice.randrange(len(data))
    kind = dice.choice(["flip", "flip", "flip", "zero", "cut"])
    if kind == "cut":
        return data[:place]
    if kind == "zero":
        start = place // 512 * 512
        return data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def _run(*words: str) -> int:
    outcome = golden_harness.run("aoebank", words)
    assert outcome.exit_code in (0, 1, 3), (words, outcome)
    assert "internal error" not in outcome.stderr
    return outcome.exit_code


def _on_event(what: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    if number > FEW:
        with capsys.disabled():
            print(f"\n{what}: {number} mutations")


@pytest.mark.parametrize("amount", AMOUNTS)
def test_damaged_history_restores_what_was_or_nothing(
    tmp_path: Path, amount: int, capsys: pytest.CaptureFixture[str]
) -> None:
    start, root = tmp_path / "start", tmp_path / "try"
    start.mkdir()
    OPERATIONS["restore"].prepare(start)
    now = _state(start / "a")
    shutil.copytree(start, root)
    assert _run("restore", "v1", str(root / "a")) in (0, 1)
    wanted = _state(root / "a")
    whole = (start / "a" / HISTORY).read_bytes()
    refused = 0
    for number in range(amount):
        shutil.rmtree(root)
        shutil.copytree(start, root)
        (root / "a" / HISTORY).write_bytes(_hit(whole, random.Random(number)))
        _run("log", str(root / "a"), "--verify")
        is_refused = _run("restore", "v1", str(root / "a")) == 3
        refused += is_refused
        assert _state(root / "a") in ((now, wanted) if is_refused else (wanted,)), number
        _run("snapshot", str(root / "a"))
    _on_event(f"history.db, {refused} refused", amount, capsys)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("name", [SOFTMAX + SUFFIX, QUARANTINE], ids=["side-car", "quarantine"])
def test_damaged_companion_harms_no_bank(
    tmp_path: Path, name: str, amount: int, capsys: pytest.CaptureFixture[str]
) -> None:
    operation = OPERATIONS["quarantine add"]
    operation.prepare(tmp_path)
    operation.act(tmp_path)
    root, companion = tmp_path / "a", tmp_path / "a" / name
    whole, bank = companion.read_bytes(), (root / SOFTMAX).read_bytes()
    for number in range(amount):
        companion.write_bytes(_hit(whole, random.Random(number)))
        for words in (["validate"], ["ls"], ["show", f"{root / SOFTMAX}"], ["quarantine", "list"]):
            _run(*words, str(root)) if len(words) == 1 or words[0] != "show" else _run(*words)
        _run("merge", str(root), str(root), "-o", str(tmp_path / f"merged{number}"))
        assert (root / SOFTMAX).read_bytes() == bank
    _on_event(companion.name, amount, capsys)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_damaged_bank_loses_no_record_of_the_other_side(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    amount: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in range(amount):
        path = samples.ALL[number % len(samples.ALL)]
        top = tmp_path / str(number)
        top.mkdir()
        monkeypatch.chdir(top)
        whole = path.read_bytes()
        check_commands(top, whole, mutate(whole, random.Random(number)), path.name)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(top)
    _on_event("bank files", amount, capsys)


def test_mutation_changes_something() -> None:
    assert _hit(b"x" * 2000, random.Random(1)) != b"x" * 2000
    assert FILE.endswith(".json")
