"""`--framework`: which models can be read, and from which files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from aoe.entry import registry
from aoe.entry.onnx_file import ONNX
from aoe.entry.protocol import Entry, ImportedModel, ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import OptionError

_SOURCE = ModelSource(path=Path("m"))


def test_onnx_is_five() -> None:
    assert find_entry(5, _SOURCE) is ONNX


@pytest.mark.parametrize(("number", "name"), [(1, "MindSpore")])
def test_known_framework_without_entry_points_to_onnx(number: int, name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} models cannot be read") as caught:
        find_entry(number, _SOURCE)
    assert "--framework=5" in str(caught.value.hint)


@pytest.mark.parametrize("number", [-1, 2, 4, 6, 99, 100])
def test_unknown_framework_says_which_are_known(number: int) -> None:
    with pytest.raises(
        OptionError,
        match=rf"unknown framework \(got {number}, expected 0 \(Caffe\), 3 \(TensorFlow\), 5 ",
    ):
        find_entry(number, _SOURCE)


@pytest.mark.parametrize("framework", [5, None])
def test_second_file_is_for_those_who_read_one(framework: int | None) -> None:
    source = ModelSource(path=Path("m"), weight=Path("w"))
    with pytest.raises(OptionError, match="--weight: only Caffe models have a weight file"):
        find_entry(framework, source)


def test_output_nodes_are_for_those_who_can_be_told() -> None:
    source = ModelSource(path=Path("m"), output_nodes=("a:0", "b:0"))
    with pytest.raises(OptionError, match=r"outputs of PyTorch are those .* \(got a:0, b:0\)"):
        find_entry(None, source)


def test_an_entry_with_two_files_and_node_names_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = ModelSource(
        path=Path("net.prototxt"), weight=Path("net.caffemodel"), output_nodes=("prob",)
    )
    read: list[ModelSource] = []

    def load(asked: ModelSource) -> ImportedModel:
        read.append(asked)
        return ImportedModel(name="net", path=asked.path, sha256="", proto=onnx.ModelProto())

    caffe = Entry(framework="Caffe", load=load, takes_weight=True, takes_output_nodes=True)
    monkeypatch.setitem(registry.ENTRIES, 0, caffe)
    assert find_entry(0, source).load(source).name == "net"
    assert read == [source]
