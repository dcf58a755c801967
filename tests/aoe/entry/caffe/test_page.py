"""docs/caffe.md lists the layers there are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from aoe.entry.caffe.layers.registry import LAYERS, WAYS_OUT

_DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_table_of_layers_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", _DOCS / "generate_caffe_layers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (_DOCS / "caffe.md").read_text()
    assert module.page() == text, "run python docs/generate_caffe_layers.py"
    assert all(f"\n| {name} |" in text for name in LAYERS)


def test_layers_that_are_converted_need_no_way_out() -> None:
    assert not set(LAYERS) & set(WAYS_OUT)
