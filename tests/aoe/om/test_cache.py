"""The cache of unpacked parts: verified, healed, bounded, and shared by processes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.engine.offline import make_manifest

from aoe.errors import OfflineModelError
from aoe.folders.locks import take_lock
from aoe.folders.ownership import UnsafeFolderError
from aoe.om.cache import (
    PART_STEPS,
    VERIFIED,
    CachedParts,
    PartSteps,
    prune,
    sync_to_disk,
    take_parts,
)
from aoe.om.file import (
    LIBRARY,
    MODEL,
    PARTS,
    WEIGHTS,
    Manifest,
    digest_of,
    read_manifest,
    unpack_part,
    write_offline_model,
)

_LARGE = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of a cache that does not exist yet."""
    return tmp_path / "cache" / "om"


def _om(folder: Path, name: str = "net", size: int = 100) -> Path:
    """Return an `.om` whose parts are a few bytes, different for every name."""
    parts = folder / f"{name}_parts"
    parts.mkdir()
    for part in PARTS:
        (parts / part).write_bytes(f"{name} {part} ".encode() * size)
    file = folder / f"{name}.om"
    write_offline_model(file, parts, make_manifest(name=name))
    return file


def _take(
    file: Path, root: Path, limit_bytes: int = _LARGE, steps: PartSteps = PART_STEPS
) -> CachedParts:
    return take_parts(file, read_manifest(file), root=root, limit_bytes=limit_bytes, steps=steps)


def _assert_whole(file: Path, directory: Path) -> None:
    manifest = read_manifest(file)
    assert {name: digest_of(directory / name) for name in manifest.parts} == manifest.parts


@dataclass
class Counted:
    """Counts how often parts are unpacked and hashed."""

    unpacked: int = 0
    hashed: int = 0

    @property
    def steps(self) -> PartSteps:
        return PartSteps(unpack=self._unpack, digest=self._digest)

    @property
    def both(self) -> tuple[int, int]:
        return self.unpacked, self.hashed

    def _unpack(self, *given: Any) -> None:
        self.unpacked += 1
        unpack_part(*given)

    def _digest(self, file: Path) -> str:
        self.hashed += 1
        return digest_of(file)


_HASHED = len(PARTS) - 1
"""Parts each load hashes: all but the weights."""


def test_parts_are_unpacked_once_and_weights_not_even_hashed_again(
    tmp_path: Path, root: Path
) -> None:
    counts, file = Counted(), _om(tmp_path)
    for loads in range(3):
        parts = _take(file, root, steps=counts.steps)
        _assert_whole(file, parts.directory)
        parts.use.release()
        assert counts.both == (len(PARTS), loads * _HASHED)


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    content[-3] ^= 1
    file.write_bytes(content)


def _flip_and_set_the_time_back(file: Path) -> None:
    facts = file.stat()
    _flip(file)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _truncate(file: Path) -> None:
    os.truncate(file, 10)


def _swap(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(bytes(file.stat().st_size))
    other.replace(file)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "damage", [_flip, _flip_and_set_the_time_back, _truncate, _swap, Path.unlink]
)
def test_damaged_part_is_unpacked_again(
    tmp_path: Path,
    root: Path,
    part: str,
    damage: Callable[[Path], None],
) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    counts = Counted()
    damage(home / part)
    _assert_whole(file, _take(file, root, steps=counts.steps).directory)
    assert counts.unpacked == 1
    _take(file, root, steps=counts.steps)
    assert counts.unpacked == 1


def test_part_that_only_looks_different_is_hashed_and_kept(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    counts = Counted()
    os.utime(home / WEIGHTS)
    _take(file, root, steps=counts.steps)
    assert counts.both == (0, len(PARTS))
    _take(file, root, steps=counts.steps)
    assert counts.both == (0, len(PARTS) + _HASHED)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "aoe.cache/2", "look": 1}', '{"schema": "aoe.cache/9"}', "\xff"],
)
def test_unreadable_notes_mean_that_all_is_hashed(tmp_path: Path, root: Path, text: str) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / VERIFIED).write_text(text, "latin-1")
    counts = Counted()
    _take(file, root, steps=counts.steps)
    assert counts.both == (0, len(PARTS))
    assert json.loads((home / VERIFIED).read_text())["schema"] == "aoe.cache/2"


def test_notes_of_other_parts_are_not_believed(tmp_path: Path, root: Path) -> None:
    """The digest must be that of the model, not merely one that was checked."""
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / WEIGHTS).write_bytes(b"another model's")
    _note(home, digest_of(home / WEIGHTS))
    _assert_whole(file, _take(file, root).directory)


