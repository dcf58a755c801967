"""Writes docs/for-aoe-users.md from docs/for-aoe-users.toml, a table of what AOE has.

python docs/generate_for_aoe_users.py [--check]
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
TABLE = FOLDER / "for-aoe-users.toml"
PAGE = FOLDER / "for-aoe-users.md"
KINDS = {
    "option": "Options",
    "variable": "Environment variables",
    "setting": "Settings in files",
    "file": "Files",
    "field": "Fields of the result file",
    "message": "Messages and error codes",
    "rule": "Rules",
    "entry": "Frameworks and programs",
}
"""Tables of the file by name, with the heading of each."""
STATES = ("here", "different", "not here")
_HEAD = """\
<!-- written by docs/generate_for_aoe_users.py from for-aoe-users.toml -->

# For AOE users

`aoe` has the words of CANN's AOE: what you type, the files it leaves and the fields in them. It
tunes for CPUs, with ONNX Runtime, and is none of Huawei's programs. A test tries each line below
(`tests/test_for_aoe_users.py`); `docs/for-aoe-users.toml` has the document of AOE behind each.

- **here**: as with AOE
- **different**: there is something for it, but not the same
- **not here**: passed over with a warning if the result is the same without it, else refused with
  what to do instead (exit code 2)

{counts}

What `aoe` has and AOE has not is in [cli-aoe.md](cli-aoe.md), what to do when something goes wrong
in [troubleshooting.md](troubleshooting.md).

## Before you follow a tutorial of AOE

- **Training is tuned in PyTorch scripts alone**: forward, backward and the grouping of all-reduces
  ([pytorch.md](pytorch.md#a-training-script-as-it-is), [gradients.md](gradients.md)). Of TensorFlow
  scripts the inference form is tuned, and nothing tuned is loaded while they train: "train again
  with the bank" and `op_compiler_cache_mode=force` change nothing. Serve the `.om`
  ([frameworks.md](frameworks.md#tensorflow)). There are no sessions of TensorFlow 1.
- **`set_aoe` behind the steps**, as in the tutorial, knows of them only if the script itself
  imports `aoe.torch` at its top ([pytorch.md](pytorch.md#collect-what-a-script-computes)).
- **`ACL_OP_COMPILER_CACHE_MODE` turns tuning off**, also with `enable`: `aoe.torch.set_option`
  makes later calls look up only.
- **Gains of the articles are an NPU's.** `aoe advise` tries edits on this CPU, and the
  [rewrite rules](rewrites.md) split few operators: none makes parts that fit a unit of an NPU.
"""
_CONTRADICTIONS = """
## Where AOE's documents contradict each other

| | AOE's documents | here |
|---|---|---|
"""


def load_table() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the table by kind."""
    table: dict[str, list[dict[str, Any]]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return table


def page() -> str:
    """Return the text of the page."""
    table = load_table()
    rows = [row for kind in KINDS for row in table[kind]]
    counts = ", ".join(f"{sum(row['state'] == state for row in rows)} {state}" for state in STATES)
    sections = [_section(title, table[kind]) for kind, title in KINDS.items()]
    lines = [
        f"| {row['name']} | {row['theirs']} | {row['ours']} |\n" for row in table["contradiction"]
    ]
    head = _HEAD.format(counts=f"Of {len(rows)}: {counts}.")
    return head + "".join(sections) + _CONTRADICTIONS + "".join(lines)


def _section(title: str, rows: list[dict[str, Any]]) -> str:
    return f"\n## {title}\n\n| AOE | | what it is here, or what to do instead |\n" + (
        "|---|---|---|\n" + "".join(_lines(rows))
    )


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        state = "**not here**" if row["state"] == "not here" else row["state"]
        text = row["text"].replace("|", "\\|")
        yield f"| `{row['name']}` | {state} | {text} |\n"


def main() -> int:
    """Write the page, or with --check say whether it is out of date."""
    text = page()
    if "--check" in sys.argv[1:]:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        if stale:
            print(f"{PAGE.name} is out of date: run python docs/{Path(__file__).name}")
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
