"""What the machine says of itself: looked up, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank.storage import machine


def _governors(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        file = folder / f"cpu{number}" / "cpufreq" / "scaling_governor"
        file.parent.mkdir(parents=True)
        file.write_text(f"{name}\n")


def test_governor_names_each_kind_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPUS", tmp_path)
    assert machine.governor() == ""
    _governors(tmp_path, "performance", "powersave", "performance")
    assert machine.governor() == "performance,powersave"


def test_cpu_model_is_that_of_the_first_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nmodel name\t: Test CPU @ 3 GHz\n\nmodel name : other\n")
    monkeypatch.setattr(machine, "_CPU_INFO", file)
    assert machine.cpu_model() == "Test CPU @ 3 GHz"


def test_library_that_is_not_installed_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CPUS", tmp_path)
    facts = machine.present_facts(("typer", "no-such-distribution"))
    assert "typer" in facts
    assert facts.keys() <= {"cpu_model", "typer"}
