"""The farm of a run: opened when it is first wanted, and kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from support.engine.fakes import make_target

from aoe.device.registry import default_device
from aoe.execute.workers.pool_on_demand import PoolOnDemand
from aoe.measurement import MeasurePolicy

_POLICY = MeasurePolicy(pairs_min=6, pairs_max=12)


class _RemotePool:
    """Looks like a farm to its keeper."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.refreshed = 0
        self.told_to: list[object] = []

    def refresh(self) -> None:
        self.refreshed += 1

    def tell_to(self, on_event: object) -> None:
        self.told_to.append(on_event)


class _RemotePools:
    def __init__(self) -> None:
        self.opened: list[_RemotePool] = []
        self.closed = 0
        self.trouble = ""

    @contextmanager
    def open(self, *_: Any, **__: Any) -> Iterator[_RemotePool]:
        self.opened.append(_RemotePool())
        try:
            yield self.opened[-1]
        finally:
            self.closed += 1
            if self.trouble:
                raise AttributeError(self.trouble)


@pytest.fixture
def remote_pools() -> _RemotePools:
    return _RemotePools()


def _pool(remote_pools: _RemotePools) -> PoolOnDemand:
    return PoolOnDemand(remote_pools.open)  # type: ignore[arg-type]


def _wanted(pool_on_demand: PoolOnDemand, **changes: Any) -> _RemotePool:
    facts: dict[str, Any] = {"workers": "4", "target": make_target(), "policy": _POLICY}
    facts |= {"device": default_device(), "versions": {}, "on_event": print} | changes
    return cast(_RemotePool, pool_on_demand.remote_pool(**facts))


def test_it_is_opened_once_and_looked_at_each_time(remote_pools: _RemotePools) -> None:
    with _pool(remote_pools) as pool_on_demand:
        assert not remote_pools.opened
        assert _wanted(pool_on_demand) is _wanted(pool_on_demand, on_event=repr)
        assert remote_pools.opened[0].refreshed == 2
        assert remote_pools.opened[0].told_to == [
            print,
            repr,
        ]  # each model has a display of its own
    assert (len(remote_pools.opened), remote_pools.closed) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [{"target": replace(make_target(), core_num=1)}, {"workers": "2"}],
    ids=["target", "workers"],
)
def test_another_is_opened_for_something_else(
    remote_pools: _RemotePools, changes: dict[str, Any]
) -> None:
    with _pool(remote_pools) as pool_on_demand:
        assert _wanted(pool_on_demand) is not _wanted(pool_on_demand, **changes)
        assert remote_pools.closed == 1
    assert remote_pools.closed == 2


def test_one_that_has_ended_is_replaced(remote_pools: _RemotePools) -> None:
    with _pool(remote_pools) as pool_on_demand:
        first = _wanted(pool_on_demand)
        first.is_stopped = True  # a model has failed while workers were at it
        assert _wanted(pool_on_demand) is not first
    assert remote_pools.closed == 2


def test_trouble_of_giving_back_is_a_warning(remote_pools: _RemotePools) -> None:
    told: list[tuple[str, bool]] = []
    remote_pools.trouble = "no scheduler"
    with _pool(remote_pools) as pool_on_demand:
        _wanted(pool_on_demand, on_event=lambda *text: told.append(text))
    assert told == [("the workers could not be given back: no scheduler", True)]


def test_nothing_is_opened_where_nothing_is_wanted(remote_pools: _RemotePools) -> None:
    with _pool(remote_pools):
        pass
    assert not remote_pools.opened
