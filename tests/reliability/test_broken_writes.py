"""Kill -9, errors of the system and a full disk at the calls of everything that writes.

`pytest tests/reliability -m slow` breaks every call (`AOEBANK_EVERY=3`: every third) and prints how
many that were; the figures are in docs/reliability.md. A few of them run always.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.reliability.breaking import KINDS, Broken, build, run_broken
from support.reliability.operations import OPERATIONS
from support.tiers import few_every_day

EVERY = int(os.environ.get("AOEBANK_EVERY", "1"))
FEW = (("put into a file", 2), ("merge in place", 31), ("restore", 47), ("quarantine add", 53))
CALLS = {"put into a file": 9, "merge in place": 60, "restore": 60, "snapshot": 40}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = build(tmp_path_factory.mktemp("library"))
    if built is None:
        pytest.skip("needs a C compiler")
    return built


def _demand_whole(found: Broken) -> None:
    assert found.tries
    assert found.problems == ()


@pytest.mark.parametrize("kind", few_every_day(KINDS[:2]))
@pytest.mark.parametrize(
    ("operation", "every"), few_every_day(FEW, 2), ids=[name for name, _ in FEW]
)
def test_write_broken_at_a_few_calls(
    operation: str, every: int, kind: str, library: Path, tmp_path: Path
) -> None:
    found = run_broken(library, operation, kind, tmp_path / "world", every=every)
    assert found.calls >= CALLS.get(operation, 1)  # else the library is past what it is to see
    _demand_whole(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_write_broken_at_every_call(
    operation: str,
    kind: str,
    library: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = run_broken(library, operation, kind, tmp_path / "world", every=EVERY)
    with capsys.disabled():
        print(f"\n{operation}, {kind}: {found.calls} calls, {found.tries} broken")
    _demand_whole(found)
