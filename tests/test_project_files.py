"""Files for developers agree with the project: hooks, workflow, changelog, contributing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.scripts import load_script

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "check.yml"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PATH = re.compile(r"`((?:aoe|aoebank|benchmarks|changes|docs|tests|\.ci|\.github)/[\w./-]+)`")
FRAGMENT = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed|format)\.md")


def _document(file: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def _tried() -> dict[str, str]:
    """Return what the workflow runs for each release of Python."""
    rows = _document(WORKFLOW)["jobs"]["check"]["strategy"]["matrix"]["include"]
    return {row["python"]: row["command"] for row in rows}


def test_hooks_of_this_repository_need_no_network() -> None:
    (repository,) = _document(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_workflow_runs_the_script_and_with_other_pythons_the_lines_of_the_readme() -> None:
    script, *others = _tried().values()
    assert script == "bash .ci/run"
    assert set(others) == {"bash .ci/run --readme"}


def test_workflow_tries_every_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert found and set(found) <= set(_tried())


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_files_a_page_for_developers_names_exist(page: str) -> None:
    named = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / name).exists()]


def test_contract_suites_and_registries_are_where_the_page_says() -> None:
    page = CONTRIBUTING.read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`, `([\w/]+\.py)`", page)
    assert {"KernelFamilyTests", "FormatTests", "FAMILIES", "FORMATS"} <= {
        name for name, _ in named
    }
    assert not [
        (name, file)
        for name, file in named
        if not re.search(rf"^(class )?{name}\b", (ROOT / file).read_text(), re.MULTILINE)
    ]


def test_changelog_begins_with_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(
        r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert versions[0] == project["version"]


def test_change_fragments_are_named_by_their_kind() -> None:
    names = {file.name for file in (ROOT / "changes").iterdir()} - {"README.md"}
    assert not [name for name in names if not FRAGMENT.fullmatch(name)]


@pytest.mark.parametrize(
    "script", sorted((ROOT / "findings").iterdir()), ids=lambda file: file.stem
)
def test_findings_are_pinned_scripts_that_tell_what_is_handled_where(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    header, _, body = text.partition("\nset -euo pipefail\n")
    parts = ("# Expected: ", "# Happens: ", "# Seen with: ", "# Matters: ", "# Handled in: ")
    assert text.startswith("#!/usr/bin/env bash\n# Expected: ") and script.suffix == ".sh"
    assert [
        line[: line.index(":") + 2] for line in header.splitlines() if line.startswith(parts)
    ] == [*parts]
    installed = re.findall(r"pip install --quiet --no-compile (.+)", body.replace("\\\n", " "))
    assert installed and "aoe" not in body
    names = installed[0].replace('"', "").split()
    assert all("==" in name for name in names)
    named = re.findall(r"\b(?:aoe|aoebank)/[\w/]+(?:\.py)?", header)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_readme_of_a_package_index_has_absolute_links() -> None:
    pytest.importorskip("setuptools")
    text = load_script("setup.py").readme_of_index()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    assert "/raw/v" in text and "/docs/watch.svg" in text


def test_pictures_ask_no_network_and_are_small() -> None:
    for name, limit in (("watch.svg", 40_000), ("page.png", 80_000)):
        file = ROOT / "docs" / name
        assert file.stat().st_size < limit
    assert "@font-face" not in (ROOT / "docs" / "watch.svg").read_text("utf-8")


def test_releases_of_python_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert sorted(_tried()) == known
    assert project["requires-python"] == f">={known[0]}"
    for name in ("README.md", "CONTRIBUTING.md", "docs/getting-started.md"):
        assert f"{known[0]} to {known[-1]}" in (ROOT / name).read_text("utf-8"), name
