"""`--out_nodes`: a model is cut off at named results, and nothing else stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.engine.cpu import open_session
from support.engine.models import save_model

from aoe.entry.onnx_file import load_onnx
from aoe.entry.outputs import cut_at_outputs, parse_out_nodes
from aoe.errors import ModelImportError, OptionError
from aoe.ort.sessions import session_options

_TEXT = """
    <ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    net (float[2, 4] x, float[n] label) => (float[2, 4] loss) <float[4] w = {1, 2, 3, 4}> {
        [scaled] s = Mul(x, w)
        [parts] a, b = Split <axis = 1, num_outputs = 2> (s)
        [joined] j = Concat <axis = 1> (b, a)
        [gelu] g = com.microsoft.Gelu(j)
        [loss] loss = Add(g, label)
    }
"""


def _net() -> onnx.ModelProto:
    return onnx.parser.parse_model(_TEXT)


def _outputs(proto: onnx.ModelProto) -> list[str]:
    return [value.name for value in proto.graph.output]


def test_value_is_a_list_of_results() -> None:
    assert parse_out_nodes("conv:0; relu:1;") == ("conv:0", "relu:1")
    assert parse_out_nodes(None) == ()


@pytest.mark.parametrize(("text", "message"), [(" ; ", "no output"), ("a:0;a:0", "given twice")])
def test_value_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"--out_nodes: .*{message}"):
        parse_out_nodes(text)


def test_model_ends_at_the_results_in_their_order() -> None:
    proto = _net()
    cut_at_outputs(proto, ["parts:1", "s"])
    assert _outputs(proto) == ["b", "s"]
    assert [node.name for node in proto.graph.node] == ["scaled", "parts"]
    assert [value.name for value in proto.graph.input] == ["x"]
    assert [entry.domain for entry in proto.opset_import] == [""]
    onnx.checker.check_model(proto)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    session = open_session(proto.SerializeToString(), session_options(threads=1, optimize=True))
    b, s = session.run(None, {"x": x})
    np.testing.assert_array_equal(s, x * np.array([1, 2, 3, 4], np.float32))
    np.testing.assert_array_equal(b, s[:, 2:])


def test_two_entries_for_one_result_are_refused() -> None:
    with pytest.raises(ModelImportError, match="output a given twice"):
        cut_at_outputs(_net(), ["parts:0", "a"])


def test_weights_nobody_needs_go() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        net (float[2] x) => (float[2] z) <float[2] w = {1, 2}> {
            [first] y = Neg(x)
            [second] z = Add(y, w)
        }"""
    )
    cut_at_outputs(proto, ["first:0"])
    assert not proto.graph.initializer and _outputs(proto) == ["y"]


def test_results_whose_type_nobody_knows_are_outputs_too() -> None:
    proto = _net()
    cut_at_outputs(proto, ["gelu:0"])
    session = open_session(proto.SerializeToString(), session_options(threads=1, optimize=True))
    assert session.get_outputs()[0].name == "g"


def test_names_of_results_may_look_like_nodes() -> None:
    proto = onnx.parser.parse_model(_TEXT)
    proto.graph.node[0].output[0] = "joined:0"
    proto.graph.node[1].input[0] = "joined:0"
    cut_at_outputs(proto, ["joined:0"])
    assert [node.name for node in proto.graph.node] == ["scaled"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("pairs:0", "(?s)no such node or result .*did you mean parts"),
        ("nothing alike", "no such node or result"),
        ("x", "no such node or result"),
        ("scaled", "no such node or result"),
        ("parts:2", r"node parts has no such result \(got parts:2, expected parts:0 or parts:1"),
        ("parts:first", "node parts has no such result"),
    ],
)
def test_what_is_not_in_the_model_is_refused(entry: str, message: str) -> None:
    with pytest.raises(ModelImportError, match=message) as refused:
        cut_at_outputs(_net(), [entry])
    assert refused.value.hint or "expected" in str(refused.value)


def test_inputs_that_go_need_no_shape_and_the_digest_is_that_of_the_part(tmp_path: Path) -> None:
    file = save_model(_net(), tmp_path / "net.onnx")
    with pytest.raises(ModelImportError, match="input label: its shape is not static"):
        load_onnx(file, {})
    whole = load_onnx(file, {"label": (4,)})
    part = load_onnx(file, {}, output_nodes=("joined:0",))
    assert _outputs(part.proto) == ["j"] and part.sha256 != whole.sha256
