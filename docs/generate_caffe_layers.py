"""Writes the table of layers in docs/frameworks.md from `LAYERS`.

python docs/generate_caffe_layers.py
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "frameworks.md"
_HEAD = "| Layer | Parameters | Notes |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n|<!-- layers -->\n)*")


def page() -> str:
    """Return the page with the table as it has to be."""
    from aoe.entry.caffe.layers.registry import LAYERS

    rows = "".join(
        f"| {name} | {f'`{rule.param}`' if rule.param else ''} | {rule.note} |\n"
        for name, rule in sorted(LAYERS.items(), key=lambda item: item[0].lower())
    )
    return _TABLE.sub(lambda _: _HEAD + rows, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