def _note(home: Path, sha256: str) -> None:
    """Write notes that say the weights were verified as they look now."""
    facts = (home / WEIGHTS).stat()
    look = {
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "ctime_ns": facts.st_ctime_ns,
        "inode": facts.st_ino,
    }
    notes = json.loads((home / VERIFIED).read_text()) | {"sha256": sha256, "look": look}
    (home / VERIFIED).write_text(json.dumps(notes))


# ---- another user of the machine ----


def test_native_code_is_held_against_the_file_whatever_the_notes_say(
    tmp_path: Path, root: Path
) -> None:
    """Notes and library were forged together, and are of the right owner and mode."""
    file = _om(tmp_path)
    home = _take(file, root).directory
    for name in (LIBRARY, MODEL):
        (home / name).write_bytes(b"forged")
    forged = json.loads((home / VERIFIED).read_text())
    facts = (home / LIBRARY).stat()
    look = {"size": 6, "mtime_ns": facts.st_mtime_ns, "ctime_ns": facts.st_ctime_ns}
    forged["parts"] = {LIBRARY: {"sha256": read_manifest(file).parts[LIBRARY], "look": look}}
    (home / VERIFIED).write_text(json.dumps(forged))
    _assert_whole(file, _take(file, root).directory)


@pytest.mark.parametrize("open_to", [0o777, 0o757, 0o1777])
@pytest.mark.parametrize("place", ["home", "om", "cache"])
def test_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, root: Path, place: str, open_to: int
) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / LIBRARY).write_bytes(b"forged")
    folder = {"home": home, "om": root, "cache": root.parent}[place]
    folder.chmod(open_to)
    if folder == root.parent and open_to == 0o1777:  # as /tmp: others cannot replace what is in it
        _assert_whole(file, _take(file, root).directory)
        return
    with pytest.raises(UnsafeFolderError, match=f"{folder} can be written to by others"):
        _take(file, root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to any group")
def test_group_may_write_if_its_user_is_alone_in_it(tmp_path: Path, root: Path) -> None:
    """As with a umask of 002 and a group for each user."""
    file = _om(tmp_path)
    home = _take(file, root).directory
    for path in (root.parent, root, home, *home.iterdir()):
        path.chmod(path.stat().st_mode | 0o020)
    counts = Counted()
    _take(file, root, steps=counts.steps)
    assert counts.unpacked == 0
    os.chown(home / WEIGHTS, -1, 54321)
    _take(file, root, steps=counts.steps)
    assert counts.unpacked == 1
    os.chown(root, -1, 54321)
    with pytest.raises(UnsafeFolderError, match=r"can be written to by others \(got mode 775"):
        _take(file, root)


def test_folder_is_made_for_its_user_alone_whatever_the_umask_is(
    tmp_path: Path, root: Path
) -> None:
    before = os.umask(0)
    try:
        home = _take(_om(tmp_path), root).directory
    finally:
        os.umask(before)
    made = [root.parent, root, home, *home.iterdir()]
    assert not [path for path in made if path.stat().st_mode & 0o022]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [".", "..", VERIFIED, LIBRARY, WEIGHTS])
def test_what_belongs_to_another_user_is_not_believed(
    tmp_path: Path, root: Path, name: str
) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    if name == WEIGHTS:
        (home / WEIGHTS).write_bytes(b"forged")
        _note(home, read_manifest(file).parts[WEIGHTS])
    os.chown(home / name, 54321, 54321)
    if (home / name).is_dir():
        with pytest.raises(UnsafeFolderError, match="belongs to another user"):
            _take(file, root)
    else:
        _assert_whole(file, _take(file, root).directory)


def test_part_that_others_can_write_to_is_unpacked_again(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / WEIGHTS).write_bytes(b"forged")
    _note(home, read_manifest(file).parts[WEIGHTS])
    (home / WEIGHTS).chmod(0o666)
    _assert_whole(file, _take(file, root).directory)
    assert (home / WEIGHTS).stat().st_mode & 0o777 == 0o644


def test_whoever_has_a_damaged_part_open_keeps_it(tmp_path: Path, root: Path) -> None:
    """A part is replaced under its name, never written in place: it may be mapped."""
    file = _om(tmp_path)
    home = _take(file, root).directory
    with (home / WEIGHTS).open("rb") as opened:
        _flip(home / WEIGHTS)
        before = opened.read()
        _take(file, root)
        opened.seek(0)
        assert opened.read() == before


def test_parts_are_synced_before_they_get_their_names(tmp_path: Path, root: Path) -> None:
    file, synced = _om(tmp_path), []

    def sync(path: Path) -> None:
        synced.append(path)
        sync_to_disk(path)

    home = _take(file, root, steps=PartSteps(sync=sync)).directory
    assert synced == [*(home / "new" / part for part in read_manifest(file).parts), home]


