"""Writes the tables of docs/rewrites.md from the rules and from what was measured of them.

python docs/generate_rewrites.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.rewrites.registry import ONLY_AT_O1
from aoe.tasks.rewrites.subgraphs import RULES

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "rewrites.md"
RESULTS = FOLDER.parent / "benchmarks" / "results" / "rewrites.json"
ON_KERNELS = RESULTS.with_name("rewrites-on-kernels.json")
_BEGIN = "<!-- written by docs/generate_rewrites.py from here -->\n"
_END = "<!-- to here -->\n"


def page(text: str) -> str:
    """Return the page with its tables written anew."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + "\n" + "\n".join(_tables()) + "\n" + _END + rest.split(_END)[1]


def _tables() -> list[str]:
    measured, tuned = _read(RESULTS), _read(ON_KERNELS)
    lines = [
        "| rule | what becomes what | needs | result | tried | alone, on its block | both tuned |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(rule, measured["figures"], tuned["figures"]) for rule in RULES.values()]
    networks = [figure for figure in measured["figures"] if not _is_block(figure)]
    if networks:
        lines += [
            "",
            "Whole networks, one rule at a time:",
            "",
            "| network | rule | places | speed-up |",
            "|---|---|---|---|",
        ]
        order = sorted(networks, key=lambda figure: (figure["model"], figure["rule"]))
        lines += [
            f"| {figure['model']} | `{figure['rule']}` | {figure['matches']} | {_speed(figure)} |"
            for figure in order
        ]
    if measured["figures"]:
        lines += ["", f"Alone: measured {_conditions(measured, [measured['cpu']])}."]
    if tuned["figures"]:
        cpus = sorted({one.get("cpu", tuned["cpu"]) for one in tuned["figures"]})
        lines += [f"Both tuned: last measured {_conditions(tuned, cpus)}."]
    return lines


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"figures": []}
    return document


def _conditions(measured: dict[str, Any], cpus: Sequence[str]) -> str:
    return (
        f"{measured['measured']} with onnxruntime {measured['onnxruntime']} on"
        f" {' and '.join(f'`{cpu}`' for cpu in cpus)}, {measured['threads']} threads,"
        f" load {measured['load']} when it ended"
    )


def _row(
    rule: RewriteRule, alone: Sequence[dict[str, Any]], tuned: Sequence[dict[str, Any]]
) -> str:
    result = "same bits" if rule.exact else f"{rule.tolerance:g}"
    tried = "`O1`" if rule.name in ONLY_AT_O1 else "by default"
    tried = "never" if rule.is_done_anyway else tried
    cells = [
        *(f"`{rule.name}`", rule.what, rule.needs, result, tried),
        *(_figures(rule, alone), _figures(rule, tuned)),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _figures(rule: RewriteRule, figures: Sequence[dict[str, Any]]) -> str:
    own = [
        f"{figure['model'].removeprefix('block: ')}: {_speed(figure)}"
        + ("" if figure["version"] == rule.version else " (of an older version)")
        for figure in figures
        if figure["rule"] == rule.name and _is_block(figure)
    ]
    return "<br>".join(own)


def _is_block(figure: dict[str, Any]) -> bool:
    return bool(figure["model"].startswith("block: "))


def _speed(figure: dict[str, Any]) -> str:
    """Return a speed-up; intervals of blocks alone are narrow and stay in the result file."""
    interval = f" ({figure['low']:.2f} to {figure['high']:.2f})"
    if "kernels" not in figure:
        return f"{figure['speedup']:.2f}x" + ("" if _is_block(figure) else interval)
    before, after = figure["kernels"]
    return f"{figure['speedup']:.2f}x{interval}, {before} -> {after} kernels"


def main() -> None:
    """Write the page, or tell whether it is stale."""
    text = PAGE.read_text()
    fresh = page(text)
    if "--check" in sys.argv[1:]:
        sys.exit(f"stale: {PAGE.name}" if fresh != text else 0)
    PAGE.write_text(fresh)


if __name__ == "__main__":
    main()
