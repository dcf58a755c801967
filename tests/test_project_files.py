"""Files for developers agree with the project: hooks, workflow, changelog, contributing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
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


def _docker_steps() -> list[tuple[str, str]]:
    """Return the instructions of the image, in order, each with its words."""
    text = (ROOT / "docs" / "examples" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _docker_context(folder: Path) -> Path:
    """Copy what the image copies."""
    for word, rest in _docker_steps():
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = folder / target / source if target == "./" else folder / target
                place.parent.mkdir(parents=True, exist_ok=True)
                copied = ROOT / source
                copy = shutil.copytree if copied.is_dir() else shutil.copy
                copy(copied, place)
    return folder


@pytest.mark.skipif(
    int(version("setuptools").partition(".")[0]) < 77, reason="needs what pyproject.toml names"
)
def test_image_copies_what_a_wheel_is_made_of(tmp_path: Path) -> None:
    """The step that installs, without what it would download."""
    context = _docker_context(tmp_path / "src")
    (install,) = (rest for word, rest in _docker_steps() if word == "RUN" and "pip" in rest)
    assert install == "python -m pip install --no-cache-dir '.[engine]'"
    made = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
            *("-w", str(tmp_path), "."),
        ],
        cwd=context,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("aoebank-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"aoe/py.typed", "aoebank/py.typed"} <= {*names}
    assert any(name.endswith("share/man/man1/aoe.1") for name in names)


@pytest.mark.slow
def test_steps_of_the_image_make_an_engine_in_a_new_environment(tmp_path: Path) -> None:
    context = _docker_context(tmp_path / "src")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    environment = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    environment |= {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    for word, rest in _docker_steps():
        if word == "RUN" and "pip" in rest:
            subprocess.run(["bash", "-ec", rest], cwd=context, env=environment, check=True)
    (work := tmp_path / "work").mkdir()
    _save_small_model(work / "net.onnx")
    (work / "bank").mkdir()
    environment |= {"AOE_ACCEPT_BUSY": "True", "AOE_LOCK_PATH": str(tmp_path)}
    environment |= {"TUNE_BANK_PATH": str(work / "bank")}
    for words in (
        "aoe --version",
        "aoebank --version",
        "aoe doctor",
        "aoe --model=net.onnx --output=out --trials=2 --html run.html",
        "aoe run out/net_tune.om --input random",
        "aoe inspect out/net_tune.om",
        "aoebank validate bank",
        "aoebank report bank --html bank.html",
    ):
        done = subprocess.run(
            words.split(), cwd=work, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert any((work / "bank").rglob("*_lrn.json"))


def _save_small_model(path: Path) -> None:
    """Save a model with an operator that ONNX Runtime computes slowly."""
    import onnx

    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[1,32,28,28] x)'
        " => (float[1,32,28,28] y) { y = LRN <size = 5> (x) }"
    )
    onnx.save(made, path)


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
