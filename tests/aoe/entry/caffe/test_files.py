"""The Caffe entry: two files become a model, and what a refusal says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from support.caffe.model_files import (
    Array,
    TestLayer,
    TestNet,
    blob_bytes,
    caffemodel,
    chunk,
    prototxt,
    stored,
    varint,
    write_net,
)
from support.engine.models import chain_model

from aoe.entry.caffe.files import load_caffe
from aoe.entry.protocol import ImportedModel, ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import ModelImportError, ModelNotFoundError, OptionError
from aoe.ort.inputs import parse_inputs

_W = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2) / 8
_B = np.asarray([0.5, -1], np.float32)


def small_net(batch: int = 1) -> TestNet:
    """Return convolution, ReLU in place, pooling."""
    layers = (
        TestLayer(
            type="Convolution",
            name="conv1",
            bottoms=("data",),
            tops=("conv1",),
            param_name="convolution_param",
            param={"num_output": 2, "kernel_size": 2},
            blobs=(_W, _B),
        ),
        TestLayer(type="ReLU", name="relu1", bottoms=("conv1",), tops=("conv1",)),
        TestLayer(
            type="Pooling",
            name="pool1",
            bottoms=("conv1",),
            tops=("pool1",),
            param_name="pooling_param",
            param={"kernel_size": 2, "stride": 2},
        ),
    )
    return TestNet(inputs={"data": (batch, 3, 6, 6)}, layers=layers)


def _load(folder: Path, text: str, weights: bytes | None = b"", **shapes: tuple[int, ...]):  # type: ignore[no-untyped-def]
    model = folder / "net.prototxt"
    model.write_text(text)
    weight = folder / "net.caffemodel"
    if weights is not None:
        weight.write_bytes(weights or caffemodel(small_net()))
    source = ModelSource(path=model, weight=None if weights is None else weight, shapes=shapes)
    return load_caffe(source)


def _shapes(model: ImportedModel) -> dict[str, list[int]]:
    values = (*model.proto.graph.input, *model.proto.graph.output)
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def test_caffe_is_nought_and_reads_two_files(tmp_path: Path) -> None:
    text, weights = write_net(small_net(), tmp_path)
    source = ModelSource(path=text, weight=weights)
    model = find_entry(0, source).load(source)
    assert model.name == "net"
    assert model.path == text
    assert [node.name for node in model.proto.graph.node] == ["conv1", "relu1", "pool1"]
    assert _shapes(model) == {"data": [1, 3, 6, 6], "pool1": [1, 2, 3, 3]}
    assert model.caveat == ""


def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    text = prototxt(small_net())
    first = _load(tmp_path, text)
    assert _load(tmp_path, text).sha256 == first.sha256
    assert _load(tmp_path, f"# another comment\n{text}").sha256 == first.sha256
    assert _load(tmp_path, text, data=(2, 3, 6, 6)).sha256 != first.sha256
    assert _load(tmp_path, text, stored({"conv1": (_W, _B * 2)})).sha256 != first.sha256


@pytest.mark.parametrize("old_layers", [False, True])
@pytest.mark.parametrize("old_shapes", [False, True])
@pytest.mark.parametrize("doubles", [False, True])
def test_every_form_of_weights_is_read(
    tmp_path: Path, old_layers: bool, old_shapes: bool, doubles: bool
) -> None:
    weights = caffemodel(small_net(), old_layers=old_layers, old_shapes=old_shapes, doubles=doubles)
    model = _load(tmp_path, prototxt(small_net()), weights)
    found = {t.name: numpy_helper.to_array(t) for t in model.proto.graph.initializer}
    assert np.array_equal(found["conv1/weight"], _W)
    assert np.array_equal(found["conv1/bias"], _B)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


def test_weights_in_several_chunks_are_one_array(tmp_path: Path) -> None:
    values = _W.ravel().astype("<f4").tobytes()
    shape = chunk(7, chunk(1, b"".join(varint(extent) for extent in _W.shape)))
    blob = chunk(5, values[:40]) + shape + chunk(5, values[40:])
    layer = chunk(1, b"conv1") + chunk(7, blob) + chunk(7, blob_bytes(_B))
    model = _load(tmp_path, prototxt(small_net()), chunk(100, layer))
    assert np.array_equal(numpy_helper.to_array(model.proto.graph.initializer[0]), _W)


def test_last_weights_of_a_name_are_those_caffe_ends_with(tmp_path: Path) -> None:
    weights = stored({"conv1": (_W * 2, _B)}) + stored({"conv1": (_W, _B)})
    model = _load(tmp_path, prototxt(small_net()), weights)
    assert np.array_equal(numpy_helper.to_array(model.proto.graph.initializer[0]), _W)


# ---- forms of the prototxt ----

_OLD = """
name: 'old'
input: "data" input_dim: 1 input_dim: 3 input_dim: 6 input_dim: 6
layers {
  name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
  blobs_lr: 1 weight_decay: 1
  convolution_param { num_output: 2 kernel_size: 2 weight_filler { type: "gaussian" } }
}
layers { name: "relu1" type: RELU bottom: "conv1" top: "conv1" }
layers <
  name: "pool1"; type: POOLING, bottom: "conv1" top: "pool1"
  pooling_param: { pool: 0 kernel_size: 0x2 stride: 02 }
