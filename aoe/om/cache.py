"""Unpacked parts of `.om` files, kept for the next load and never trusted unseen.

The folder is used only if nobody but this user and root can put files into it. Each load holds the
native code and the graphs against the digests of the `.om`, which takes milliseconds; the weights,
half a second for a GB, only if they look different than when this was done last.

A folder for each distinct model, `<digest of the parts' digests>`, with the parts and

- `verified.json`: what the weights looked like (size, times, inode) when their sha256 was checked
  last. A part that is another one is unpacked again.
- `use.lock`: shared by everybody who has the model loaded; its time is that of the last use.
- `write.lock`: held while parts are checked or replaced. A part is replaced under its name, so
  that whoever has the old one open or mapped keeps it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from aoe.folders.disk_cache import remove_unused
from aoe.folders.locks import FileLock, take_lock
from aoe.folders.ownership import check_own_folder, is_own, make_own_folder
from aoe.om.file import WEIGHTS, Manifest, digest_of, unpack_part
from aoe.results.files import write_json

VERIFIED = "verified.json"
_USE_LOCK = "use.lock"
_WRITE_LOCK = "write.lock"
_STAGING = "new"
_GOING = ".going_"
_SCHEMA = "aoe.cache/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Facts of a file seen from outside; each change of its contents changes one of them."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verified:
    """The weights when they were hashed last."""

    sha256: str
    look: _Look


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedParts:
    """Verified parts of a model; they stay at least as long as `use` is held."""

    directory: Path
    use: FileLock


def sync_to_disk(path: Path) -> None:
    """Return when a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSteps:
    """Steps that parts of a model take on their way into a folder."""

    # Unpacks one part of a file into a folder and checks it.
    unpack: Callable[[Path, Manifest, str, Path], None] = unpack_part
    digest: Callable[[Path], str] = digest_of  # Returns the sha256 of a file in hexadecimal digits
    sync: Callable[[Path], None] = sync_to_disk  # Returns when a file or folder is on disk
    patience_s: float = 60.0  # How long another process may take to unpack the same model


PART_STEPS = PartSteps()


def take_parts(
    file: Path,
    manifest: Manifest,
    *,
    root: Path,
    limit_bytes: int,
    steps: PartSteps = PART_STEPS,
) -> CachedParts:
    """Return the parts of an `.om` from the cache, unpacked anew where they are not what they were.

    Args:
        file: The `.om`.
        root: Folder of the cache, made if it is missing.
        limit_bytes: Models not used for the longest time go until the rest is no larger; models
            in use stay.
        steps: How parts are unpacked and checked.

    Raises:
        UnsafeFolderError: others could put files into the cache.
        OSError: it cannot be used: no permission, no space, no locks, somebody busy in it.
        OfflineModelError: a part that has to be unpacked is damaged.
    """
    root = make_own_folder(root)
    home = root / _name_of(manifest)
    use = _use(home, steps.patience_s)
    try:
        check_own_folder(home)
        if not _is_verified(home, manifest, steps):
            _renew(file, manifest, home, steps)
            prune(root, limit_bytes)
    except BaseException:
        use.release()
        _forget_empty(home, manifest)
        raise
    use.touch()
    return CachedParts(directory=home, use=use)


def prune(root: Path, limit_bytes: int) -> None:
    """Remove models not in use, longest unused first, until the rest is within the limit."""
    for path in root.glob(f"{_GOING}*"):  # of a process that was killed while it removed it
        shutil.rmtree(path, ignore_errors=True)
    sizes = {path: _size_of(path) for path in root.iterdir() if path.is_dir()}
    remove_unused(sizes, last_use=_last_use, limit_bytes=limit_bytes, remove=_remove)


def _name_of(manifest: Manifest) -> str:
    digests = json.dumps(dict(manifest.parts), sort_keys=True)
    return hashlib.sha256(digests.encode()).hexdigest()[:32]


def _use(home: Path, patience_s: float) -> FileLock:
    """Return the shared lock of a model's folder, which is made if it is missing."""
    while True:
        try:
            home.mkdir(0o755, exist_ok=True)
        except FileNotFoundError:  # the cache itself was deleted this very moment
            make_own_folder(home.parent)
            continue
        except FileExistsError:  # or pruned before it was looked at
            if home.is_file():
                raise
        try:
            return _taken(home / _USE_LOCK, patience_s, shared=True)
        except FileNotFoundError:  # pruned this very moment
            continue


