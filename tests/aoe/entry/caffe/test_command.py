"""`aoe --framework=0`: a Caffe model is tuned, found again in the bank, and run."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path

import numpy as np
import pytest
from support.caffe.model_files import TestLayer, TestNet, caffemodel, write_net
from support.caffe.reference import run_reference
from support.commands import aoe_exit_code
from support.scripts import ROOT, load_script

import aoe
from aoe.entry.caffe.layers.registry import LAYERS, WAYS_OUT

_SHAPE = (1, 16, 72, 72)


def _net() -> TestNet:
    """Return LRN and chains of element-wise layers around a small convolution."""
    rng = np.random.default_rng(11)
    weights = rng.normal(0, 0.2, (16, 16, 1, 1)).astype(np.float32)

    def layer(kind: str, name: str, bottom: str, top: str, *blobs: np.ndarray) -> TestLayer:
        param_name, param = {
            "Convolution": ("convolution_param", {"num_output": 16, "kernel_size": 1}),
            "LRN": ("lrn_param", {"local_size": 5, "alpha": 0.1}),
            "Power": ("power_param", {"power": 3.0, "scale": 0.5, "shift": 0.25}),
        }.get(kind, ("", {}))
        return TestLayer(
            type=kind,
            name=name,
            bottoms=(bottom,),
            tops=(top,),
            param_name=param_name,
            param=param,
            blobs=blobs,
        )

    layers = (
        layer("LRN", "norm", "data", "norm"),
        layer("ELU", "elu", "norm", "norm"),
        layer("Power", "cube", "norm", "cube"),
        layer("BNLL", "soft", "cube", "soft"),
        layer("Convolution", "conv", "soft", "conv", weights, weights[:, 0, 0, 0]),
        layer("TanH", "tanh", "conv", "conv"),
        layer("AbsVal", "result", "conv", "result"),
    )
    return TestNet(inputs={"data": _SHAPE}, layers=layers)


@pytest.fixture(autouse=True)
def _own_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in an empty folder with an empty bank."""
    (tmp_path / "bank").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))


def _aoe(*arguments: str) -> int:
    return aoe_exit_code(arguments)


_TUNE = (
    *("--framework=0", "--model=net.prototxt", "--weight=net.caffemodel", "--job_type=2"),
    *("--trials=2", "--json"),
)


def _assert_runs_as_defined(net: TestNet, folder: Path, file: Path) -> None:
    x = np.random.default_rng(0).standard_normal(net.inputs["data"]).astype(np.float32)
    np.save(folder / "x.npy", x)
    assert _aoe("run", str(file), "--input=data:x.npy", "--output=out") == 0
    (result,) = (folder / "out").glob("*.npy")
    wanted = run_reference(net, {"data": x})["result"]
    np.testing.assert_allclose(np.load(result), wanted, rtol=1e-3, atol=1e-4)


def test_caffe_model_is_looked_up_and_run(tmp_path: Path) -> None:
    net = _net()
    write_net(net, tmp_path)
    assert _aoe(*_TUNE, "--lookup_only", "--output=first") == 0
    (file,) = tmp_path.glob("first/*.om")
    assert file.name.startswith("net")
    _assert_runs_as_defined(net, tmp_path, file)


@pytest.mark.slow
def test_caffe_model_is_tuned_found_again_and_run(tmp_path: Path) -> None:
    net = _net()
    write_net(net, tmp_path)
    assert _aoe(*_TUNE, "--output=first") == 0
    for name in ("again", "once_more"):  # a full run would judge anew, as the machine has it then
        assert _aoe(*_TUNE, "--lookup_only", f"--output={name}") == 0
    files = [next(tmp_path.glob(f"{name}/*.om")) for name in ("first", "again", "once_more")]
    assert all(file.name.startswith("net") for file in files)
    assert filecmp.cmp(files[1], files[2], shallow=False)
    report = json.loads(next((tmp_path / "first").glob("aoe_result_opat_*.json")).read_text())
    names = {name for part in report for name in _names(part)}
    assert names & {layer.name for layer in net.layers}, names
    _assert_runs_as_defined(net, tmp_path, files[0])


def _names(value: object) -> set[str]:
    """Return the words of all texts in a JSON value."""
    if isinstance(value, str):
        return set(value.replace("/", " ").replace(",", " ").split())
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    keys = set(value) if isinstance(value, dict) else set()
    return keys.union(*map(_names, inside))


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(
    ("weights", "code", "words"),
    [
        (caffemodel(_net())[:-9], 3, "not a caffemodel, or a truncated one"),
        (b"", 3, "not a caffemodel: no layer in it"),
        (None, 2, "--weight=FILE.caffemodel"),
    ],
)
def test_refusal_leaves_nothing_behind(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    weights: bytes | None,
    code: int,
    words: str,
) -> None:
    write_net(_net(), tmp_path)
    arguments = ["--framework=0", "--model=net.prototxt", "--output=result", "--quiet"]
    if weights is not None:
        (tmp_path / "net.caffemodel").write_bytes(weights)
        arguments.append("--weight=net.caffemodel")
    before = sorted(tmp_path.rglob("*"))
    assert _aoe(*arguments) == code
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) <= 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_caffe_model_is_tuned_from_python(tmp_path: Path) -> None:
    text, weights = write_net(_net(), tmp_path)
    tuned = aoe.tune(
        text,
        framework=0,
        weight=weights,
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        input_shape={"data": (2, 16, 24, 24)},
        trials=1,
    )
    assert tuned.om_file.is_file()


def test_table_of_layers_is_up_to_date() -> None:
    text = (ROOT / "docs" / "frameworks.md").read_text()
    assert load_script("docs/generate_caffe_layers.py").page() == text, (
        "run python docs/generate_caffe_layers.py"
    )
    assert all(f"\n| {name} |" in text for name in LAYERS)


def test_layers_that_are_converted_need_no_way_out() -> None:
    assert not set(LAYERS) & set(WAYS_OUT)
