"""Names of kernels do not meet those Halide makes up, which it numbers from the start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aoe.kernels

_MADE_UP = re.compile(r"""hl\.(?:Var|RVar|Func|RDom)\(\s*f?["'][a-z](?:\d+|\{[^}]*\})["']""")
"""A letter and a number: Halide calls what it splits off `v0`, `v1`, ..., a function `f0`."""
_PACKED_FIRST = """
import halide as hl
from aoe.kernels.registry import get_family
from support.contracts.kernels import kernel_target
from aoe.schedule import Configuration
from aoe.workload import Precision
from dataclasses import replace
from support.engine.convolutions import convolution, stem
for known in (convolution((4, 5)), stem(convolution((9, 9), kernel=(3, 3)), 3)):
    workload = replace(known, precision=Precision.BFLOAT16)
    family = get_family("convolution")
    pipeline = family.pipeline(workload, "direct_bf16")
    assert pipeline.packings
    for packing in pipeline.packings.values():
        packing.output.compile_to_callable([packing.argument], hl.get_host_target())
"""


def test_no_name_is_a_letter_and_a_number() -> None:
    root = Path(aoe.kernels.__file__).parent
    wrong = [
        f"{path.relative_to(root)}: {found[0]}"
        for path in sorted(root.rglob("*.py"))
        for found in _MADE_UP.finditer(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_packing_compiles_first_thing_in_a_process() -> None:
    """It did not: its first loop was called like the first one Halide splits off."""
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tests)!r})\n{_PACKED_FIRST}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