>
"""


def test_old_layers_compute_what_new_ones_do(tmp_path: Path) -> None:
    new = _load(tmp_path, prototxt(small_net()))
    assert _load(tmp_path, _OLD, caffemodel(small_net(), old_layers=True)).sha256 == new.sha256


def _conv(*, input_lines: str, more: str = "", rest: str = "") -> str:
    return f"""{input_lines}
layer {{
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1" {more}
  convolution_param {{ num_output: 2 kernel_size: 2 }}
}}
{rest}"""


_SHAPE = "{ dim: 1 dim: 3 dim: 6 dim: 6 }"
_DATA = f'input: "data" input_shape {_SHAPE}'


@pytest.mark.parametrize(
    "lines",
    [
        _DATA,
        'input: "data" input_dim: [1, 3, 6, 6]',
        f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {_SHAPE} }} }}',
        """layer { name: "data" type: "MemoryData" top: "data" top: "label"
        memory_data_param { batch_size: 1 channels: 3 height: 6 width: 6 } }""",
        f"""layer {{ name: "data" type: "DummyData" top: "data"
        dummy_data_param {{ shape {_SHAPE} }} }}""",
        """layer { name: "data" type: "DummyData" top: "data"
        dummy_data_param { num: 1 channels: 3 height: 6 width: 6 data_filler { value: 1 } } }""",
    ],
)
def test_inputs_are_shaped_in_every_way_there_is(tmp_path: Path, lines: str) -> None:
    model = _load(tmp_path, _conv(input_lines=lines))
    assert _shapes(model) == {"data": [1, 3, 6, 6], "conv1": [1, 2, 5, 5]}


def test_open_input_is_named_with_the_option_that_closes_it(tmp_path: Path) -> None:
    data = (
        'layer { name: "d" type: "Data" top: "data" top: "label" '
        "transform_param { crop_size: 6 } data_param { batch_size: 4 } }"
    )
    text = _conv(input_lines=data)
    with pytest.raises(ModelImportError, match=r"line 1, layer d \(Data\): the shape of .* data"):
        _load(tmp_path, text)
    try:
        _load(tmp_path, text)
    except ModelImportError as error:
        assert error.hint == '--input_shape="data:4,3,6,6"'
    model = _load(tmp_path, text, data=(4, 3, 6, 6))
    assert _shapes(model) == {"data": [4, 3, 6, 6], "conv1": [4, 2, 5, 5]}


def test_shape_left_open_is_that_of_the_array_the_model_is_run_on(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 6, 6), np.float32))
    (tmp_path / "w").write_bytes(caffemodel(small_net()))
    (tmp_path / "p").write_text(_conv(input_lines='input: "data"'))
    (given,) = parse_inputs([f"data:{tmp_path / 'x.npy'}"])
    source = ModelSource(path=tmp_path / "p", weight=tmp_path / "w", given=given)
    assert _shapes(load_caffe(source))["data"] == [5, 3, 6, 6]


def test_input_shape_overrides_batch_and_size(tmp_path: Path) -> None:
    model = _load(tmp_path, prototxt(small_net()), data=(7, 3, 9, 4))
    assert _shapes(model) == {"data": [7, 3, 9, 4], "pool1": [7, 2, 4, 2]}


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("data", (1, 3, 6), r"another rank \(got 3 extents, expected 4: 1,3,6,6"),
        ("other", (1,), r"no such input \(got other, expected \['data'\]"),
        ("data", (1, 4, 6, 6), r"conv1 .*shape of weights 0 \(got \[2, 3, 2, 2\]"),
        ("data", (1, 3, 0, 6), "an extent of 0"),
        ("data", (1, 3, 1, 1), r"nothing would come out \(got \[1, 2, 0, 0\]"),
        ("data", (10**9, 3, 10**9, 6), "more elements than a blob may have"),
    ],
)
def test_input_shape_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ModelImportError, match=words):
        _load(tmp_path, prototxt(small_net()), **{name: shape})


_RULES = [
    ("include { phase: TRAIN }", False),
    ("include { phase: TEST }", True),
    ("exclude { phase: TEST }", False),
    ("exclude { phase: TRAIN }", True),
    ("include { phase: TRAIN } include { phase: TEST }", True),
    ("include { phase: TEST not_stage: 'deploy' }", False),
    ("include { stage: 'deploy' }", True),
    ("include { stage: 'deploy' stage: 'more' }", False),
    ("include { min_level: 1 }", True),
    ("include { min_level: 3 }", False),
    ("exclude { max_level: 2 phase: 1 }", False),
]


@pytest.mark.parametrize(("rule", "stays"), _RULES)
def test_layers_of_another_phase_stage_or_level_are_left_out(
    tmp_path: Path, rule: str, stays: bool
) -> None:
    head = f'state {{ level: 2 stage: "deploy" }} {_DATA}'
    relu = f'layer {{ name: "r" type: "ReLU" bottom: "conv1" top: "r" {rule} }}'
    model = _load(tmp_path, _conv(input_lines=head, rest=relu))
    assert len(model.proto.graph.node) == 1 + stays


def test_layers_for_training_are_left_out_with_a_word(tmp_path: Path) -> None:
    rest = """
    layer { name: "l" type: "Input" top: "label" }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv1" bottom: "label" top: "loss" }
    layer { name: "acc" type: "Accuracy" bottom: "conv1" bottom: "label" include { phase: TEST } }
    layer { name: "s" type: "Silence" bottom: "label" }
    """
    model = _load(tmp_path, _conv(input_lines=_DATA, rest=rest))
    assert [value.name for value in model.proto.graph.input] == ["data"]
    assert [value.name for value in model.proto.graph.output] == ["conv1"]
    assert "left out: Accuracy, Silence, SoftmaxWithLoss" in model.caveat


def test_weights_of_layers_there_are_not_are_said(tmp_path: Path) -> None:
    weights = stored({"conv1": (_W, _B), "fc8": (_B,), "fc9": (_B,)})
    model = _load(tmp_path, prototxt(small_net()), weights)
    assert "has weights for 2 layers the prototxt does not have, fc8 for one" in model.caveat


def test_in_place_tops_keep_the_name_of_the_last(tmp_path: Path) -> None:
    rest = """
    layer { name: "a" type: "ReLU" bottom: "conv1" top: "conv1" }
    layer { name: "b" type: "AbsVal" bottom: "conv1" top: "conv1" }
    layer { name: "c" type: "Dropout" bottom: "conv1" top: "conv1" }
    """
    model = _load(tmp_path, _conv(input_lines=_DATA, rest=rest))
    assert [value.name for value in model.proto.graph.output] == ["conv1"]
    assert [node.op_type for node in model.proto.graph.node] == [
        *("Conv", "Relu", "Abs", "Identity")
    ]


def test_layer_in_place_of_an_input_leaves_its_name_to_the_input(tmp_path: Path) -> None:
    text = f'{_DATA} layer {{ name: "r" type: "ReLU" bottom: "data" top: "data" }}'
    model = _load(tmp_path, text, None)
    assert _shapes(model) == {"data": [1, 3, 6, 6], "data/r": [1, 3, 6, 6]}


def test_split_gives_every_reader_its_blob(tmp_path: Path) -> None:
    rest = """
    layer { name: "s" type: "Split" bottom: "conv1" top: "one" top: "two" }
    layer { name: "e" type: "Eltwise" bottom: "one" bottom: "two" top: "sum" }
    """
    model = _load(tmp_path, _conv(input_lines=_DATA, rest=rest))
    assert [value.name for value in model.proto.graph.output] == ["sum"]
    onnx.checker.check_model(model.proto, full_check=True)


@pytest.mark.parametrize(
    ("entry", "wanted", "name"),
    [
        ("scaled:0", np.float32([7, 8, 9, 10]), "y/scaled"),
        ("cut:1", np.float32([9, 10]), "second"),
        ("up:0", np.float32([7, 8, 9, 10]) ** 2, "y/up"),
        ("y", np.float32([49, 64, 81, 100]), "y"),
    ],
)
def test_layer_and_number_are_its_top(tmp_path: Path, entry: str, wanted: Array, name: str) -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 } } }
    layer { name: "scaled" type: "Scale" bottom: "x" top: "y" scale_param { bias_term: true } }
    layer { name: "cut" type: "Slice" bottom: "y" top: "first" top: "second" }
    layer { name: "up" type: "Power" bottom: "y" top: "y" power_param { power: 2 } }
    layer { name: "abs" type: "AbsVal" bottom: "y" top: "y" }
    """
    model, weight = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    model.write_text(text)
    weight.write_bytes(stored({"scaled": (np.float32([1] * 4), np.float32([6, 6, 6, 6]))}))
    source = ModelSource(path=model, weight=weight, output_nodes=(entry,))
    proto = load_caffe(source).proto
    assert [value.name for value in proto.graph.output] == [name]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.float32([[1, 2, 3, 4]])})
    np.testing.assert_allclose(found.ravel(), wanted)
    with pytest.raises(ModelImportError, match=r"layer cut has no such top .*expected cut:0 or"):
        load_caffe(replace(source, output_nodes=("cut:2",)))