def test_what_a_killed_process_left_is_in_nobody_s_way(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / "new").mkdir()
    (home / "new" / "half").write_bytes(b"x")
    (home / WEIGHTS).unlink()
    _assert_whole(file, _take(file, root).directory)
    assert not (home / "new").exists()


def test_damaged_file_is_an_error_and_leaves_nothing(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    good = read_manifest(file)
    manifest = make_manifest(parts={**good.parts, WEIGHTS: "0" * 64})
    with pytest.raises(OfflineModelError, match="damaged part"):
        take_parts(file, manifest, root=root, limit_bytes=_LARGE)
    assert list(root.iterdir()) == []


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, root: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = _om(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        _take(file, root, steps=PartSteps(sync=full))
    assert list(root.iterdir()) == []


def test_longest_unused_model_goes_first(tmp_path: Path, root: Path) -> None:
    files = [_om(tmp_path, name) for name in ("a", "b", "c")]
    homes = []
    for number, file in enumerate(files):
        parts = _take(file, root)
        homes.append(parts.directory)
        parts.use.release()
        os.utime(parts.directory / "use.lock", (number, number))
    _take(files[0], root).use.release()  # used again: now the latest
    size = sum(path.stat().st_size for path in homes[0].iterdir())
    prune(root, size * 2 + size // 2)
    assert [home.exists() for home in homes] == [True, False, True]
    prune(root, 0)
    assert list(root.iterdir()) == []


def test_unpacking_keeps_the_cache_within_its_limit(tmp_path: Path, root: Path) -> None:
    for name in ("a", "b", "c"):
        parts = _take(_om(tmp_path, name), root, limit_bytes=1)
        assert list(root.iterdir()) == [parts.directory]
        parts.use.release()


def test_model_in_use_is_never_pruned(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    first, second = _take(file, root), _take(file, root)
    first.use.release()
    prune(root, 0)
    _assert_whole(file, second.directory)
    second.use.release()
    prune(root, 0)
    assert not second.directory.exists()


def test_folder_of_an_older_version_is_taken_over_or_pruned(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    for name in (VERIFIED, "use.lock", "write.lock"):
        (home / name).unlink()
    _take(file, root).use.release()
    assert (home / VERIFIED).exists()
    (home / "use.lock").unlink()
    (root / ".going_1").mkdir()
    prune(root, 0)
    assert list(root.iterdir()) == []


def test_another_process_that_is_busy_for_too_long_is_an_error(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    home = _take(file, root).directory
    (home / WEIGHTS).unlink()
    with take_lock(home / "write.lock") or pytest.fail("held"), pytest.raises(TimeoutError):
        _take(file, root, steps=PartSteps(patience_s=0.02))
    _assert_whole(file, _take(file, root).directory)


def test_threads_share_the_work(tmp_path: Path, root: Path) -> None:
    counts, file = Counted(), _om(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: _take(file, root, steps=counts.steps), range(32)))
    assert counts.unpacked == len(PARTS)
    assert len({parts.directory for parts in taken}) == 1


_LOADER = """
import sys
from pathlib import Path
from aoe.om.cache import prune, take_parts
from aoe.om.file import digest_of, read_manifest
root, names, turns = Path(sys.argv[1]), sys.argv[3:], int(sys.argv[2])
for turn in range(turns):
    file = Path(names[turn % len(names)])
    manifest = read_manifest(file)
    parts = take_parts(file, manifest, root=root, limit_bytes=1)
    found = {name: digest_of(parts.directory / name) for name in manifest.parts}
    assert found == dict(manifest.parts), (turn, file)
    parts.use.release()
    prune(root, 0)
"""


def test_processes_that_load_and_prune_at_once_never_lose_a_part(
    tmp_path: Path, root: Path
) -> None:
    files = [str(_om(tmp_path, name, size=2000)) for name in ("a", "b")]
    command = [sys.executable, "-c", _LOADER, str(root), "40"]
    started = [
        subprocess.Popen([*command, *files[:: 1 - 2 * (number % 2)]], stderr=subprocess.PIPE)
        for number in range(3)
    ]
    for process in started:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()


def test_same_parts_have_one_place_whatever_the_file_is_called(tmp_path: Path, root: Path) -> None:
    file = _om(tmp_path)
    copy = file.with_name("copy.om")
    copy.write_bytes(file.read_bytes())
    assert _take(file, root).directory == _take(copy, root).directory
    manifest: Manifest = read_manifest(_om(tmp_path, "other"))
    assert manifest.parts != read_manifest(file).parts
