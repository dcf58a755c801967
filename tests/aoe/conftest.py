"""Fixtures for the engine's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aoe.execute.runner import Runner
from aoe.execute.toolchain import Toolchain, find_toolchain
from aoe.target import Target, host_target


@pytest.fixture(autouse=True, scope="session")
def _no_real_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep unpacked models out of the cache of whoever runs the tests."""
    saved = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if saved is None:
        os.environ.pop("XDG_CACHE_HOME", None)
    else:
        os.environ["XDG_CACHE_HOME"] = saved


@pytest.fixture(scope="session")
def target() -> Target:
    """Return this machine with two threads at most."""
    return host_target(min(2, host_target().core_num))


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Return this machine's C compiler."""
    return find_toolchain(os.environ)


@pytest.fixture(scope="module")
def runner(target: Target, toolchain: Toolchain) -> Iterator[Runner]:
    """Return a worker that the tests of a module share; a start takes two seconds."""
    with Runner(target, toolchain) as shared:
        yield shared


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every attempt to sync a file to disk fail as on a full disk."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the contents of every file below a folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
