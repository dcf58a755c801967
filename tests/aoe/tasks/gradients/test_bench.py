"""Gradient tuning has the machine for all its processes: the first one takes the turn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from support.engine.trainings import FakeTraining

from aoe.device.registry import default_device
from aoe.errors import LeftAloneError, OptionError
from aoe.folders.turns import TurnOwner, Turns
from aoe.gradients.training import Training
from aoe.tasks.gradients.bench import DEFAULT_LOOPS, checked_loops, measuring_together, open_bank


@dataclass
class _Process:
    """One process of a group, and what the first one says."""

    is_first: bool = True
    said: Any = None

    def agree(self, error: Exception | None) -> None:
        if error is not None:
            raise error

    def from_first(self, value: Any) -> Any:
        return value if self.is_first else self.said


def _training(**facts: Any) -> Training:
    return cast(Training, _Process(**facts))


def _owner(locks: Path) -> TurnOwner | None:
    return Turns(locks, default_device().cores(all_of_them=True)).owner()


def test_first_process_has_every_core_and_gives_them_back(tmp_path: Path) -> None:
    with measuring_together(_training(), tmp_path, lambda _: None):
        held = {file.name for file in tmp_path.iterdir() if file.stat().st_size}
        assert held == {f"{core}.lock" for core in default_device().cores(all_of_them=True)}
        with Turns(tmp_path, ["cpu0"]).measuring():  # what is tuned in a step does not wait
            pass
    assert _owner(tmp_path) is None


def test_other_processes_take_nothing_and_wait_for_nothing(tmp_path: Path) -> None:
    with measuring_together(_training(is_first=False, said=True), tmp_path, lambda _: None):
        assert not list(tmp_path.iterdir())
        with Turns(tmp_path, ["cpu0"]).measuring():
            pass


@pytest.mark.parametrize("is_first", [True, False])
def test_script_goes_on_untuned_where_another_run_does_not_end(
    is_first: bool, tmp_path: Path
) -> None:
    training = _training(is_first=is_first, said=None)
    together = measuring_together(training, tmp_path, lambda _: None, tries=2, try_s=0.01)
    with (
        Turns(tmp_path, ["cpu0"]).measuring(),
        pytest.raises(LeftAloneError, match="another run measures on this machine"),
        together,
    ):
        raise AssertionError("it measures")


@pytest.mark.parametrize("may_write", [True, False])
def test_damaged_gradient_bank_ends_no_training(tmp_path: Path, may_write: bool) -> None:
    file, told = tmp_path / "host_gradient_fusion.json", list[str]()
    file.write_text('{"model')
    bank = open_bank(FakeTraining(), tmp_path, told.append, may_write=may_write)
    assert bank.find(1) is None
    assert file.exists() is not may_write
    (text,) = told
    assert str(file) in text and ("set aside" if may_write else "passed over") in text


def test_first_process_alone_looks_for_damage(tmp_path: Path) -> None:
    (tmp_path / "host_gradient_fusion.json").write_text('{"model')
    other, told = FakeTraining(), list[str]()
    other.is_first = False
    open_bank(other, tmp_path, told.append, may_write=True)
    assert not told and len(list(tmp_path.iterdir())) == 1


def test_loops_are_those_of_the_file() -> None:
    assert checked_loops(None) == DEFAULT_LOOPS
    assert checked_loops(4) == 4


def test_three_loops_are_too_few() -> None:
    with pytest.raises(OptionError, match=r"RUN_LOOP: too few .* \(got 3, expected 4 or more\)"):
        checked_loops(3)