# ---- what is refused, with its place ----

_RELU = 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }'
_CONV = "convolution_param { num_output: 2 kernel_size: 2"


def _layer(body: str) -> str:
    return f'{_DATA}\nlayer {{ name: "x"\n{body} }}'


_REFUSED = [
    ("", "no layer in it"),
    ("net: 'train.prototxt' base_lr: 0.1", "a solver, not a network"),
    (_DATA, "no layer in it"),
    (f"{_DATA} layer {{", r"line 1: not a prototxt: .*\"}\" is missing for line 1"),
    ("layer { name: 'a }", "line 1: not a prototxt"),
    ("layer { name }", 'line 1: not a prototxt: Expected ":"'),
    ("hello, world", "line 1: not a prototxt"),
    ("{}", "line 1: not a prototxt"),
    ("layer: 3", r"layer: not a message \(got 3"),
    ('layer { name: "a" }', "line 1, layer a: a layer without a type"),
    (
        "layer { name: 3 type: 'ReLU' }",
        r"name: not such a value \(got 3, expected a text in quotes",
    ),
    (f"{_RELU} layers {{ type: RELU }}", r"new form \(layer\) and of the old one"),
    ("layers { layer { name: 'c' type: 'conv' } }", "oldest form"),
    ("input: 'data' input_dim: 1 " + _RELU, r"four extents for each input \(got 1 extents"),
    (_DATA + " input_shape { dim: 1 } " + _RELU, r"got 2 shapes, expected 1"),
    (_layer('type: "ReLU" bottom: "gone" top: "y"'), r"x \(ReLU\): no layer .* \(got gone"),
    (_layer('type: "ReLU" bottom: "data"'), r"number of tops \(got 0, expected 1"),
    (_layer('type: "ReLU" top: "y"'), r"number of bottoms \(got 0, expected 1"),
    (_layer('type: "Eltwise" bottom: "data" top: "y"'), r"got 1, expected 2 or more"),
    (_layer('type: "Split" bottom: "data" top: "y" top: "y"'), r"made twice \(got y"),
    (_RELU.join([_DATA, ""]) + _RELU, r"made twice \(got r"),
    (
        _layer('type: "ROIPooling" bottom: "data" top: "y" } layer { type: "Proposal"'),
        r"line 2, layer x \(ROIPooling\): layers of this type .* converted, nor can Proposal",
    ),
    (_layer('type: "ReLU" bottom: "data" top: ""'), r"x \(ReLU\): a blob without a name"),
    (_layer('type: "relu" bottom: "data" top: "y"'), r"\(relu\): layers of this type cannot"),
    (
        _layer(
            'type: "Pooling" bottom: "data" top: "y" pooling_param { kernel: 2 kernel_size: 2 }'
        ),
        r"x \(Pooling\): pooling_param.kernel is not known.*got line 3",
    ),
    (
        _layer('type: "Pooling" bottom: "data" top: "y" pooling_param { kernel_size: -2 }'),
        r"line 3: kernel_size: not such a value \(got -2, expected an integer from 0 to",
    ),
    (
        _layer('type: "Pooling" bottom: "data" top: "y" pooling_param { kernel_size: 2.5 }'),
        r"got 2.5, expected an integer\)",
    ),
    (
        _layer('type: "Pooling" bottom: "data" top: "y" pooling_param { pool: MIN }'),
        "expected one of MAX, AVE, STOCHASTIC",
    ),
    (
        _layer('type: "Pooling" bottom: "data" top: "y" pooling_param { pool: STOCHASTIC }'),
        "stochastic pooling is for training",
    ),
    (
        _layer('type: "Pooling" bottom: "data" top: "y" pooling_param { kernel_size: 9 }'),
        "windows outside the image",
    ),
    (
        _layer(
            'type: "Pooling" bottom: "data" top: "y" '
            "pooling_param { kernel_size: 2 kernel_size: 3 }"
        ),
        "kernel_size: given more than once",
    ),
    (
        _layer('type: "ReLU" bottom: "data" top: "y" relu_param {} relu_param {}'),
        "relu_param: given more than once",
    ),
    (
        _layer('type: "ReLU" bottom: "data" top: "y" relu_param { negative_slope: nan }'),
        "expected a finite number of 32 bits",
    ),
    (
        _layer('type: "Softmax" bottom: "data" top: "y" softmax_param { axis: 4 }'),
        r"no such axis \(got 4, expected -4 to 3",
    ),
    (
        _layer('type: "LRN" bottom: "data" top: "y" lrn_param { local_size: 4 }'),
        r"local_size \(got 4, expected an odd number",
    ),
    (
        _layer('type: "Tile" bottom: "data" top: "y" tile_param { tiles: 2000000000 }'),
        "more elements than a blob may have",
    ),
    (
        _layer(
            'type: "Reshape" bottom: "data" top: "y" reshape_param { shape { dim: 7 dim: -1 } }'
        ),
        r"another number of elements \(got \[7, -1\], expected 108",
    ),
    (
        _layer(
            'type: "PriorBox" bottom: "data" bottom: "data" top: "y" prior_box_param '
            "{ min_size: 5 " + "aspect_ratio: 2 aspect_ratio: 3 " * 3 + "min_size: -1 }"
        ),
        "min_size",
    ),
    (
        _layer('type: "DetectionOutput" bottom: "data" top: "y"'),
        r"number of bottoms \(got 1, expected 3",
    ),
    (
        _layer('type: "Slice" bottom: "data" top: "a" top: "b" slice_param { slice_point: 9 }'),
        r"slice_point \(got \[9\], expected 1 growing, below 3",
    ),
]


