"""Keys as `aoebank ls` prints them, taken by `aoebank show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sample_bank_files import ALL, root_of

import aoebank


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_keys_of_a_listed_file_mean_a_record_each(path: Path) -> None:
    (listed,) = aoebank.list_bank(path).files
    assert len(listed.keys) == listed.records
    for key in listed.keys:
        for target in ([key, root_of(path)], [f"{path}:{key}"]):
            result = aoebank.show(*target)
            (shown,) = result.records
            assert shown.record.key.startswith(key)
            assert not result.misses


def test_key_of_words_with_slashes_is_one(tmp_path: Path) -> None:
    """As Kernel Tuner's keys are where there is one parameter."""
    head = {"device_name": "A100", "kernel_name": "add", "tune_params_keys": ["block"]}
    cache = {"cache": {"64": {"block": 64, "time": 1.5}}}
    (tmp_path / "kernel_tuner_cache.json").write_text(json.dumps(head | cache))
    (shown,) = aoebank.show("A100/add/-/64", tmp_path).records
    assert shown.record.strategy == {}
