"""The ranges of the benchmark: what is open, and what `--input_shape` says of it."""

from __future__ import annotations

from typing import Any

import pytest
from networks.registry import NETWORKS

from aoe.entry.shape_range import parse_shape_range


@pytest.fixture(scope="module")
def ranges() -> dict[str, Any]:
    pytest.importorskip("torch")
    from shape_ranges import RANGES

    return RANGES


def test_open_axes_are_named_where_they_are(ranges: dict[str, Any]) -> None:
    cached = ranges["gpt2_cached"]
    at = cached.at(NETWORKS["gpt2_cached"], (17,))
    assert at.inputs[0].shape == (1, 1)
    assert {one.shape for one in at.inputs[1:]} == {(2, 1, 12, 17, 64)}
    assert cached.option(at).startswith("tokens:1,1;past_0:2,1,12,1~512,64;past_1:")


def test_every_range_is_one_and_holds_what_is_measured(ranges: dict[str, Any]) -> None:
    for name, here in ranges.items():
        network = NETWORKS[name]
        option = parse_shape_range(here.option(network))
        assert list(option) == [one.name for one in network.inputs]
        for extents in (*here.fixed, *here.unseen):
            for one, (low, high) in zip(extents, here.ends.values(), strict=True):
                assert low <= one <= high