@pytest.mark.parametrize(("text", "words"), _REFUSED, ids=range(len(_REFUSED)))
def test_prototxt_that_cannot_be_converted_is_refused_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ModelImportError, match=words) as caught:
        _load(tmp_path, text)
    assert str(caught.value).startswith(f"--model={tmp_path}/net.prototxt")
    assert "\n" not in caught.value.headline


def test_layer_with_weights_needs_the_second_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--weight: a Caffe model .* layer conv1") as caught:
        _load(tmp_path, prototxt(small_net()), None)
    assert caught.value.hint == "--weight=FILE.caffemodel"


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (stored({"fc": (_B,)}), r"conv1 \(Convolution\): no weights for it .*got those of fc"),
        (stored({"conv1": (_W,)}), r"conv1 .*number of its weights \(got 1, expected 2"),
        (stored({"conv1": (_W, _B, _B)}), r"number of its weights \(got 3, expected 2"),
        (
            stored({"conv1": (_W[:1], _B)}),
            r"weights 0 \(got \[1, 3, 2, 2\], expected \[2, 3, 2, 2\]",
        ),
        (stored({"conv1": (_W.T, _B)}), r"weights 0 \(got \[2, 2, 3, 2\]"),
        (caffemodel(small_net())[:-20], "not a caffemodel, or a truncated one"),
        (b"", "not a caffemodel: no layer in it"),
        (b"\x89HDF\r\n\x1a\n" + bytes(9), "weights in HDF5 cannot be read"),
        (b"layer { name: 'a' type: 'ReLU' }", "text, not a caffemodel"),
        (chain_model(["Exp"]).SerializeToString(), "an ONNX model"),
        (b"\xff" * 99, "not a caffemodel, or a truncated one"),
        (chunk(2, chunk(1, b"v0")), "oldest form"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, weights: bytes, words: str) -> None:
    file = tmp_path / "w.caffemodel"
    file.write_bytes(weights)
    model = tmp_path / "net.prototxt"
    model.write_text(prototxt(small_net()))
    with pytest.raises(ModelImportError, match=words):
        load_caffe(ModelSource(path=model, weight=file))


