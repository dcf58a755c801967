"""What writes into banks, each as a world to start from and a call that changes it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank import Bank, merge, snapshot
from aoebank.cli import main
from aoebank.formats.provenance import SUFFIX
from aoebank.testing.factories import make_provenance, make_record
from support.merge_files import NAMES, Answer, make_file

FOLDER = "Ascend910B2/unified_bank"
FILE = f"{FOLDER}/{NAMES['unified']}"
OTHER, GONE, NEW = (FILE.replace("matmul", op) for op in ("add", "gone", "new"))
SOFTMAX = "x86-64-v4/unified_bank/x86-64-v4_2_AiCore_Softmax.json"
A, B, C = (Answer(tile=tile, cost_us=100.0 / tile) for tile in (1, 2, 4))
Call = Callable[[Path], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One way to write."""

    prepare: Call  # Makes the world in an empty folder
    act: Call  # Does it; errors of ours are raised, or an exit code is returned
    target: str = "a"  # What is written to, below the folder
    is_together: bool = True  # All files change together, or none
    # A temporary file that could not be removed is put away by doing it again; else `validate`
    # tells of it (AB505).
    is_tidy: bool = True
    is_repeatable: bool = True  # Doing it again, when it was done, is no error and changes nothing


def _bank(answers: Mapping[int, Answer]) -> bytes:
    return make_file("unified", answers)


def _sides(root: Path) -> None:
    """Write three versions of a tree: conflicts, a file one side has, one the other removed."""
    same = _bank({7: A})
    files = {
        "base": {FILE: _bank({0: A, 1: A, 2: A}), OTHER: _bank({0: A}), GONE: same},
        "a": {FILE: _bank({0: B, 1: A, 2: A, 3: A}), OTHER: _bank({0: B}), GONE: same},
        "b": {FILE: _bank({0: C, 1: B, 4: A}), OTHER: _bank({0: C, 5: A}), NEW: same},
    }
    for number, (side, content) in enumerate(files.items()):
        content[FILE + SUFFIX] = f'{{"n": {number}}}\n'.encode()
        for name, data in content.items():
            path = root / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _merge(root: Path, output: str) -> object:
    return merge(root / "a", root / "b", base=root / "base", output=root / output, policy="fail")


def _conflicted(root: Path) -> None:
    _sides(root)
    _merge(root, "a")
    conflicts = root / "a" / f"{FILE}.conflicts"
    conflicts.write_text(
        conflicts.read_text().replace('"action": "conflict"', '"action": "take-theirs"')
    )


def _command(*words: str) -> Call:
    """Run a command in the bank; it must not end with a bug."""

    def call(root: Path) -> int:
        streams = (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        )
        with streams[0], streams[1]:
            return main([word.replace("ROOT", str(root)) for word in words])

    return call


def _softmax(root: Path, *, tile: int = 16) -> None:
    bank, file = Bank(root / "a"), root / "a" / SOFTMAX
    bank.put(file, [make_record(number, tile=tile) for number in range(5)])
    bank.append_provenance(file, [make_provenance(make_record(0).key)])


def _put(root: Path) -> None:
    bank, file = Bank(root / "a"), root / "a" / SOFTMAX
    bank.put(file, [make_record(number, tile=8) for number in range(3, 9)])


def _put_first(root: Path) -> None:
    _put(root)


def _with_windows_lines(root: Path) -> None:
    _softmax(root)
    for name in (SOFTMAX, SOFTMAX.replace("Softmax", "Relu")):
        path = root / "a" / name
        data = (root / "a" / SOFTMAX).read_bytes()
        path.write_bytes(
            b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n").removeprefix(b"\xef\xbb\xbf")
        )


def _with_a_past(root: Path) -> None:
    _softmax(root)
    snapshot(root / "a", message="first", tag="v1")
    _softmax(root, tile=32)
    other = root / "a" / SOFTMAX.replace("Softmax", "Other")
    other.write_bytes((root / "a" / SOFTMAX).read_bytes())


def _empty(root: Path) -> None:
    (root / "a").mkdir()


KEY = make_record(2).key
OPERATIONS: Mapping[str, Operation] = {
    "put into a file": Operation(prepare=_softmax, act=_put),
    "put into a new file": Operation(prepare=_empty, act=_put_first, is_tidy=False),
    "merge in place": Operation(prepare=_sides, act=lambda root: _merge(root, "a")),
    "merge to a new place": Operation(
        prepare=_sides, act=lambda root: _merge(root, "x/y/out"), target="x", is_repeatable=False
    ),
    "merge --apply": Operation(
        prepare=_conflicted,
        act=_command("merge", "--apply", f"ROOT/a/{FILE}.conflicts"),
        is_repeatable=False,
    ),
    "validate --fix": Operation(
        prepare=_with_windows_lines, act=_command("validate", "--fix", "ROOT/a"), is_together=False
    ),
    "snapshot": Operation(prepare=_with_a_past, act=_command("snapshot", "ROOT/a", "-m", "second")),
    "restore": Operation(prepare=_with_a_past, act=_command("restore", "v1", "ROOT/a")),
    "quarantine add": Operation(
        prepare=_softmax,
        act=_command("quarantine", "add", KEY, "ROOT/a", "--reason", "wrong"),
        is_together=False,  # the entry comes first, and holds whatever comes after
        is_repeatable=False,
    ),
}
