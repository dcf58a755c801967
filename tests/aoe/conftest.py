"""Fixtures for the engine's tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.engine.built_kernels import kept_toolchain
from support.engine.first_guesses import FirstGuesses
from support.engine.models import conv_net
from support.engine.offline import write_parts

import aoe.kernels
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain, halide_include
from aoe.execute.runner import Runner
from aoe.om.file import Manifest, write_offline_model
from aoe.target import Target


@pytest.fixture(autouse=True, scope="session")
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let runs with an environment of their own not wait for those of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aoe.settings.LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def target() -> Target:
    """Return this machine with two threads at most."""
    device = default_device()
    return device.describe(min(2, device.describe().core_num))


@pytest.fixture(scope="session")
def toolchain(target: Target) -> Toolchain:
    """Return this machine's C compiler; the glue of kernels is compiled once."""
    return kept_toolchain(target)


@pytest.fixture(scope="session")
def runner(target: Target, toolchain: Toolchain) -> Iterator[Runner]:
    """Return a worker that all tests share; a start takes two seconds."""
    with Runner(default_device(), target, toolchain) as shared:
        yield shared


@pytest.fixture(scope="session")
def models(
    tmp_path_factory: pytest.TempPathFactory, target: Target, toolchain: Toolchain
) -> FirstGuesses:
    """Return a harness that puts kernels into models and compares their results."""
    return FirstGuesses(tmp_path_factory.mktemp("models"), target, toolchain)


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every attempt to sync a file to disk fail as on a full disk."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


BuildAbi = Callable[..., Path]
_GLUE = ("glue", "row_cuts", "scratch", "shared_packs", "file_pages", "indices", "tables")


@pytest.fixture(scope="session")
def build_abi(toolchain: Toolchain) -> BuildAbi:
    """Return a function that links `abi_kernels.c` with the glue: (folder, *flags) -> library."""
    glue = Path(aoe.kernels.__file__).parent / "glue"
    source = Path(__file__).parent / "execute" / "abi_kernels.c"

    def build(folder: Path, *flags: str) -> Path:
        file = folder / "abi.so"
        toolchain.run(
            [
                *("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", *flags),
                *("-Wl,-z,defs", f"-I{glue}", f"-I{halide_include()}", "-o", str(file)),
                *(str(source), *(str(glue / f"{part}.c") for part in _GLUE), "-lm", "-pthread"),
            ],
            what="building",
        )
        return file

    return build


@pytest.fixture(scope="session")
def abi_library(tmp_path_factory: pytest.TempPathFactory, build_abi: BuildAbi) -> Path:
    """Return the library of hand-written kernels."""
    return build_abi(tmp_path_factory.mktemp("abi"))


@dataclass(frozen=True)
class TunedNet:
    """A small tuned model: its parts, its manifest, and the file made of them."""

    parts: Path
    manifest: Manifest
    file: Path

    def copy_parts(self, folder: Path) -> Path:
        """Copy the parts, so that they may be damaged; return the copy."""
        shutil.copytree(self.parts, folder)
        return folder


@pytest.fixture(scope="session")
def tuned_net(
    tmp_path_factory: pytest.TempPathFactory, target: Target, toolchain: Toolchain
) -> TunedNet:
    """Return `conv_net` with the first guess of every family."""
    folder = tmp_path_factory.mktemp("tuned")
    manifest = write_parts(conv_net(), folder / "parts", target, toolchain)
    file = folder / "net_tune.om"
    write_offline_model(file, folder / "parts", manifest)
    return TunedNet(folder / "parts", manifest, file)
