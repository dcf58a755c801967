"""What the machine says of itself: looked up, never guessed."""

from __future__ import annotations

from pathlib import Path

from aoebank.storage import machine


def _governors(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        file = folder / f"cpu{number}" / "cpufreq" / "scaling_governor"
        file.parent.mkdir(parents=True)
        file.write_text(f"{name}\n")


def test_governor_names_each_kind_once(tmp_path: Path) -> None:
    assert machine.governor(tmp_path) == ""
    _governors(tmp_path, "performance", "powersave", "performance")
    assert machine.governor(tmp_path) == "performance,powersave"


def test_cpu_model_is_that_of_the_first_core(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nmodel name\t: Test CPU @ 3 GHz\n\nmodel name : other\n")
    assert machine.cpu_model(file) == "Test CPU @ 3 GHz"


def test_library_that_is_not_installed_is_not_told(tmp_path: Path) -> None:
    facts = machine.present_facts(("typer", "no-such-distribution"), cpus=tmp_path)
    assert "typer" in facts
    assert facts.keys() <= {"cpu_model", "typer"}
