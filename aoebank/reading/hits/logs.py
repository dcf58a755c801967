"""Look-ups in the lines of a log.

Source: `compiler/engines/nn_engine` of hicann/ge writes `[op_kb_hit]` and `[sg_kb_hit]` lines and
marks them as read by others; the reader of runtime banks writes where it found a hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoebank.reading.hits.result import BankLookup, LookupKind

_OPERATOR = re.compile(
    r"\[op_kb_hit\]\[(?P<name>[^\]]*)\]\[(?P<status>-?\d+)\](?:\[(?P<kernel>[^\]]*)\])?"
)
_SUBGRAPH = re.compile(r"\[sg_kb_hit\]\[(?P<name>[^\]]*)\]\[(?P<status>\d+)\]")
_RUNTIME = re.compile(r"Found in (?P<tier>custom|builtin) repo(?:\W+K:\s*(?P<key>\w+))?")
_PROCESS = re.compile(r"\b[A-Z]+\((?P<pid>\d+),")
_SUBGRAPH_STATUS: Mapping[int, tuple[bool, str]] = {
    169738280: (True, "hit"),
    169738250: (False, "the bank has no strategy for it"),
    169738260: (False, "never tuned"),
    169738270: (False, "the bank was not updated"),
}


def log_lookups(path: Path) -> Iterator[BankLookup]:
    """Yield the look-ups of a log, whatever else is in it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if "_kb_hit" in line or "Found in" in line:
                found = _lookup(path, number, line)
                if found is not None:
                    yield found


def _lookup(path: Path, number: int, line: str) -> BankLookup | None:
    process = _PROCESS.search(line)
    pid = int(process["pid"]) if process else None
    if match := _OPERATOR.search(line):
        is_hit = {"1": True, "0": False}.get(match["status"])
        reason = "" if is_hit is not None else f"status {match['status']}"
        kernel = f"kernel {match['kernel']}" if match["kernel"] else ""
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.OPERATOR,
            name=match["name"],
            is_hit=is_hit,
            reason=reason or kernel,
            pid=pid,
        )
    if match := _SUBGRAPH.search(line):
        status = int(match["status"])
        hit, words = _SUBGRAPH_STATUS.get(status, (None, f"status {status}"))
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.SUBGRAPH,
            name=match["name"],
            is_hit=hit,
            reason=words,
            pid=pid,
        )
    if match := _RUNTIME.search(line):
        is_custom = match["tier"] == "custom"
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.OPERATOR,
            name=match["key"] or "",
            is_hit=is_custom,
            reason="" if is_custom else "found in the built-in bank",
            key=match["key"] or "",
            pid=pid,
        )
    return None
