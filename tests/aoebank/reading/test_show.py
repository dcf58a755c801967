"""Keys as `aoebank ls` prints them, taken by `aoebank show`."""

from __future__ import annotations

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
