"""The ONNX entry: what is accepted, and what a refusal says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.engine.models import chain_model, conv_net, make_model, old_format_net, save_model

from aoe.entry.onnx_file import (
    load_onnx,
    load_open_onnx,
    make_initializers_constant,
    read_onnx,
)
from aoe.entry.protocol import MAX_BYTES
from aoe.errors import ModelImportError
from aoe.graph.weights import point_into


def test_model_with_static_shapes_is_loaded_with_its_name_and_digest(tmp_path: Path) -> None:
    file = save_model(chain_model(["Exp"]), tmp_path / "net.v2.onnx")
    model = load_onnx(file, {})
    assert model.name == "net.v2"
    assert model.path == file
    assert len(model.sha256) == 64
    assert [node.op_type for node in model.proto.graph.node] == ["Exp"]


def test_name_of_a_file_that_is_no_text_becomes_one(tmp_path: Path) -> None:
    file = save_model(chain_model(["Exp"], (1,)), tmp_path / os.fsdecode(b"n\xfft.onnx"))
    model = load_onnx(file, {})
    assert model.name == "n\ufffdt"
    assert model.path == file


def test_digest_depends_on_the_fixed_shape_and_not_on_the_file_name(tmp_path: Path) -> None:
    first = save_model(chain_model(["Exp"], ("n", 4)), tmp_path / "a.onnx")
    second = save_model(chain_model(["Exp"], ("n", 4)), tmp_path / "b.onnx")
    assert load_onnx(first, {"x": (1, 4)}).sha256 == load_onnx(second, {"x": (1, 4)}).sha256
    assert load_onnx(first, {"x": (1, 4)}).sha256 != load_onnx(first, {"x": (2, 4)}).sha256


def test_unreadable_file_is_refused_with_the_system_s_reason(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.symlink_to("/proc/self/mem")  # nobody may read its first page
    with pytest.raises(ModelImportError, match=r"cannot be read: .*Input/output error"):
        load_onnx(file, {})


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is a text\n", b"\x89PNG\r\n\x1a\n" + bytes(64), b"PK\x03\x04zip"]
)
@pytest.mark.parametrize("suffix", [".onnx", ".json", ".textproto", ""])
def test_file_that_is_no_onnx_model_is_refused_whatever_its_suffix(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(content)
    with pytest.raises(ModelImportError, match="not an ONNX model"):
        load_onnx(file, {})


@given(data=st.data())
def test_damaged_model_is_refused_or_loaded_and_never_a_bug(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = bytearray(chain_model(["Exp", "LeakyRelu"]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        model[data.draw(st.integers(0, len(model) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.getbasetemp() / "damaged.onnx"
    file.write_bytes(bytes(model))
    try:
        assert load_onnx(file, {}).proto.graph.node
    except ModelImportError as error:
        assert str(error)


@pytest.mark.parametrize("text", [b"test", b"x", b"n0", b"Exp"])
def test_text_that_is_no_text_is_refused(tmp_path: Path, text: bytes) -> None:
    """ONNX Runtime takes it, the engine's own records cannot hold it."""
    written = chain_model(["Exp", "Tanh"]).SerializeToString()
    file = tmp_path / "odd.onnx"
    file.write_bytes(written.replace(text, text[:-1] + b"\xff"))
    with pytest.raises(ModelImportError, match=r"not a valid model: a text in it is not UTF-8"):
        load_onnx(file, {})


def test_complaint_without_words_is_still_a_refusal(tmp_path: Path) -> None:
    def complain(proto: onnx.ModelProto) -> None:
        raise onnx.checker.ValidationError("")

    file = save_model(chain_model(["Exp"]), tmp_path / "odd.onnx")
    with pytest.raises(ModelImportError, match="does not say why"):
        read_onnx(file, check=complain)


