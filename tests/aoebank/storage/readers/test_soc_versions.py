"""Which soc_versions readers take for related, and what their folders are called."""

from __future__ import annotations

import pytest

from aoebank.storage.readers.soc_versions import SOC_ALTERNATIVES, short_soc


@pytest.mark.parametrize(
    ("soc", "short"),
    [
        ("Ascend910B2C", "Ascend910B"),
        ("Ascend910_9391", "Ascend910B"),
        ("Ascend910A", "ascend910"),
        ("Ascend310P3", "Ascend310P"),
        ("Ascend950PR_9579", "Ascend950PR_9579"),
    ],
)
def test_folder_of_built_in_cube_and_vector_banks(soc: str, short: str) -> None:
    assert short_soc(soc) == short


def test_no_soc_version_is_its_own_alternative() -> None:
    for soc, others in SOC_ALTERNATIVES.items():
        assert soc not in others
        assert len(set(others)) == len(others) > 0
