"""A work tree for the tests of git."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.git_work_tree import WorkTree


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> WorkTree:
    """Return a work tree with the drivers, to be copied: installing takes a while."""
    tree = WorkTree(tmp_path_factory.mktemp("installed"))
    tree.install()
    return tree


@pytest.fixture
def clone(tmp_path: Path) -> WorkTree:
    """Return an empty work tree without drivers."""
    return WorkTree(tmp_path)


@pytest.fixture
def tree(installed: WorkTree, tmp_path: Path) -> WorkTree:
    """Return a work tree with the drivers registered and declared."""
    return installed.copy(tmp_path)
