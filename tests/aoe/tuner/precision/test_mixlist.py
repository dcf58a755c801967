"""CANN's lists of mixed precision, read from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aoe.errors import OptionError
from aoe.tuner.precision.mixlist import NO_LISTS, Listing, MixLists, onnx_name, read_mix_lists


def _read(value: Any, directory: Path) -> MixLists:
    file = directory / "lists.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_mix_lists(file)


def test_everything_is_allowed_at_first() -> None:
    assert NO_LISTS.listing("Conv", ("conv0",)) is Listing.ALLOWED


def test_file_of_cann_moves_operators_between_lists(tmp_path: Path) -> None:
    lists = _read(
        {
            "black-list": {"to-remove": ["Gemm"], "to-add": ["MatMulV2"]},
            "white-list": {"to-remove": ["ConvTranspose"], "to-add": ["Bias"]},
            "gray-list": {"to-add": ["Conv1D"], "to-remove": ["Pool"]},
        },
        tmp_path,
    )
    found = {
        kind: lists.listing(kind, ("n",))
        for kind in ("MatMul", "Gemm", "ConvTranspose", "Bias", "Conv", "Pool", "Other")
    }
    assert found == {
        "MatMul": Listing.DENIED,
        "Gemm": Listing.FOLLOWS,
        "ConvTranspose": Listing.FOLLOWS,
        "Bias": Listing.ALLOWED,
        "Conv": Listing.FOLLOWS,
        "Pool": Listing.ALLOWED,
        "Other": Listing.ALLOWED,
    }


def test_what_is_added_outweighs_what_is_removed(tmp_path: Path) -> None:
    lists = _read(
        {"black-list": {"to-add": ["Conv2D"]}, "white-list": {"to-remove": ["Conv2D"]}}, tmp_path
    )
    assert lists.listing("Conv", ("n",)) is Listing.DENIED


def test_names_and_patterns_of_names_go_before_types(tmp_path: Path) -> None:
    lists = _read(
        {
            "black-list": {"to-add": ["Conv2D", "/head/*"]},
            "white-list": {"to-add": ["/layer[12]/Conv"]},
        },
        tmp_path,
    )
    assert lists.listing("Conv", ("/layer1/Conv",)) is Listing.ALLOWED
    assert lists.listing("Conv", ("b_nchwc", "/layer2/Conv")) is Listing.ALLOWED
    assert lists.listing("Conv", ("/layer3/Conv",)) is Listing.DENIED
    assert lists.listing("MatMul", ("/head/MatMul",)) is Listing.DENIED
    assert lists.listing("MatMul", ("/body/MatMul",)) is Listing.ALLOWED


@pytest.mark.parametrize(
    ("name", "onnx"),
    [("DepthwiseConv2D", "Conv"), ("BatchMatMulV2", "MatMul"), ("GemmV2", "Gemm"), ("Add", "Add")],
)
def test_cann_s_names_are_known(name: str, onnx: str) -> None:
    assert onnx_name(name) == onnx


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not json", "cannot be read"),
        ([], r"not a list of CANN \(got \[\], expected an object with white-list"),
        ({"red-list": {}}, "got red-list, expected white-list or black-list or gray-list"),
        ({"black-list": ["MatMul"]}, r"lists.json: black-list: not a list of CANN"),
        ({"black-list": {"add": []}}, "got add, expected to-add or to-remove"),
        ({"black-list": {"to-add": "MatMul"}}, "black-list.to-add: .*expected a list of operators"),
        ({"black-list": {"to-add": [3]}}, "got 3, expected an operator type or a node name"),
        (
            {"black-list": {"to-add": ["Conv2D"]}, "white-list": {"to-add": ["Conv3D"]}},
            "added to two lists",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_error_with_its_place(
    value: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=message):
        _read(value, tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none.json: cannot be read: No such file"):
        read_mix_lists(tmp_path / "none.json")
