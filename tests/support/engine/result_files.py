"""What must be true of AOE's result file at every moment, also after kill -9."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OF_A_TUNED_MODEL = {"model_performance_improvement", "model_result_performance(ms)"}
_ENDED, _GOING_ON = "tuning successful", "tuning incomplete"


def demand_identities(file: Path, moment: str) -> Mapping[str, Any] | None:
    """Check a file of operator or subgraph tuning; return its section but `basic`, if any."""
    sections: Sequence[Mapping[str, Any]] = json.loads(file.read_text())
    basic = sections[0]["basic"]
    if len(sections) == 1:
        return None
    ((name, body),) = sections[1].items()
    repo = body["repo_summary"]
    hits = repo["repo_update_num"] + repo["repo_reserved_num"]
    assert repo["repo_hit_num"] == hits, moment
    added = repo["repo_add_num"] + repo["repo_unsatisfied_num"]
    assert repo["total_num"] == added + hits, moment
    changed = _modified(body)
    assert changed == repo["repo_add_num"] + repo["repo_update_num"], moment
    result = body[f"{name.lower()}_tuning_result"]
    assert result in (_ENDED, _GOING_ON), moment
    ended = result == _ENDED
    assert ("tuning_time(s)" in basic) is ended, moment
    figures = _OF_A_TUNED_MODEL & set(body)  # one that is proven early is written with them, too
    assert figures == _OF_A_TUNED_MODEL or (not figures and not ended), moment
    found: Mapping[str, Any] = body
    return found


def _modified(body: Mapping[str, Any]) -> int:
    if "repo_modified_operators" in body:
        return len(body["repo_modified_operators"])
    return sum(len(entries) for entries in body["repo_modified_subgraphs"].values())


def change_kernel_sources(folder: Path) -> None:
    """Let all records and details below a folder be of kernels whose code has changed since."""
    for file in (*folder.rglob("*.json"), *folder.rglob("*.jsonl")):
        text = file.read_text()
        file.write_text(re.sub(r'("kernel_source": ?)"[^"]*"', r'\1"another"', text))
