"""`--input_shape` several times, and AOE's `--dynamic_*`: which shapes a model is tuned for."""

from __future__ import annotations

import pytest

from aoe.entry.shape_cases import parse_shape_cases
from aoe.errors import OptionError


def test_one_shape_is_one_case_and_none_is_none() -> None:
    assert parse_shape_cases(["x:1,3; y:2"]) == ("x:1,3;y:2",)
    assert parse_shape_cases([]) == ()


def test_several_shapes_stand_for_themselves() -> None:
    assert parse_shape_cases(["x:1,3", "x:4,3"]) == ("x:1,3", "x:4,3")


@pytest.mark.parametrize(
    ("text", "option", "values", "cases"),
    [
        ("x:-1,3;y:-1", "batch_size", "1, 8", ("x:1,3;y:1", "x:8,3;y:8")),
        ("x:-1,3;y:7", "batch_size", "2", ("x:2,3;y:7",)),
        ("x:1,3,-1,-1", "image_size", "4,6;8,9;", ("x:1,3,4,6", "x:1,3,8,9")),
        ("x:-1,3,-1;y:-1", "dims", "1,2,3;4,5,6", ("x:1,3,2;y:3", "x:4,3,5;y:6")),
    ],
)
def test_profiles_fill_open_extents(
    text: str, option: str, values: str, cases: tuple[str, ...]
) -> None:
    assert parse_shape_cases([text], **{option: values}) == cases


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["x:-1,3"], {}, "an extent of x is open, and nothing says what it may be"),
        (["x:1", "x:1"], {}, "the same shapes twice"),
        (["x:1;y:2", "y:2;x:1"], {}, "the same shapes twice"),
        (["x:1"], {"batch_size": ""}, "--dynamic_batch_size: no value in it"),
        (["x:-1,-1"], {"dims": ";"}, "--dynamic_dims: no value in it"),
        (["x:-1"], {"batch_size": "2,2"}, "--dynamic_batch_size: the same shapes twice"),
        (["x:-1"], {"batch_size": "1", "dims": "1"}, "together with --dynamic_batch_size"),
        ([], {"batch_size": "1"}, "needs one --input_shape whose open extents are -1"),
        (["x:-1", "y:-1"], {"dims": "1"}, "needs one --input_shape"),
        (["x:1"], {"batch_size": "1"}, "no extent of --input_shape is -1"),
        (["x:1,-1"], {"batch_size": "1"}, "another extent of x than the first is open"),
        (["x:-1"], {"batch_size": "1,zero"}, r"not extents of 1 and more \(got 'zero'"),
        (["x:-1"], {"batch_size": "0"}, "not extents of 1 and more"),
        (["x:-1,-1"], {"image_size": "1,2,3"}, "height and width do not fit"),
        (["x:-1"], {"image_size": "1,2"}, "height and width do not fit"),
        (["x:-1,-1"], {"dims": "1,2;3"}, r"a value for every extent .* \(got 1 in 3, expected 2"),
        (["x:-2"], {"batch_size": "1"}, "not a name with extents"),
        (["3,4"], {}, "not a name with extents"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    texts: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse_shape_cases(texts, **options)
