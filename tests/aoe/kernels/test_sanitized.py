"""Kernels and the glue under gcc's address and undefined-behaviour sanitizers.

The default runs one kernel of some families, `pytest -m slow` several of each; the comparison with
ONNX Runtime would not see a read beyond a tensor whose value is not used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.engine.sanitized import sanitizer_environment

_TESTS = Path(__file__).parents[2]
_SOME = (
    "conv_nchw/test_family",
    "matmul/test_family",
    "gathering/test_scatter",
    "test_elementwise",
)
_TIMEOUT_S = 250.0


@pytest.fixture(scope="module")
def environment() -> Mapping[str, str]:
    found = sanitizer_environment(os.environ)
    if found is None:
        pytest.skip("the C compiler has no address sanitizer of gcc")
    paths = (_TESTS.parent, _TESTS, os.environ.get("PYTHONPATH", ""))
    return {**found, "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}


def _sanitized(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "support.engine.sanitized", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _module(file: Path) -> str:
    return ".".join(file.relative_to(_TESTS.parent).with_suffix("").parts)


def _suites() -> list[str]:
    """Return the modules with contract tests of families."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    return [_module(file) for file in files if "(KernelFamilyTests)" in file.read_text()]


_SUITES = _suites()
_SOME_SUITES = [_module(Path(__file__).parent / f"{name}.py") for name in _SOME]
_AT_ONCE = 4
"""Modules of a process: several seconds go before the first kernel."""


@pytest.mark.slow
def test_a_kernel_that_reads_too_far_is_found(environment: Mapping[str, str]) -> None:
    done = _sanitized(environment, "--too-far")
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
    assert "READ of size" in done.stderr
    assert "too far" not in done.stdout


@pytest.mark.slow
def test_kernels_stay_inside_their_tensors(environment: Mapping[str, str]) -> None:
    done = _sanitized(environment, *_SOME_SUITES)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(done.stdout.splitlines()) >= len(_SOME_SUITES)


def test_suites_of_all_families_are_found() -> None:
    assert len(_SUITES) >= 20
    assert set(_SOME_SUITES) <= set(_SUITES)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(_SUITES), _AT_ONCE))
def test_kernels_of_every_family_stay_inside_their_tensors(
    environment: Mapping[str, str], first: int
) -> None:
    modules = _SUITES[first : first + _AT_ONCE]
    done = _sanitized(environment, "--cases", os.environ.get("AOE_SANITIZED_CASES", "3"), *modules)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(done.stdout.splitlines()) >= len(modules)
