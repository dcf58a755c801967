"""The range form of `--input_shape`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from onnx import helper
from support.engine.models import make_model

from aoe.entry.shape_log import read_shape_log
from aoe.entry.shape_range import (
    Extents,
    OpenModelShapes,
    holds,
    is_range,
    open_input_shapes,
    parse_shape_range,
)
from aoe.errors import ModelImportError, OptionError


def _model(*shapes: Sequence[int | str | None]) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(shapes))]
    nodes = [helper.make_node("Exp", [name], [f"{name}_y"]) for name in names]
    inputs = dict(zip(names, shapes, strict=True))
    return make_model(nodes, inputs, [f"{name}_y" for name in names])


def _opened(text: str, *shapes: Sequence[int | str | None]) -> OpenModelShapes:
    return open_input_shapes(_model(*shapes), parse_shape_range(text))


def test_an_entry_has_numbers_and_ranges() -> None:
    found = parse_shape_range(" ids:1~8, 1~512 ;a:b:3,2~2,4~5;")
    assert found == {"ids": (Extents(1, 8), Extents(1, 512)), "a:b": (3, 2, Extents(4, 5))}
    assert is_range("x:1~2") and not is_range("x:1,2")
    assert parse_shape_range("ids:1~8;step:") == {"ids": (Extents(1, 8),), "step": ()}


@pytest.mark.parametrize(
    "text",
    [
        *("x:2~1", "x:0~3", "x:1~", "x:~3", "x:1~2~3", "x:a~b", "1~2", ":1~2", "x:-1"),
        *("x:1~2;x:1~3", f"x:1~2,{2**63}", f"x:1~{2**63}"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--input_shape"):
        parse_shape_range(text)


def test_open_dimensions_keep_their_names_or_get_one() -> None:
    found = _opened("x0:1~8,2~9,4", ("batch", None, 4))
    assert found.inputs == {"x0": ("batch", "x0_1", 4)}
    assert found.ranges == {"batch": Extents(1, 8), "x0_1": Extents(2, 9)}


def test_a_dimension_without_a_name_is_none_of_those_with_names() -> None:
    found = _opened("x0:1~8,4;x1:1~8,4", (None, 4), ("x0_0", 4))
    assert found.inputs == {"x0": ("x0_0_2", 4), "x1": ("x0_0", 4)}


def test_an_input_without_a_shape_has_the_one_that_is_given() -> None:
    proto = _model((None, 4))
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelImportError, match="input x0: nothing is said of its shape"):
        open_input_shapes(proto, {})
    found = open_input_shapes(proto, parse_shape_range("x0:1~8,4"))
    assert found.inputs == {"x0": ("x0_0", 4)}
    extents = [
        dim.dim_value or dim.dim_param for dim in proto.graph.input[0].type.tensor_type.shape.dim
    ]
    assert extents == ["x0_0", 4]


def test_a_dimension_of_two_inputs_is_one() -> None:
    found = _opened("x0:1~8,4;x1:1~8,1~3", ("N", 4), ("N", "M"))
    assert found.ranges == {"N": Extents(1, 8), "M": Extents(1, 3)}
    assert found.point({"N": 2, "M": 3}).shapes == {"x0": (2, 4), "x1": (2, 3)}


def test_extents_given_as_numbers_are_fixed_in_the_model() -> None:
    model = _model(("N", "C"))
    open_input_shapes(model, parse_shape_range("x0:1~8,16"))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("N", 16)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("z:1~2", [("N",)]),
        ("x0:1~2", [("N", 4)]),
        ("x0:1~2,5", [("N", 4)]),
        ("x0:1~2,1~4", [("N", 4)]),
        ("x0:1~2,4;x1:1~3", [("N", 4), ("N",)]),
        ("x0:1~2,4;x1:2", [("N", 4), ("N",)]),
        ("x0:2,4;x1:1~2", [("N", 4), ("N",)]),
        ("x0:1~2", [("N",), ("M",)]),
        ("x0:3~9;x1:1~4", [("N",), ("2*N",)]),
        ("x0:33~63", [("32*H",)]),
    ],
)
def test_a_range_that_does_not_fit_the_model_is_refused(
    text: str, shapes: list[tuple[int | str, ...]]
) -> None:
    with pytest.raises(ModelImportError, match="--input_shape"):
        _opened(text, *shapes)


def test_an_extent_nothing_is_said_of_is_named_with_its_input() -> None:
    with pytest.raises(ModelImportError, match=r"dimension x1_0 \(N\): nothing is said"):
        _opened("x0:1~2", ("N",), ("N", 4))


def test_points_are_the_ends_and_the_geometric_middle() -> None:
    found = _opened("x0:1~4,1~128", ("N", "S")).points()
    assert [point.extents for point in found] == [
        {"N": 1, "S": 1},
        {"N": 2, "S": 11},
        {"N": 4, "S": 128},
    ]
    assert str(found[1]) == "x0:2,11"
    assert len(_opened("x0:1~2", ("N",)).points()) == 2


@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        ("x0:1~512;x1:3~1536", [("N",), ("3*N",)], [(1, 3), (22, 66), (512, 1536)]),
        ("x0:1~512;x1:4~900", [("N",), ("3*N",)], [(2, 6), (24, 72), (300, 900)]),
        ("x0:1~100;x1:50~60;x2:51~160", [("P",), ("S",), ("P + S",)], [(1, 50, 51), (10, 54, 64)]),
        ("x0:300~650", [("32*H",)], [(320,), (448,), (640,)]),
        ("x0:3~300", [("(H+1)//2",)], [(3,), (30,), (300,)]),
    ],
)
def test_points_have_the_relations_the_names_say(
    text: str, shapes: list[tuple[str, ...]], expected: list[tuple[int, ...]]
) -> None:
    points = _opened(text, *shapes).points()
    found = [tuple(shape[0] for shape in point.shapes.values()) for point in points]
    assert found[: len(expected)] == expected


def test_points_of_a_log_have_the_relations_the_names_say(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("9,x0:4;x1:8\n5,x0:4;x1:1\n3,x0:5;x1:10")
    found = _opened("x0:1~8;x1:1~16", ("N",), ("2*N",)).served_points(read_shape_log(log))
    assert [point.extents["N"] for point in found] == [4, 5]


def test_inputs_of_one_shape_may_be_left_out_of_ranges_and_logs(tmp_path: Path) -> None:
    opened = _opened("x0:1~8", ("N",), (4,))
    log = tmp_path / "log"
    log.write_text("9,x0:4\n5,x0:3;x1:4\n7,x0:2;x1:5\n2,x1:4\n1,x0:1;z:3")
    served = opened.served_points(read_shape_log(log))
    assert [(point.extents["N"], point.shapes["x1"]) for point in served] == [(4, (4,)), (3, (4,))]
    assert opened.calls_outside(read_shape_log(log)) == 10
    shapes = parse_shape_range("x0:1~8")
    assert holds(shapes, {"x0": (3,), "x1": (4,)}) and not holds(shapes, {"x1": (4,)})


def test_points_between_are_odd_unless_extents_are_multiples() -> None:
    def found(text: str, *shapes: tuple[int | str, ...]) -> list[tuple[int, ...]]:
        points = _opened(text, *shapes).points_and_between()
        return [tuple(point.extents.values()) for point in points]

    assert found("x0:1~64,50~1500", ("N", "S")) == [
        *((1, 50), (3, 116), (9, 272), (25, 638), (64, 1500))
    ]
    sides = [(320, 128), (384, 128), (448, 160), (512, 192), (640, 256)]
    assert found("x0:1,3,320~640,128~256", (1, 3, "N", "S")) == sides
    assert found("x0:1~2", ("N",)) == [(1,), (2,)]
    assert found("x0:1~64;x1:2~128", ("N",), ("2*N",)) == [
        *((1, 2), (3, 6), (8, 16), (23, 46), (64, 128))
    ]


@pytest.mark.parametrize(
    ("shape", "text", "expected"),
    [
        (("N", "S"), "x0:1,16~128", [16, 32, 64, 128]),  # samples of a signal, last
        ((1, "S", 64), "x0:1,16~128,64", [16, 27, 45, 75, 128]),
        (("S", 64), "x0:16~256,64", [16, 33, 65, 129, 256]),
        ((1, 3, "S", "W"), "x0:1,3,16~128,16~128", [16, 32, 64, 128]),
    ],
)
def test_points_of_rows_are_off_the_multiples_of_tiles(
    shape: tuple[int | str, ...], text: str, expected: list[int]
) -> None:
    found = [one.extents["S"] for one in _opened(text, shape).points_and_between()]
    assert found == expected


def test_tokens_count_as_rows_wherever_they_stand() -> None:
    ids = make_model(
        [helper.make_node("Cast", ["x0"], ["y"], to=onnx.TensorProto.FLOAT)],
        {"x0": (1, "S")},
        ["y"],
    )
    ids.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    opened = open_input_shapes(ids, parse_shape_range("x0:1,16~128"))
    assert [one.extents["S"] for one in opened.points()] == [16, 45, 128]


def test_points_of_a_log_are_the_costly_shapes_inside_the_range(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = ["9,x0:1,9;x1:1,4", "5,x0:4,128;x1:4,4", "99,x0:9,9;x1:9,4", "7,x0:1,2;x1:2,4"]
    others = [f"{count},x0:2,{10 + count};x1:2,4" for count in (1, 2, 3, 4, 5)]
    log.write_text("\n".join([*lines, *others, "3,x0:1,2"]))
    found = _opened("x0:1~4,1~128;x1:1~4,4", ("N", "S"), ("N", 4)).served_points(
        read_shape_log(log)
    )
    # nine rows are outside, two numbers of rows and a missing input fit no call of this model
    assert [(point.extents["S"], point.count) for point in found] == [
        (9, 9),
        (13, 3),
        (14, 4),
        (15, 5),
        (128, 5),
    ]
