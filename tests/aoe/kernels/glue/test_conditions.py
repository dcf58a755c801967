"""Conditions of the preprocessor in the glue."""

from __future__ import annotations

from pathlib import Path

import pytest

import aoe.kernels
from aoe.device.toolchain import Toolchain, halide_include

_SOURCES = sorted((Path(aoe.kernels.__file__).parent / "glue").glob("*.c"))


@pytest.mark.parametrize("source", _SOURCES, ids=lambda source: source.name)
def test_conditions_name_nothing_but_macros(source: Path, toolchain: Toolchain) -> None:
    # any other name is 0 to the preprocessor, and what depends on it is left out
    flags = ["-std=gnu11", "-fsyntax-only", "-Wundef", "-Werror=undef"]
    toolchain.run([*flags, "-isystem", str(halide_include()), str(source)], what="checking")
