"""Files for developers agree with the project: hooks, the changelog and its fragments."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FRAGMENT = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed|format)\.md")


def _document(file: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_hooks_of_this_repository_need_no_network() -> None:
    (repository,) = _document(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_changelog_begins_with_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(
        r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert versions[0] == project["version"]


def test_change_fragments_are_named_by_their_kind() -> None:
    names = {file.name for file in (ROOT / "changes").iterdir()} - {"README.md"}
    assert not [name for name in names if not FRAGMENT.fullmatch(name)]
