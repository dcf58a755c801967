"""`--om`: the untuned model of a tuned one, under its name and digest."""

from __future__ import annotations

import filecmp
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.engine.models import conv_net, save_model
from support.engine.offline import make_manifest

from aoe.entry.onnx_file import load_onnx
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import ModelImportError, OfflineModelError, OptionError
from aoe.om.file import MANIFEST, MODEL, write_offline_model
from aoe.tuner.parts import EngineParts
from aoe.validation.rewrite_assembly import write_parts


@pytest.fixture
def om(tmp_path: Path) -> Path:
    """Return a tuned model without kernels, made of `net.onnx` beside it."""
    model = load_onnx(save_model(conv_net(), tmp_path / "net.onnx"), {})
    write_parts(tmp_path / "parts", model.proto, None)
    manifest = make_manifest(name="net", model_sha256=model.sha256)
    write_offline_model(tmp_path / "tuned.om", tmp_path / "parts", manifest)
    return tmp_path / "tuned.om"


def _load(om: Path, **facts: Any) -> Any:
    source = ModelSource(path=om, **facts)
    return find_entry(None, source).load(source)


def _rewritten(om: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    with zipfile.ZipFile(om) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(om, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return om


def _with_manifest(**members: Any) -> Callable[[dict[str, bytes]], None]:
    def change(parts: dict[str, bytes]) -> None:
        parts[MANIFEST] = json.dumps(json.loads(parts[MANIFEST]) | members).encode()

    return change


def test_model_is_the_one_that_was_tuned_with_name_and_digest(om: Path) -> None:
    untuned = load_onnx(om.parent / "net.onnx", {})
    found = _load(om)
    assert (found.name, found.sha256, found.path) == ("net", untuned.sha256, om)
    write_parts(om.parent / "again", found.proto, None)
    for part in ("fallback.onnx", "weights.bin"):  # a new file has the same untuned model
        files = (om.parent / "parts" / part, om.parent / "again" / part)
        assert filecmp.cmp(*files, shallow=False)


def test_tuned_half_is_not_needed(om: Path) -> None:
    def without_tuned(parts: dict[str, bytes]) -> None:
        parts[MODEL] = b"damaged"

    assert _load(_rewritten(om, without_tuned)).name == "net"


def _damaged(parts: dict[str, bytes]) -> None:
    parts["weights.bin"] = bytes(len(parts["weights.bin"]))


def _of_another_model(parts: dict[str, bytes]) -> None:
    parts["fallback.onnx"] += b"\x00"


def _without_model(parts: dict[str, bytes]) -> None:
    del parts["fallback.onnx"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_damaged, r"tuned\.om:weights\.bin: damaged part \(got sha256"),
        (_of_another_model, r"tuned\.om:fallback\.onnx: damaged part \(got sha256"),
        (_without_model, r"tuned\.om:fallback\.onnx: damaged part"),
        (_with_manifest(schema="aoe.om/99"), "unknown version"),
        (_with_manifest(core_num="two"), "its manifest is wrong"),
        (_with_manifest(model_sha256="no digest"), r"tuned\.om:manifest\.json: the digest of the"),
        (_with_manifest(name="../../evil"), "the name of the model is none"),
        (_with_manifest(name=""), "the name of the model is none"),
    ],
)
def test_file_that_does_not_fit_its_manifest_is_refused(
    om: Path, change: Callable[[dict[str, bytes]], None], problem: str
) -> None:
    with pytest.raises(OfflineModelError, match=problem):
        _load(_rewritten(om, change))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_damaged, "weights.bin: damaged part"),
        (_of_another_model, "fallback.onnx: damaged part"),
        (_with_manifest(model_sha256="no digest"), "the digest of the model is none"),
    ],
)
@pytest.mark.parametrize("command", [(), ("verify", "bank")])
def test_command_refuses_a_file_that_does_not_fit_its_manifest_and_writes_nothing(
    om: Path,
    change: Callable[[dict[str, bytes]], None],
    problem: str,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = _rewritten(om, change)
    monkeypatch.chdir(file.parent)
    Path("bank").mkdir()
    engine = EngineParts(check_toolchain=lambda *_: None)
    before = sorted(file.parent.rglob("*"))
    given = [f"--model={file}"] if command else [f"--om={file}", "--output=out"]
    assert aoe_exit_code([*command, *given, "--json"], engine=engine) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert problem in error["message"]
    assert sorted(file.parent.rglob("*")) == before


def test_file_that_is_not_there_or_no_tuned_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OfflineModelError, match="no such file"):
        _load(tmp_path / "net.om")
    (tmp_path / "net.om").write_bytes(b"x")
    with pytest.raises(OfflineModelError, match="not a tuned model of this engine"):
        _load(tmp_path / "net.om")


def test_other_shapes_than_those_it_was_tuned_for_are_refused(om: Path) -> None:
    (value,) = load_onnx(om.parent / "net.onnx", {}).proto.graph.input
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    assert _load(om, shapes={value.name: shape}).name == "net"
    with pytest.raises(ModelImportError, match=r"--input_shape: .* has a fixed extent"):
        _load(om, shapes={value.name: (shape[0] + 1, *shape[1:])})


def test_part_that_is_no_model_is_said_to_be_in_the_file(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in ("model.onnx", "fallback.onnx", "weights.bin"):
        (parts / name).write_bytes(b"\xff\xff")
    write_offline_model(tmp_path / "net.om", parts, make_manifest())
    with pytest.raises(ModelImportError, match=r"--om=.*net\.om:fallback\.onnx: not an ONNX model"):
        _load(tmp_path / "net.om")


def test_tuned_model_is_no_model_of_a_framework_and_has_no_second_file(tmp_path: Path) -> None:
    source = ModelSource(path=tmp_path / "net.om")
    with pytest.raises(OptionError, match="--model: a tuned model") as refused:
        find_entry(5, source)
    assert "--om=" in refused.value.hint
    with pytest.raises(OptionError, match="only Caffe models have a weight file"):
        find_entry(None, ModelSource(path=source.path, weight=Path("w")))