def _taken(file: Path, patience_s: float, *, shared: bool = False) -> FileLock:
    lock = take_lock(file, shared=shared, wait_s=patience_s)
    if lock is None:
        raise TimeoutError(f"{file} is held by another process")
    return lock


# ---- what is verified ----


def _is_verified(home: Path, manifest: Manifest, steps: PartSteps) -> bool:
    known = _verified(home)
    if known is None or known.sha256 != manifest.parts[WEIGHTS]:
        return False
    return known.look == _look_of(home / WEIGHTS) and all(
        _sound_look(home / name, digest, known, steps) is not None
        for name, digest in manifest.parts.items()
    )


def _verified(home: Path) -> _Verified | None:
    """Return digest and look of the weights as they were verified last; None if not known."""
    try:
        if not is_own((home / VERIFIED).stat()):
            return None
        value = json.loads((home / VERIFIED).read_text("utf-8"))
        if value["schema"] != _SCHEMA:
            return None
        return _Verified(sha256=value["sha256"], look=_Look(**value["look"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _look_of(file: Path) -> _Look | None:
    try:
        return _look(file.stat())
    except OSError:
        return None


def _look(facts: os.stat_result) -> _Look:
    return _Look(
        size=facts.st_size,
        mtime_ns=facts.st_mtime_ns,
        ctime_ns=facts.st_ctime_ns,
        inode=facts.st_ino,
    )


def _renew(file: Path, manifest: Manifest, home: Path, steps: PartSteps) -> None:
    """Hash what looks different, unpack what is different, and note how the weights look now."""
    with _taken(home / _WRITE_LOCK, steps.patience_s):
        known = _verified(home)
        looks = {
            name: _sound_look(home / name, digest, known, steps)
            for name, digest in manifest.parts.items()
        }
        wrong = [name for name, look in looks.items() if look is None]
        if wrong:
            _unpack(file, manifest, wrong, home, steps)
        look = looks[WEIGHTS] or _look_of(home / WEIGHTS)
        if look is not None:
            verified = _Verified(sha256=manifest.parts[WEIGHTS], look=look)
            write_json(home / VERIFIED, {"schema": _SCHEMA, **asdict(verified)})


def _sound_look(file: Path, digest: str, known: _Verified | None, steps: PartSteps) -> _Look | None:
    """Return the look of a part, None if it is missing, another one, or for others to write to."""
    try:
        facts = file.stat()  # before its bytes are read: a later change will show
        look = _look(facts)
        if not is_own(facts):
            return None
        if file.name == WEIGHTS and known == _Verified(sha256=digest, look=look):
            return look
        return look if steps.digest(file) == digest else None
    except OSError:
        return None


def _unpack(
    file: Path, manifest: Manifest, names: Iterable[str], home: Path, steps: PartSteps
) -> None:
    """Put parts into a model's folder, each whole and synced, all of them or none."""
    staging = home / _STAGING
    shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
    staging.mkdir()
    try:
        for name in names:
            steps.unpack(file, manifest, name, staging)
            steps.sync(staging / name)
        for path in staging.iterdir():
            path.replace(home / path.name)
        steps.sync(home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


# ---- what goes ----


def _forget_empty(home: Path, manifest: Manifest) -> None:
    if not any((home / name).exists() for name in manifest.parts):
        _remove(home)


def _remove(home: Path) -> bool:
    """Remove a model's folder unless somebody uses it; return whether it is gone."""
    going = home.with_name(f"{_GOING}{secrets.token_hex(8)}")
    try:
        use = take_lock(home / _USE_LOCK)
        if use is None:
            return False
        with use:
            home.rename(going)  # whoever waits for the lock finds it has lost its name
    except OSError:
        return False
    shutil.rmtree(going, ignore_errors=True)
    return True


def _size_of(home: Path) -> int:
    files = [Path(folder, name) for folder, _, names in os.walk(home) for name in names]
    return sum(look.size for look in map(_look_of, files) if look is not None)


def _last_use(home: Path) -> int:
    """Return when a model was used last; folders of older versions have no lock file."""
    look = _look_of(home / _USE_LOCK) or _look_of(home)
    return look.mtime_ns if look is not None else 0
