"""The farm of a run: opened when it is first wanted, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from aoe.device.registry import default_device
from aoe.execute.workers.keeper import FarmKeeper
from aoe.measurement import MeasurePolicy
from aoe.testing.fakes import make_target

_POLICY = MeasurePolicy(pairs_min=6, pairs_max=12)


class _Farm:
    """Looks like a farm to its keeper."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.refreshed = 0
        self.told_to: list[object] = []

    def refresh(self) -> None:
        self.refreshed += 1

    def tell_to(self, tell: object) -> None:
        self.told_to.append(tell)


class _Farms:
    def __init__(self) -> None:
        self.opened: list[_Farm] = []
        self.closed = 0

    @contextmanager
    def open(self, *_: Any, **__: Any) -> Iterator[_Farm]:
        self.opened.append(_Farm())
        try:
            yield self.opened[-1]
        finally:
            self.closed += 1


@pytest.fixture
def farms() -> _Farms:
    return _Farms()


def _wanted(keeper: FarmKeeper, **changes: Any) -> _Farm:
    facts: dict[str, Any] = {"workers": "4", "target": make_target(), "policy": _POLICY}
    facts |= {"device": default_device(), "versions": {}, "tell": print} | changes
    return cast(_Farm, keeper.farm(**facts))


def test_it_is_opened_once_and_looked_at_each_time(farms: _Farms) -> None:
    with FarmKeeper(farms.open) as keeper:
        assert not farms.opened
        assert _wanted(keeper) is _wanted(keeper, tell=repr)
        assert farms.opened[0].refreshed == 2
        assert farms.opened[0].told_to == [print, repr]  # each model has a display of its own
    assert (len(farms.opened), farms.closed) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [{"target": replace(make_target(), core_num=1)}, {"workers": "2"}],
    ids=["target", "workers"],
)
def test_another_is_opened_for_something_else(farms: _Farms, changes: dict[str, Any]) -> None:
    with FarmKeeper(farms.open) as keeper:
        assert _wanted(keeper) is not _wanted(keeper, **changes)
        assert farms.closed == 1
    assert farms.closed == 2


def test_one_that_has_ended_is_replaced(farms: _Farms) -> None:
    with FarmKeeper(farms.open) as keeper:
        first = _wanted(keeper)
        first.is_stopped = True  # a model has failed while workers were at it
        assert _wanted(keeper) is not first
    assert farms.closed == 2


def test_nothing_is_opened_where_nothing_is_wanted(farms: _Farms) -> None:
    with FarmKeeper(farms.open):
        pass
    assert not farms.opened
