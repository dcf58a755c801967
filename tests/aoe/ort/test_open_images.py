"""Images of open extents, followed through the reorders of ONNX Runtime's blocked layout."""

from __future__ import annotations

import pytest
from onnx import helper

from aoe.operators import REORDER_INPUT
from aoe.ort.open_images import PartialShape, follow_images


@pytest.mark.parametrize(
    ("told", "followed"),
    [
        (("n", 32, None, None), {"r": ("n", 32, "h", "w")}),
        (("n", None, None, None), {}),
        ((), {}),
    ],
)
def test_channels_that_are_put_first_are_those_of_whole_blocks(
    told: PartialShape, followed: dict[str, PartialShape]
) -> None:
    domain, name = REORDER_INPUT
    node = helper.make_node(name, ["x"], ["r"], domain=domain, channels_last=1)
    graph = helper.make_graph([node], "g", [], [])
    assert follow_images(graph, {"x": ("n", "h", "w", 20), "r": told}) == followed
