"""docs/frameworks.md lists the layers there are."""

from __future__ import annotations

from support.scripts import ROOT, load_script

from aoe.entry.caffe.layers.registry import LAYERS, WAYS_OUT


def test_table_of_layers_is_up_to_date() -> None:
    text = (ROOT / "docs" / "frameworks.md").read_text()
    assert load_script("docs/generate_caffe_layers.py").page() == text, (
        "run python docs/generate_caffe_layers.py"
    )
    assert all(f"\n| {name} |" in text for name in LAYERS)


def test_layers_that_are_converted_need_no_way_out() -> None:
    assert not set(LAYERS) & set(WAYS_OUT)