@pytest.mark.parametrize("change", [-4, 4])
def test_weight_of_another_size_than_its_shape_says_is_refused_by_name(
    tmp_path: Path, change: int
) -> None:
    model = conv_net()
    largest = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    assert len(largest.raw_data) > 1024  # smaller ones are left to the checker of ONNX
    wanted = len(largest.raw_data)
    largest.raw_data = bytes(wanted + change)
    file = save_model(model, tmp_path / "net.onnx")
    with pytest.raises(
        ModelImportError, match=rf"{largest.name}.* {wanted + change} bytes, expected {wanted}"
    ):
        load_onnx(file, {})


def test_model_without_nodes_is_refused(tmp_path: Path) -> None:
    file = save_model(make_model([], {"x": [1]}, ["x"]), tmp_path / "empty.onnx")
    with pytest.raises(ModelImportError, match="one without any operator"):
        load_onnx(file, {})


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("net.prototxt", "--framework=0 --weight=FILE.caffemodel"),
        ("net.pb", "--framework=3"),
        ("net.onnx", ""),
    ],
)
def test_model_of_another_framework_is_told_the_option_for_it(
    tmp_path: Path, name: str, way_out: str
) -> None:
    (tmp_path / name).write_text('name: "net"')
    with pytest.raises(ModelImportError, match="not an ONNX model") as caught:
        load_onnx(tmp_path / name, {})
    assert caught.value.hint == way_out


def test_directory_is_told_the_option_for_it(tmp_path: Path) -> None:
    for way_out in (f"--model_path={tmp_path} tunes the models in it", "--framework=3"):
        with pytest.raises(ModelImportError, match="is a directory") as caught:
            load_onnx(tmp_path, {})
        assert caught.value.hint == way_out
        (tmp_path / "saved_model.pb").touch()


def test_invalid_graph_is_refused_in_one_line(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["nobody"], ["y"])]
    file = tmp_path / "invalid.onnx"
    file.write_bytes(make_model(nodes, {"x": [1]}, ["y"]).SerializeToString())
    with pytest.raises(ModelImportError, match=r"not a valid model: .*nobody") as caught:
        load_onnx(file, {})
    assert "\n" not in str(caught.value)


def test_refusal_of_an_invalid_node_names_it(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="my_relu", foo=3)
    file = tmp_path / "invalid.onnx"
    file.write_bytes(make_model([node], {"x": [1]}, ["y"]).SerializeToString())
    with pytest.raises(ModelImportError, match=r"attribute: foo .*Name: my_relu") as caught:
        load_onnx(file, {})
    assert "\n" not in str(caught.value)


def test_operators_of_other_domains_are_left_to_onnxruntime(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]
    model = make_model(nodes, {"x": [1, 4]}, ["y"], domains={"com.microsoft": 1})
    file = save_model(model, tmp_path / "contrib.onnx")
    assert load_onnx(file, {}).proto.graph.node[0].op_type == "Gelu"


def test_weights_in_another_file_are_read(tmp_path: Path) -> None:
    file = save_model(conv_net(), tmp_path / "net.onnx", external_data=True)
    inside = save_model(conv_net(), tmp_path / "inside.onnx")
    loaded, expected = (load_onnx(path, {}).proto.graph.initializer for path in (file, inside))
    for found, tensor in zip(loaded, expected, strict=True):
        assert found.name == tensor.name
        assert np.array_equal(numpy_helper.to_array(found), numpy_helper.to_array(tensor))


