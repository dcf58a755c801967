"""`summary.json`: the whole run in figures, whichever modes it had.

The model is the one the last mode has left, and so are its figures: every mode measures the whole
model against the imported one. What is counted is counted over all modes, and `modes` has what
each of them did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aoe.results.files import write_json
from aoe.runs.model_mode import ModelTuning, count_members, speed_members
from aoe.tuner.mode import ModeResult
from aoe.tuner.reuse.kinds import ReuseKind

_FILE = "summary.json"
_SCHEMA = "aoe.summary/1"
_Summary = Mapping[str, Any]


def write_run_summary(modes: Sequence[ModeResult]) -> None:
    """Write `summary.json` beside the results of the modes of a run that tune a model file.

    Args:
        modes: Those that are done, in their order; without one on a model file nothing is written.

    Raises:
        OutputError: it cannot be written.
    """
    done = [mode for mode in modes if isinstance(mode, ModelTuning)]
    if done:
        write_json(done[-1].places.results / _FILE, run_summary(done))


def run_summary(modes: Sequence[ModelTuning[Any]]) -> dict[str, Any]:
    """Return the whole run in figures.

    Args:
        modes: Those that are done, one at least.
    """
    parts = [mode.summary() for mode in modes]
    names = [f"{mode.job.subject}s" for mode in modes]
    last = parts[-1]
    seconds = sum(mode.seconds for mode in modes)
    rows = [row for name, part in zip(names, parts, strict=True) for row in part[name]]
    return {
        **last,
        "schema": last["schema"] if len(parts) == 1 else _SCHEMA,
        "seconds": round(seconds, 1),
        **count_members(rows, seconds),
        "repo": _added(part["repo"] for part in parts),
        **{name: _joined(parts, name) for name in names},
        "reuse": _reuse([part["reuse"] for part in parts if part["reuse"] is not None]),
        "left_to_onnxruntime": _joined(parts, "left_to_onnxruntime"),
        "modes": [_mode_row(mode, part) for mode, part in zip(modes, parts, strict=True)],
    }


def _joined(parts: Sequence[_Summary], name: str) -> list[Any] | None:
    """Return a list of all modes that have it, None if none has."""
    found = [part[name] for part in parts if name in part]
    return [item for items in found for item in items] if found else None


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def _reuse(found: Sequence[_Summary]) -> dict[str, Any] | None:
    """Return the reuse of all modes together, None for a run without an earlier result."""
    if not found:
        return None
    return {
        "base": found[0]["base"],
        "counts": {
            kind.value: sum(one["counts"][kind.value] for one in found) for kind in ReuseKind
        },
        "parts": [part for one in found for part in one["parts"]],
    }


def _mode_row(mode: ModelTuning[Any], part: _Summary) -> dict[str, Any]:
    """Return the row of a mode: its counts, and the speed of the model after it."""
    return {
        "mode": mode.job,
        "result_file": mode.result_file.name,
        "seconds": round(mode.seconds, 1),
        "phase_seconds": dict(mode.phases),
        **count_members(part[f"{mode.job.subject}s"], mode.seconds),
        "repo": part["repo"],
        **speed_members(mode),
    }