@pytest.mark.parametrize(
    "blob",
    [
        chunk(5, bytes(8)) + chunk(7, chunk(1, varint(10**9) * 3)),
        chunk(5, bytes(8)) + chunk(7, chunk(1, varint(2**64 - 1) + varint(2**64 - 2))),
        chunk(5, bytes(8)) + chunk(7, chunk(1, varint(3))),
        chunk(7, chunk(1, varint(2))),
        b"\x08" + varint(10**9) + chunk(5, bytes(8)),
    ],
)
def test_blob_with_another_number_of_values_than_it_says_is_refused(
    tmp_path: Path, blob: bytes
) -> None:
    weights = chunk(100, chunk(1, b"conv1") + chunk(7, blob))
    with pytest.raises(ModelImportError, match=r"conv1, blob 0: another number of values"):
        _load(tmp_path, prototxt(small_net()), weights)


def test_blob_that_ends_within_a_number_is_refused(tmp_path: Path) -> None:
    weights = chunk(100, chunk(1, b"conv1") + chunk(7, chunk(5, bytes(7))))
    with pytest.raises(ModelImportError, match="ends within a number"):
        _load(tmp_path, prototxt(small_net()), weights)


def test_two_layers_of_a_name_are_refused_where_weights_go_by_it(tmp_path: Path) -> None:
    again = _conv(input_lines="").replace('top: "conv1"', 'top: "again"')
    with pytest.raises(ModelImportError, match="two layers of this name"):
        _load(tmp_path, _conv(input_lines=_DATA, rest=again))


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        (caffemodel(small_net()), "a caffemodel, not a prototxt", "--weight for the caffemodel"),
        (chain_model(["Exp"]).SerializeToString(), "an ONNX model", "--framework=5"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "not a prototxt, which is text", ""),
        (b"caf\xe9", "not a prototxt, which is text in UTF-8", ""),
    ],
)
def test_other_file_in_place_of_the_prototxt_is_called_what_it_is(
    tmp_path: Path, content: bytes, words: str, hint: str
) -> None:
    file = tmp_path / "m"
    file.write_bytes(content)
    with pytest.raises(ModelImportError, match=re.escape(words)) as caught:
        load_caffe(ModelSource(path=file))
    assert hint in caught.value.hint


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    text, weights = write_net(small_net(), tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"--model=.*gone: no such file"):
        load_caffe(ModelSource(path=tmp_path / "gone", weight=weights))
    with pytest.raises(ModelNotFoundError, match=r"--weight=.*gone: no such file"):
        load_caffe(ModelSource(path=text, weight=tmp_path / "gone"))
    with pytest.raises(ModelImportError, match="is a directory"):
        load_caffe(ModelSource(path=tmp_path, weight=weights))


def test_files_beyond_protobuf_s_limit_are_refused_unread(tmp_path: Path) -> None:
    text, weights = write_net(small_net(), tmp_path)
    with weights.open("r+b") as file:
        file.truncate(2**31)  # sparse
    with pytest.raises(ModelImportError, match=r"too large \(got 2147483648 bytes"):
        load_caffe(ModelSource(path=text, weight=weights))
    with text.open("r+b") as file:
        file.truncate(2**30)
    with pytest.raises(ModelImportError, match=r"--model=.*too large"):
        load_caffe(ModelSource(path=text, weight=weights))


def test_messages_nested_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="deeper than 100"):
        _load(tmp_path, "layer { " * 100_000)
