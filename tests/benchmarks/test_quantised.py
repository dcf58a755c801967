"""Networks as quantisers write them: what is written, what is compared, what the tables say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import quantised
from benchmarks.test_tables import ENVIRONMENT
from comparison.prepared import FACTS, INPUTS, MODEL, REFERENCE
from comparison.quantised_tables import every_network, means
from networks.network import sample_inputs
from networks.registry import NETWORKS
from onnx import TensorProto, helper, numpy_helper
from runtimes.registry import BASELINE

_NAME = "ds_cnn"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Return the folder of a network whose model is a convolution and a product."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 1, 3, 3), np.float32),
        "m": rng.standard_normal((4 * 47 * 8, 12), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["mfcc", "w"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "little",
        [helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, [1, 1, 49, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    folder = tmp_path / _NAME
    folder.mkdir()
    onnx.save(model, folder / MODEL)
    np.savez(folder / INPUTS, **sample_inputs(NETWORKS[_NAME], seed=0))
    np.savez(folder / REFERENCE, np.zeros((1, 12)))
    facts = {"sha256": "of the model", "multiply_adds": 7, "operators": {}, "nodes": 3}
    (folder / FACTS).write_text(json.dumps(facts))
    return folder


@pytest.mark.parametrize(
    ("form", "operators", "activations"),
    [
        ("s8", {"QuantizeLinear", "DequantizeLinear", "Conv"}, TensorProto.INT8),
        ("u8", {"QuantizeLinear", "DequantizeLinear", "Conv"}, TensorProto.UINT8),
        ("qoperator", {"QLinearConv", "QLinearMatMul"}, TensorProto.INT8),
        ("dynamic", {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}, None),
        ("float16", {"Cast", "Conv"}, None),
    ],
)
def test_form_has_its_operators_and_types(
    prepared: Path, form: str, operators: set[str], activations: int | None
) -> None:
    from comparison.quantising import write_form

    write_form(_NAME, prepared / form)
    model = onnx.load(prepared / form / MODEL)
    assert operators <= {node.op_type for node in model.graph.node}
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    of_inputs = {types[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"}
    assert of_inputs == ({activations} if activations else set())
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    facts = json.loads((prepared / form / FACTS).read_text())
    assert facts["multiply_adds"] == 7 and facts["sha256"] != "of the model"
    least, most = facts["calibration"]["mfcc"]
    assert -6 < least < -2 and 2 < most < 6
    assert (prepared / form / INPUTS).exists() and (prepared / form / REFERENCE).exists()


def test_form_is_written_again_for_another_model_alone(prepared: Path) -> None:
    from comparison.quantising import write_form

    folder = prepared / "float16"
    write_form(_NAME, folder)
    (folder / MODEL).write_bytes(b"kept")
    write_form(_NAME, folder)
    assert (folder / MODEL).read_bytes() == b"kept"
    facts = json.loads((prepared / FACTS).read_text())
    (prepared / FACTS).write_text(json.dumps({**facts, "sha256": "of another"}))
    write_form(_NAME, folder)
    assert (folder / MODEL).read_bytes() != b"kept"


def test_every_form_but_float32_is_written_and_compared_with_its_float32_file() -> None:
    from comparison.quantising import FORMS

    assert {*quantised.PEERS_OF_FORM} == {*FORMS, "float32"}
    for form, peers in quantised.PEERS_OF_FORM.items():
        assert next(iter(peers)) == BASELINE and not peers[BASELINE].model
        files = {peer.model for peer in peers.values()} - {""}
        assert files == ({"u8/model.onnx"} if form == "float32" else {"../model.onnx"})


def _record(network: str, form: str, **ms: float) -> dict[str, Any]:
    """Return the record of a network, milliseconds by the name of the runtime."""
    peers = {
        name.replace("_", "-"): {
            "title": name,
            "precision": "fp32",
            "median_us": [one * 1e3] * 7,
            "others": [0.0] * 7,
            "errors": {"largest": 1e-3, "cosine": 0.9995},
            "facts": {},
        }
        for name, one in ms.items()
    }
    return {
        "network": network,
        "threads": 1,
        "form": form,
        "settings": {"rounds": 7, "turn_s": 0.5, "budget_s": 60.0},
        "peers": peers,
    }


def _document(*records: dict[str, Any]) -> dict[str, Any]:
    steps = {f"{one['network']}, {one['form']}": one for one in records}
    return {"environment": ENVIRONMENT, "date": "2026-11-29", "steps": steps}


def test_forms_have_means_of_the_networks_all_runtimes_computed() -> None:
    document = _document(
        _record("resnet18", "s8", ort=16.0, ort_float32=16.0, engine=4.0, openvino_f32=4.0),
        _record("bert6", "s8", ort=16.0, ort_float32=32.0, engine=16.0, openvino_f32=4.0),
        _record("vit_small", "s8", ort=16.0, engine=1.0),
        _record("resnet18", "dynamic", ort=16.0, engine=8.0),
    )
    table = means(document, "quantised.json")
    assert "| s8 | 2 of 3 | 2.00 | 1.00 | 4.00 | 0.50 | 0.71 | 0.99950 |\n" in table
    assert "| dynamic | 1 | 2.00 | 2.00 | - | - | - | 0.99950 |\n" in table
    assert "2026-11-29, on 2 cores of Test CPU" in table


def test_page_has_a_table_of_speeds_and_one_of_cosines_for_each_form() -> None:
    failed = {**_record("resnet50", "s8"), "settings": {}, "failure": "no `memory`"}
    page = every_network(
        _document(_record("resnet18", "s8", ort=16.0, engine=4.0), failed), "quantised.json"
    )
    assert "| ResNet-18 | 16.00 | 4.00 (4.00 to 4.00) |" in page
    assert "| ResNet-18 | 0.99950 | 0.99950 |" in page
    assert "- network: `no 'memory'`: ResNet-50 (1)" in page


def test_unknown_form_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from comparison.experiment import run_experiment

    with pytest.raises(SystemExit):
        run_experiment(quantised.EXPERIMENT, [_NAME, "--forms", "s4"])
    assert "got s4, expected s8, u8," in capsys.readouterr().err
