"""Compare a merged side-car or quarantine that was committed with its merge."""

from __future__ import annotations

from collections.abc import Iterator

from aoebank.model.merge_verdict import MergeFault, MergeProblem
from aoebank.ops.merge.plan import Three

_SHOWN = 80
_MARKS = (b"<<<<<<< ", b">>>>>>> ", b"||||||| ")


def compare_lines(
    path: str, committed: bytes | None, expected: bytes | None, versions: Three[bytes | None]
) -> Iterator[MergeProblem]:
    """Yield lines that are lost or of no parent, and conflict markers."""
    known = {
        line for data in (versions.base, versions.ours, versions.theirs) for line in _lines(data)
    }
    lines = _lines(committed)
    for number, line in enumerate(lines, 1):
        if line.startswith(_MARKS):
            yield _problem(MergeFault.MARKERS, path, "merge conflict marker left", number)
        elif line and line not in known and line != b"=======":
            yield _problem(
                MergeFault.INVENTED, path, f"line is of no parent: {_text(line)}", number
            )
    left = {*lines}
    for line in dict.fromkeys(_lines(expected)):
        if line and line not in left:
            yield _problem(MergeFault.LOST, path, f"line is lost: {_text(line)}")


def _lines(data: bytes | None) -> list[bytes]:
    return [line.strip() for line in (data or b"").split(b"\n")]


def _text(line: bytes) -> str:
    text = line.decode("utf-8", errors="replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _problem(fault: MergeFault, path: str, message: str, line: int = 0) -> MergeProblem:
    return MergeProblem(fault=fault, path=path, message=message, line=line)
