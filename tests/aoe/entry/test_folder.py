"""Which models a directory holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoe.entry.folder import FoundModel, find_models
from aoe.entry.registry import ENTRIES
from aoe.errors import ModelNotFoundError


def _files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")


def test_files_of_an_entry_and_dumps_are_models_and_nothing_else_is(tmp_path: Path) -> None:
    names = ("b.onnx", "A.ONNX", "a.onnx.data", "notes.txt", ".hidden.onnx", "sub/inner.onnx")
    names += ("c.prototxt", "c.caffemodel", "d.pb", "saved/saved_model.pb")
    _files(tmp_path, *names, "collected/dump.json")
    assert find_models(tmp_path) == (
        FoundModel(path=tmp_path / "A.ONNX", framework=5),
        FoundModel(path=tmp_path / "b.onnx", framework=5),
        FoundModel(path=tmp_path / "c.prototxt", framework=0, weight=tmp_path / "c.caffemodel"),
        FoundModel(path=tmp_path / "collected", framework=None),
        FoundModel(path=tmp_path / "d.pb", framework=3),
        FoundModel(path=tmp_path / "saved", framework=3),
    )


def test_a_dump_is_one_model(tmp_path: Path) -> None:
    _files(tmp_path, "dump.json", "graph0.onnx")
    assert find_models(tmp_path) == (FoundModel(path=tmp_path, framework=None),)


def test_a_saved_model_is_one_model(tmp_path: Path) -> None:
    _files(tmp_path, "saved_model.pb", "keras_metadata.pb")
    assert find_models(tmp_path) == (FoundModel(path=tmp_path, framework=3),)


def test_second_file_goes_with_the_first_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = replace(ENTRIES[5], takes_weight=True, suffixes=(".pairtxt",), weight_suffix=".pairbin")
    monkeypatch.setitem(ENTRIES, 77, pairs)
    _files(
        tmp_path, "net.pairtxt", "net.pairbin", "alone.pairtxt", "UPPER.PAIRTXT", "UPPER.PAIRBIN"
    )
    upper, alone, net = find_models(tmp_path)
    assert (net.framework, net.weight) == (77, tmp_path / "net.pairbin")
    assert (upper.framework, upper.weight) == (77, tmp_path / "UPPER.PAIRBIN")
    assert alone.weight is None


def test_nothing_to_tune_says_what_would_be(tmp_path: Path) -> None:
    _files(tmp_path, "readme.md")
    with pytest.raises(ModelNotFoundError, match=r"no model in it.*\*\.onnx"):
        find_models(tmp_path)
    with pytest.raises(ModelNotFoundError, match="not a directory"):
        find_models(tmp_path / "readme.md")
