"""Scratch folders: removed by their owner, swept after one that was killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aoe.errors import OutputError
from aoe.folders.scratch import OWNER, PREFIX, ScratchFolder, sweep_scratch

_OWNER_PROGRAM = """
import sys
from aoe.folders.scratch import ScratchFolder
folder = ScratchFolder("run")
(folder.path / "large").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder scratch folders are made in, here and in child processes."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


_KILLED_WHILE_REMOVING = """
import os, shutil, signal
from aoe.folders.scratch import ScratchFolder
folder = ScratchFolder("run")
(folder.path / "deep").mkdir()
(folder.path / "file").touch()
print(folder.path, flush=True)
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
folder.remove()
"""
_REMOVED_BY_A_CHILD = """
import os
from aoe.folders.scratch import ScratchFolder
folder = ScratchFolder("run")
child = os.fork()
if not child:
    folder.remove()
    os._exit(0)
os.waitpid(child, 0)
print(folder.path.exists())
"""


def _output_of(program: str) -> str:
    """Return what a Python program writes, however it ends."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip()


@contextmanager
def _another_run() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_folder_is_there_for_the_with_block_only(temporary: Path) -> None:
    with ScratchFolder("run") as folder:
        assert folder.parent == temporary
        assert folder.name.startswith("aoe_run_")
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
    assert list(temporary.iterdir()) == []


def test_removing_twice_is_no_mistake() -> None:
    folder = ScratchFolder("run")
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_folder_of_a_living_run_stays() -> None:
    with _another_run() as (_, path):
        assert sweep_scratch() == ()
        assert (path / "large").exists()


def test_own_folder_stays() -> None:
    with ScratchFolder("run") as path:
        assert sweep_scratch() == ()
        assert path.exists()


def test_folder_of_a_killed_run_goes() -> None:
    with _another_run() as (process, path):
        process.kill()
        process.wait()
        assert path.exists()
        assert sweep_scratch() == (path,)
        assert not path.exists()


def test_folder_of_a_run_killed_while_it_was_made_or_removed_goes(
    temporary: Path,
) -> None:
    unnamed = Path(tempfile.mkdtemp(prefix=f"{PREFIX}cc_"))
    folder = Path(_output_of(_KILLED_WHILE_REMOVING))
    assert (folder / OWNER).exists()
    assert set(sweep_scratch()) == {unnamed, folder}
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["aoe_mine", "aoe_cc_abcdefgh"])
def test_empty_folder_of_somebody_else_stays(temporary: Path, name: str) -> None:
    (temporary / name).mkdir(mode=0o755)
    assert sweep_scratch() == ()
    assert (temporary / name).is_dir()


def test_folder_that_does_not_say_whose_it_is_stays(temporary: Path) -> None:
    (temporary / "aoe_mine").mkdir()
    (temporary / "other").mkdir()
    (temporary / "other" / OWNER).touch()
    (temporary / "aoe_file").touch()
    assert sweep_scratch() == ()
    assert {path.name for path in temporary.iterdir()} == {"aoe_mine", "other", "aoe_file"}


def test_link_to_a_folder_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / OWNER).touch()
    (temporary / "aoe_link").symlink_to(tmp_path / "precious")
    assert sweep_scratch() == ()
    assert (tmp_path / "precious").exists()


def test_forked_child_leaves_the_folder_to_its_parent() -> None:
    assert _output_of(_REMOVED_BY_A_CHILD) == "True"


def test_without_locks_there_is_a_folder_that_is_never_swept(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", unsupported)
        folder = ScratchFolder("run")
    assert not (folder.path / OWNER).exists()
    assert sweep_scratch() == ()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_no_place_for_scratch_is_one_clear_error(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "none"))
    with pytest.raises(OutputError, match="no scratch folder can be made: No such file") as caught:
        ScratchFolder("run")
    assert "TMPDIR" in str(caught.value.hint)
    assert sweep_scratch() == ()


def test_folder_whose_removal_is_interrupted_goes_with_the_process(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    script = """
import aoe.folders.scratch as scratch
folder = scratch.ScratchFolder("test")
(folder.path / "file").write_text("text")
def interrupted(path):
    raise KeyboardInterrupt
remove, scratch._remove = scratch._remove, interrupted
try:
    folder.remove()
except KeyboardInterrupt:
    scratch._remove = remove
print(folder.path)
"""
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == place
    assert not [*place.iterdir()]
