"""What is faster is chosen by figures that count: none of a machine that was busy meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, chain, repeat
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aoe.errors import MeasurementError  # noqa: E402
from aoe.measurement import CpuUse  # noqa: E402
from aoe.torch.modules.training import choice  # noqa: E402

_QUIET = CpuUse(wall_s=1.0, cpu_s=1.0)
_BUSY = CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5, switches=9)
_SQUARES = (torch.square, torch.square, (torch.ones(4096),))


@pytest.fixture(autouse=True)
def _several_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("AOE_ACCEPT_BUSY", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def _served(*comparisons: CpuUse) -> Callable[[], CpuUse]:
    """Return the counters around comparisons, the last of them for ever."""
    each = chain(comparisons, repeat(comparisons[-1]))
    pairs = chain.from_iterable((CpuUse(), one) for one in each)
    return accumulate(pairs, CpuUse.__add__).__next__


@pytest.mark.parametrize(
    "compare",
    [
        lambda usage: choice.region_speedup(*_SQUARES, usage=usage),
        lambda usage: choice.step_speedup(lambda: None, lambda: None, usage=usage),
    ],
    ids=["region", "passes"],
)
def test_busy_machine_decides_nothing(
    compare: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MeasurementError, match=r"machine: too busy to compare on .*50% of"):
        compare(_served(_BUSY))
    assert compare(_served(_BUSY, _BUSY, _QUIET)).pairs  # it may become quiet meanwhile
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    assert compare(_served(_BUSY)).pairs


def test_cpu_time_of_one_thread_counts_beside_others() -> None:
    torch.set_num_threads(1)
    assert choice.region_speedup(*_SQUARES, usage=_served(_BUSY)).pairs


@pytest.mark.parametrize(("least_quiet", "counts"), [(None, False), (0.9, False), (0.0, True)])
def test_pairs_for_a_record_say_how_busy_the_machine_was(
    least_quiet: float | None, counts: bool
) -> None:
    usage = _served(_BUSY)
    found = choice.region_measurement(*_SQUARES, usage=usage, least_quiet=least_quiet)
    assert found.counts is counts and found.load is not None
    assert found.load.use == _BUSY
