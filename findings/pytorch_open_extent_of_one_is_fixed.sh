#!/usr/bin/env bash
# Expected: an extent marked as dynamic before the first call is open in the first graph, or the
# mark is refused. Only the hint `maybe_mark_dynamic` may be passed over.
# Happens: if the first call has an extent of 1, `mark_dynamic` is passed over without a word: the
# first graph is for 1 alone, and a second one is compiled for all others. With three rows first, the
# mark holds, and the open graph is not used for one row.
# Seen with: torch 2.13.0 (CPU), Python 3.11; 2026-11-29.
# Matters: a range that is tuned from an example of one row is no range.
# Handled in: aoe/torch/modules/open_shapes.py, aoe/torch/modules/backend.py (`graph_shapes`).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
export PIP_EXTRA_INDEX_URL="https://download.pytorch.org/whl/cpu"  # without it, CUDA comes along
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 torch==2.13.0
venv/bin/python -W ignore - <<'PY'
import sys

import torch


def graphs(extents):
    """Return for each graph that is compiled whether its extent is open."""
    made = []

    def backend(graph_module, example_inputs):
        made.append(any(isinstance(one, torch.SymInt) for one in example_inputs))
        return graph_module.forward

    torch.compiler.reset()
    double = torch.compile(lambda rows: rows * 2, backend=backend)
    for extent in extents:
        rows = torch.randn(extent, 4)
        torch._dynamo.mark_dynamic(rows, 0)
        double(rows)
    return made


from_one, from_three = graphs([1, 3, 5]), graphs([3, 1, 5])
print("torch", torch.__version__)
print("graphs of 1, 3, 5 rows, open or not:", from_one)
print("graphs of 3, 1, 5 rows, open or not:", from_three)
seen = {
    "one row first: a graph for it, and an open one": from_one == [False, True],
    "three rows first: an open graph, and one for one row": from_three == [True, False],
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