def test_large_weights_of_another_size_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """The file is sparse: there is nothing in it, and nothing of it is read."""
    file = save_model(conv_net(), tmp_path / "net.onnx", external_data=True)
    model = onnx.load(str(file), load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    entries["length"].value = str(2**31)
    file.write_bytes(model.SerializeToString())
    with (tmp_path / "net.weights").open("r+b") as weights:
        weights.truncate(2**32)
    before = _bytes_read()
    with pytest.raises(ModelImportError, match=r"'w0' of shape .* holds 2147483648 bytes"):
        load_onnx(file, {})
    assert _bytes_read() - before < 2**20


def _bytes_read() -> int:
    """Return the bytes that this process has read from all files so far."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def test_too_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.onnx").open("wb") as huge:
        huge.truncate(2**31)
    before = _bytes_read()
    with pytest.raises(ModelImportError, match=rf"too large .*expected at most {MAX_BYTES} bytes"):
        load_onnx(tmp_path / "huge.onnx", {})
    assert _bytes_read() - before < 2**20


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_weights_are_refused_by_name(tmp_path: Path, share: float) -> None:
    file = save_model(conv_net(), tmp_path / "net.onnx", external_data=True)
    weights = tmp_path / "net.weights"
    weights.write_bytes(weights.read_bytes()[: int(weights.stat().st_size * share)])
    with pytest.raises(ModelImportError, match=r"weights of \w+: .*net\.weights ends before"):
        load_onnx(file, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", "-1"), ("length", "many"), ("location", "../w"), ("location", "")],
)
def test_weights_at_an_impossible_place_are_refused(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "w").write_bytes(bytes(10**6))
    (tmp_path / "inner").mkdir()
    file = save_model(conv_net(), tmp_path / "inner" / "net.onnx", external_data=True)
    model = onnx.load(str(file), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ModelImportError, match="weights of w0"):
        load_onnx(file, {})


def test_weights_of_subgraphs_and_attributes_may_lie_outside(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "w").write_bytes(values.tobytes() * 2)
    inner, constant = (
        point_into("w", numpy_helper.from_array(values, name), 24 * at, 24)
        for at, name in enumerate(("inner", "constant"))
    )
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, [6])
    branch = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["r"])], "branch", [], [result], [inner]
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=constant),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = make_model(nodes, {"flag": []}, ["y", "c"], types={"flag": TensorProto.BOOL})
    file = tmp_path / "net.onnx"
    file.write_bytes(model.SerializeToString())
    constant, choice = load_onnx(file, {}).proto.graph.node
    found = [constant.attribute[0].t, choice.attribute[0].g.initializer[0]]
    assert [numpy_helper.to_array(tensor).tolist() for tensor in found] == [values.tolist()] * 2
    (tmp_path / "w").write_bytes(values.tobytes())
    with pytest.raises(ModelImportError, match="weights of constant"):
        load_onnx(file, {})


def test_default_that_a_caller_may_override_stays_an_input(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "bias"], ["y"])
    weights = {"bias": np.ones((1, 4), np.float32)}
    model = make_model([node], {"x": (2, 4), "bias": ("n", 4)}, ["y"], weights=weights)
    loaded = load_onnx(save_model(model, tmp_path / "net.onnx"), {})
    assert [value.name for value in loaded.proto.graph.input] == ["x", "bias"]
    assert "weight bias is an input too" in loaded.caveat
    assert not load_onnx(save_model(conv_net(), tmp_path / "plain.onnx"), {}).caveat


def test_initializers_of_an_old_model_become_constants(tmp_path: Path) -> None:
    file = save_model(old_format_net(), tmp_path / "old.onnx")
    proto = load_onnx(file, {}).proto
    assert [value.name for value in proto.graph.input] == ["x"]
    assert proto.ir_version == 4
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.ones((1, 3, 8, 8), np.float32)
    reference = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0])


def test_newer_ir_version_stays(tmp_path: Path) -> None:
    proto = chain_model(["Exp"])
    make_initializers_constant(proto)
    assert proto.ir_version == 9


def test_input_without_a_shape_asks_for_one_and_takes_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    file = save_model(make_model(nodes, {"x": None}, ["y"]), tmp_path / "open.onnx")
    with pytest.raises(ModelImportError, match="got no shape") as caught:
        load_onnx(file, {})
    assert "--input_shape" in str(caught.value.hint)
    assert load_onnx(file, {"x": (2, 3)}).proto.graph.node


def test_result_without_a_shape_is_none_of_the_checker_s_business(tmp_path: Path) -> None:
    file = save_model(chain_model(["Exp"], (2, 3)), tmp_path / "net.onnx")
    proto = load_onnx(file, {}).proto
    assert not proto.graph.output[0].type.tensor_type.HasField("shape")


def test_sequence_input_is_refused_by_name_even_with_a_shape_given(tmp_path: Path) -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    value = helper.make_value_info("many", helper.make_sequence_type_proto(element))
    node = helper.make_node("ConcatFromSequence", ["many"], ["y"], axis=0)
    model = make_model([node], {}, ["y"])
    model.graph.input.append(value)
    file = save_model(model, tmp_path / "sequence.onnx")
    for shapes in ({}, {"many": (4,)}):
        with pytest.raises(ModelImportError, match=r"input many: only tensor inputs.*sequence"):
            load_onnx(file, shapes)


def test_newer_ir_version_of_a_model_that_onnx_runtime_reads_is_lowered(tmp_path: Path) -> None:
    model = chain_model(["Exp"])
    model.ir_version = 99
    loaded = load_onnx(save_model(model, tmp_path / "new.onnx"), {}).proto
    assert 13 <= loaded.ir_version < 99
    ort.InferenceSession(loaded.SerializeToString())


def test_model_of_defaults_is_read_in_an_opset_that_onnx_runtime_computes(tmp_path: Path) -> None:
    model = chain_model(["Swish", "Celu"], (2, 8), opset=onnx.defs.onnx_opset_version())
    file = save_model(model, tmp_path / "new.onnx")
    for loaded in (load_onnx(file, {}), load_open_onnx(file)):
        assert [entry.version for entry in loaded.proto.opset_import] == [24]
        assert "tuned as one of opset 24" in loaded.caveat
    x = np.linspace(-4, 4, 16, dtype=np.float32).reshape(2, 8)
    swish = x / (1 + np.exp(-x.astype(np.float64)))
    session = ort.InferenceSession(loaded.proto.SerializeToString())
    expected = np.maximum(0, swish) + np.minimum(0, np.exp(swish) - 1)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_operator_of_no_older_opset_is_named_with_its_version(tmp_path: Path) -> None:
    node = helper.make_node("SwiGLU", ["x", "z"], ["y"], name="gate")
    model = make_model([node], dict.fromkeys("xz", (2, 8)), ["y"], opset=28, ir_version=13)
    words = r"does not compute SwiGLU of version 28, the operator of node 'gate'"
    with pytest.raises(ModelImportError, match=words) as refused:
        load_onnx(save_model(model, tmp_path / "new.onnx"), {})
    assert "simpler operators" in refused.value.hint


def test_operator_onnx_has_given_up_is_left_to_onnx_runtime(tmp_path: Path) -> None:
    weights = {"scale": np.ones(2, np.float32), "shift": np.zeros(2, np.float32)}
    node = helper.make_node("GroupNormalization", ["x", "scale", "shift"], ["y"], num_groups=2)
    shape = (1, 4, 2)
    model = make_model([node], {"x": shape}, {"y": shape}, weights=weights, opset=18)
    with pytest.raises(onnx.checker.ValidationError, match="deprecated"):
        onnx.checker.check_model(model)
    loaded = load_onnx(save_model(model, tmp_path / "old.onnx"), {}).proto
    ort.InferenceSession(loaded.SerializeToString())


def test_nodes_in_any_order_are_put_behind_what_they_read(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["b", "x"], ["y"], "last"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Neg", ["x"], ["a"], "first"),
    ]
    file = tmp_path / "unsorted.onnx"
    file.write_bytes(make_model(nodes, {"x": (4,)}, ["y"]).SerializeToString())
    proto = read_onnx(file)
    assert [node.name for node in proto.graph.node] == ["first", "second", "last"]


def test_nodes_in_a_circle_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
    ]
    file = tmp_path / "circle.onnx"
    file.write_bytes(make_model(nodes, {"x": (4,)}, ["b"]).SerializeToString())
    with pytest.raises(ModelImportError, match="not a valid model"):
        read_onnx(file)
