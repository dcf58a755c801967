"""Whole public networks: against NumPy, and against OpenCV's reader where that is installed.

`pip install 'opencv-python-headless<5'` for the second (from 5 on it reads no Caffe models).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from support.caffe.model_files import Array, write_net
from support.caffe.networks import NETWORKS, KnownNet

from aoe.entry.caffe.files import load_caffe
from aoe.entry.protocol import ModelSource

LARGE = {"googlenet", "mobilenet_ssd"}
"""Their layers are among those of `layers/test_layers.py`."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
        for name in sorted(NETWORKS)
    ]
)
def known(request: pytest.FixtureRequest) -> KnownNet:
    """Return one network after the other."""
    return NETWORKS[request.param]()


def _computed(known: KnownNet, folder: Path) -> dict[str, Array]:
    text, weights = write_net(known.net, folder)
    model = load_caffe(ModelSource(path=text, weight=weights))
    assert model.caveat == ""
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(known.feed)), strict=True))


def test_network_computes_what_the_definitions_of_its_layers_say(
    known: KnownNet, tmp_path: Path
) -> None:
    found = _computed(known, tmp_path)
    assert set(found) == set(known.results)
    for name, wanted in known.results.items():
        spread = np.abs(wanted).max()
        assert wanted.std() > 1e-6 * spread  # a result that is the same everywhere shows nothing
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=2e-5 * spread)


def test_network_computes_what_opencv_reads_from_the_same_files(
    known: KnownNet, tmp_path: Path
) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        pytest.skip(f"OpenCV {cv2.__version__} does not read Caffe models")
    found = _computed(known, tmp_path)
    net = cv2.dnn.readNetFromCaffe(str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"))
    net.setInput(known.feed["data"], "data")
    names = [*found]
    for name, wanted in zip(names, net.forward(names), strict=True):
        spread = np.abs(wanted).max()
        ours = found[name]
        if name == "detection_out":  # OpenCV has the surest first, whatever its label
            ours, wanted = _surest_first(ours), _surest_first(wanted)
        np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=2e-5 * spread)


def _surest_first(rows: Array) -> Array:
    return rows[0, 0][np.argsort(-rows[0, 0, :, 2])]


def test_layer_gives_its_name_to_the_node_that_computes(tmp_path: Path) -> None:
    """A fully connected layer behind a convolution is a Reshape and a Gemm."""
    known = NETWORKS["alexnet"]()
    text, weights = write_net(known.net, tmp_path)
    model = load_caffe(ModelSource(path=text, weight=weights)).proto
    nodes = {node.name: node.op_type for node in model.graph.node}
    connected = [layer.name for layer in known.net.layers if layer.type == "InnerProduct"]
    assert connected and {nodes[name] for name in connected} == {"Gemm"}
