"""`--framework`: which models can be read."""

from __future__ import annotations

import pytest

from aoe.entry.onnx_file import load_onnx
from aoe.entry.registry import find_entry
from aoe.errors import UsageError


def test_onnx_is_five() -> None:
    assert find_entry(5) is load_onnx


@pytest.mark.parametrize(("number", "name"), [(0, "Caffe"), (1, "MindSpore"), (3, "TensorFlow")])
def test_known_framework_without_entry_points_to_onnx(number: int, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} models cannot be read") as caught:
        find_entry(number)
    assert "--framework=5" in str(caught.value.hint)


@pytest.mark.parametrize("number", [-1, 2, 4, 6, 99])
def test_unknown_framework_says_which_are_known(number: int) -> None:
    with pytest.raises(UsageError, match=rf"unknown framework \(got {number}, expected 5 \(ONNX"):
        find_entry(number)
