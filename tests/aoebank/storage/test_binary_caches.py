"""Tests of the one rule about files that readers open in place of a bank file."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank import BankPathError
from aoebank.formats.registry import get_format
from aoebank.storage.binary_caches import (
    bank_of_binary_cache,
    binary_cache_of,
    demand_no_binary_cache,
)

CUBE = get_format("cube")
CUBE_NAME = "Ascend910B2/cube/AIC_24_L1_SIZE_512_repository_Ascend910B2_matmul.json"


def test_a_twin_and_its_bank_name_each_other() -> None:
    binary_cache = binary_cache_of(Path(CUBE_NAME))
    assert binary_cache == Path(CUBE_NAME).with_suffix(".bin")
    assert bank_of_binary_cache(binary_cache.as_posix()) == CUBE_NAME


@pytest.mark.parametrize("name", [CUBE_NAME, f"{CUBE_NAME}.provenance.jsonl", "x.txt", ".bin"])
def test_what_is_no_twin_belongs_to_no_bank(name: str) -> None:
    assert bank_of_binary_cache(name) is None


def test_a_format_in_one_file_has_no_twin(tmp_path: Path) -> None:
    bank = tmp_path / "x.json"
    bank.with_suffix(".bin").touch()
    demand_no_binary_cache(bank, get_format("unified"))


def test_a_twin_is_named_from_the_top_of_the_work_tree(tmp_path: Path) -> None:
    (tmp_path / "x.bin").touch()
    with pytest.raises(BankPathError) as caught:
        demand_no_binary_cache(
            Path("x.json"), CUBE, root=tmp_path, hint="take both files of one side"
        )
    assert (caught.value.path, caught.value.hint) == (Path("x.bin"), "take both files of one side")
