"""Reading dumps of `aoe.torch.set_aoe`; none of it needs PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.engine.cpu import open_session
from support.engine.models import chain_model, if_net, matmul_net, save_model

from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.entry.torch_dump import SCHEMA, load_torch_dump
from aoe.errors import ModelImportError, ModelNotFoundError
from aoe.ort.sessions import run_session, session_options


def _dump(directory: Path, *models: onnx.ModelProto, **changes: Any) -> Path:
    directory.mkdir(exist_ok=True)
    graphs = []
    for number, model in enumerate(models):
        file = save_model(model, directory / f"net_{number}.onnx", external_data=number == 0)
        graphs.append({"file": file.name, "module": "Net", "call": "", "count": 1, "sha256": ""})
    document = {"schema": SCHEMA, "graphs": graphs, "operators": []}
    (directory / "dump.json").write_text(json.dumps(document | changes))
    return directory


def test_graphs_become_unconnected_parts_of_one_model(tmp_path: Path) -> None:
    dump = _dump(tmp_path / "dump", matmul_net(seed=1), matmul_net(seed=2), if_net())
    model = load_torch_dump(dump, {})
    assert model.name == "dump" and len(model.sha256) == 64
    session = open_session(
        model.proto.SerializeToString(), session_options(threads=1, optimize=True)
    )
    x = np.ones((4, 16), np.float32)
    feed = {"g0/x": x, "g1/x": 2 * x, "g2/x": np.ones((16, 16), np.float32)}
    results = run_session(session, feed | {"g2/flag": np.array(True)})
    for number, seed in enumerate((1, 2)):
        alone = open_session(
            matmul_net(seed=seed).SerializeToString(), session_options(threads=1, optimize=True)
        )
        expected = run_session(alone, {"x": (number + 1) * x})[0]
        np.testing.assert_allclose(results[number], expected, rtol=1e-5)


def test_the_registry_reads_dumps(tmp_path: Path) -> None:
    source = ModelSource(path=_dump(tmp_path, chain_model(["Relu"])))
    model = find_entry(None, source).load(source)
    assert model.sha256 == load_torch_dump(tmp_path, {}).sha256


def test_a_missing_dump_says_how_to_get_one(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "no such directory"), (tmp_path, "has no dump.json")):
        with pytest.raises(ModelNotFoundError, match=message) as caught:
            load_torch_dump(path, {})
        assert "set_aoe" in str(caught.value.hint)


def test_a_file_is_no_dump(tmp_path: Path) -> None:
    save_model(chain_model(["Relu"]), tmp_path / "net.onnx")
    with pytest.raises(ModelImportError, match="not a directory"):
        load_torch_dump(tmp_path / "net.onnx", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "unknown version"),
        ('{"schema": "aoe.torch_dump/2"}', "aoe.torch_dump/2, expected aoe.torch_dump/1"),
        ('{"schema": "aoe.torch_dump/1"}', "incomplete"),
        ('{"schema": "aoe.torch_dump/1", "graphs": [{}]}', "incomplete"),
        ('{"schema": "aoe.torch_dump/1", "graphs": 3}', "incomplete"),
        ('{"schema": "aoe.torch_dump/1", "graphs": []}', "no graph in the dump"),
        ('{"schema": "aoe.torch_dump/1", "graphs": [{"file": "../x.onnx"}]}', "outside"),
        ('{"schema": "aoe.torch_dump/1", "graphs": [{"file": "/x.onnx"}]}', "outside"),
        ('{"schema": "aoe.torch_dump/1", "graphs": [{"file": "x.onnx"}]}', "x.onnx: no such file"),
    ],
)
def test_a_damaged_dump_is_refused_with_a_reason(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(ModelImportError, match=message):
        load_torch_dump(tmp_path, {})


def test_a_damaged_graph_is_named(tmp_path: Path) -> None:
    dump = _dump(tmp_path, chain_model(["Relu"]), chain_model(["Relu"]))
    (dump / "net_1.onnx").write_bytes(b"\x08\xff\xff")
    with pytest.raises(ModelImportError, match=r"net_1\.onnx"):
        load_torch_dump(dump, {})


def test_missing_weights_are_named(tmp_path: Path) -> None:
    dump = _dump(tmp_path, matmul_net())
    for file in dump.glob("*.weights"):
        file.unlink()
    with pytest.raises(ModelImportError, match=r"net_0\.onnx"):
        load_torch_dump(dump, {})


def test_graphs_of_different_opsets_do_not_mix(tmp_path: Path) -> None:
    other = chain_model(["Relu"])
    other.opset_import[0].version -= 1
    with pytest.raises(ModelImportError, match="several opsets"):
        load_torch_dump(_dump(tmp_path, chain_model(["Relu"]), other), {})


def test_shapes_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="the shapes it was collected with"):
        load_torch_dump(_dump(tmp_path, chain_model(["Relu"])), {"x": (1, 2)})
