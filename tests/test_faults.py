"""Planted faults fit the product; whether tests catch them, `python -m support.faults` tells."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.faults.run import planted
from support.faults.table import AREAS, ROOT, Fault, load_faults

FAULTS = load_faults()
BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.mark.parametrize("name", BY_NAME)
def test_fault_still_fits_its_file_and_its_tests_are_there(name: str) -> None:
    fault = BY_NAME[name]
    text = (ROOT / fault.file).read_text()
    assert fault.applied(text) != text
    assert [path for path in fault.tests if not (ROOT / path.partition("::")[0]).exists()] == []


def test_names_are_unique_and_every_area_has_faults() -> None:
    assert len(BY_NAME) == len(FAULTS)
    assert set(Counter(fault.area for fault in FAULTS)) == set(AREAS)


def test_fault_is_taken_back(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("a = 1\n")
    row = {"name": "x", "area": "om", "file": module.name, "breaks": "", "tests": ()}
    with planted(Fault(**row, old="1", new="2"), tmp_path):
        assert module.read_text() == "a = 2\n"
    assert module.read_text() == "a = 1\n"
    with (
        pytest.raises(ValueError, match="0 times"),
        planted(Fault(**row, old="3", new="2"), tmp_path),
    ):
        pass
