"""One file: its lock, and the steps of a write that leave the old content or the new one, whole.

CANN's Python writer takes `flock(LOCK_EX)` on the bank file itself and then checks that the
name still means the file it locked. This project does the same: a writer that replaces the
file leaves everybody who waited with a lock on a file that has no name any more, so after
each lock the name is looked up again and, if it has moved on, the lock is taken anew.
A new file gets its name only when it is complete, so there is nothing to lock before it exists.

What no lock can help against: a writer that does not look the name up again after it waited
(its records go into a file without a name), and one that writes what it read before it held
the lock. CANN's C++ tuner does both: it locks a runtime bank, does not read it again, and
writes all records it knows. Records others add between its start and its end are lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import (
    AoebankError,
    BankLockedError,
    BankPathError,
    BankPermissionError,
    shell_word,
)

FILE_MODE = 0o640  # what CANN's readers and writers expect; another one gets a warning there
DIRECTORY_MODE = 0o750
TEMPORARY_SUFFIX = ".aoebank-tmp"
LOCK_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 5.0
NOWHERE_HINT = "bring what it leads to (git annex get, dvc pull), or remove the link"
_POLL_S = 0.01


def mode_of_user() -> int:
    """Return the permissions of a new file that is no bank file: what the user's umask leaves."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents with mode 750, whatever the umask is."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise
            continue
        folder.chmod(DIRECTORY_MODE)
        give_to_owner_of(folder.parent, folder)


def give_to_owner_of(model: Path, new: int | Path) -> None:
    """Let a new file or folder of root belong to whom another one belongs to.

    What root tunes or merges in the bank of a user stays the user's; for others a no-op.
    """
    if os.geteuid() == 0:
        owner = model.stat()
        with contextlib.suppress(OSError):  # root of a container, or squashed by a server
            os.chown(new, owner.st_uid, owner.st_gid)


def replace(temporary: Path, path: Path) -> None:
    """Give a synced file the name of an existing one; call it under the lock of that one."""
    with contextlib.suppress(OSError):  # keep a shared group if we may
        os.chown(temporary, -1, path.stat().st_gid)
    temporary.replace(path)
    sync_directory(path.parent)


def create(temporary: Path, path: Path) -> bool:
    """Give a synced file a new name; return False if somebody else just took it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        return _create_without_links(temporary, path)
    sync_directory(path.parent)
    return True


def _create_without_links(temporary: Path, path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    except FileExistsError:
        return False
    with hold_lock(path) as exists:
        if not exists or path.stat().st_size:
            return False
        temporary.replace(path)
    sync_directory(path.parent)
    return True


def temporary_path(path: Path) -> Path:
    """Return a name beside `path` nobody has yet."""
    return path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")


@contextmanager
def synced_temporary(
    path: Path, data: bytes, *, mode: int, announce: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """Give a synced file with `data` beside `path`; gone afterwards under that name.

    Args:
        announce: Is told the name before there is such a file.
    """
    temporary = temporary_path(path)
    if announce is not None:
        announce(temporary)
    try:
        write_synced(temporary, data, mode=mode, like=path if path.exists() else path.parent)
        del data  # may be large, and who waits for the end of many files need not keep it
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # what stays is told by validate (AB505)
            temporary.unlink(missing_ok=True)


def write_synced(path: Path, data: bytes, *, mode: int, like: Path) -> None:
    """Write a file of a new name; it is on disk when this returns.

    Args:
        like: Whose owner it gets.
    """
    with path.open("xb") as stream:
        give_to_owner_of(like, stream.fileno())
        os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: Path) -> None:
    """Make renames in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def system_errors_explained(path: Path) -> Iterator[None]:
    """Turn errors of the system about writing `path` into ours."""
    try:
        yield
    except AoebankError:
        raise
    except PermissionError as error:
        folder = next((one for one in path.parents if os.access(one, os.F_OK)), path.parent)
        raise BankPermissionError(
            "cannot write here",
            path=path,
            expected="write permission on the file and its folder",
            hint=f"ls -ld {shell_word(folder)}",
        ) from error
    except OSError as error:
        problem = f"cannot write here: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error


def write_scratch(path: Path, data: bytes) -> None:
    """Write a file of a temporary folder of our own, its folders with it: in place, no lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@contextmanager
def written_place(path: Path, root: Path | None = None) -> Iterator[Path]:
    """Yield the file a write to `path` changes, see `real_place`; explain errors of the system."""
    with system_errors_explained(path):
        yield real_place(path, root)


def real_place(path: Path, root: Path | None = None) -> Path:
    """Return the file a write to `path` changes, its folder without links.

    Args:
        root: The tree the write is about; None if a person named an output that is no bank file.
            Below a root a link is a bank file of its own: the write puts a file in its place, and
            what it leads to stays. The root itself may be a link. Without a root the write goes
            to what a link leads to.

    Raises:
        BankPathError: it is no file, or a link that leads out of the tree or to nowhere: banks
            come from others, links in them too, and nothing foreign is followed.
    """
    real = Path(os.path.realpath(path))
    if real.exists() and not (real.is_file() or real.is_dir()):  # a pipe, a device
        raise BankPathError("cannot be written: no regular file", path=path)
    if root is None:
        return real
    top = os.path.realpath(root)
    place = Path(os.path.realpath(path.parent)) / path.name
    if not (real.is_relative_to(top) and place.is_relative_to(top)):
        raise BankPathError(
            "a link leads out of the tree, and nothing is written through it",
            path=path,
            got=real,
            expected=f"a place below {root}",
            hint=f"name it directly: {shell_word(real)}, or put a copy in the place of the link",
        )
    if place.is_symlink() and not place.exists():
        raise BankPathError(
            "is a link to nowhere, and nothing is written through it",
            path=path,
            got=place.readlink(),
            hint=NOWHERE_HINT,
        )
    return place


def tree_of(path: Path, asked: Iterable[Path]) -> Path | None:
    """Return the tree among the paths a person named that a file was met in; None: it was named."""
    named = tuple(asked)
    trees = [place for place in named if path.is_relative_to(place)]
    return None if path in named else max(trees, key=lambda tree: len(tree.parts), default=None)


def digest_of_file(path: Path) -> str | None:
    """Return the SHA-256 of what a file holds now, None if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedChange:
    """Content of one file before and after a change."""

    path: Path
    kept: Path | None  # Where the old content is; None if there was no file
    old_sha256: str | None  # Of the old content
    new_sha256: str | None  # Of the new content; None if the file goes


def put_back(change: NotedChange) -> None:
    """Give a file its old content back, if it has the new one; another one stays."""
    with hold_lock(change.path):
        now = digest_of_file(change.path)
        was_link = change.kept is not None and change.kept.is_symlink()
        if now != change.new_sha256 or (now == change.old_sha256 and not was_link):
            return
        if change.kept is None:
            change.path.unlink()
        elif was_link or digest_of_file(change.kept) == change.old_sha256:
            change.kept.replace(change.path)
        sync_directory(change.path.parent)


# ---- locks ----


@contextmanager
def hold_lock(
    path: Path,
    *,
    timeout_s: float = LOCK_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Hold the exclusive lock of `path`; give False, and hold nothing, if it does not exist.

    Raises:
        BankLockedError: another writer holds it for longer than `timeout_s`.
        BankPermissionError: the file cannot be opened for writing.
    """
    deadline = clock() + timeout_s
    while True:
        descriptor = _open(path)
        if descriptor is None:
            yield False
            return
        try:
            _wait(descriptor, path, deadline, clock, pause)
            if _is_named(descriptor, path):
                yield True
                return
        finally:
            os.close(descriptor)  # closing gives the lock back


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, for what reads many files and then changes them; none if it is none.

    Only calls that ask for it wait for one another: writers of single files do not.

    Raises:
        BankLockedError: another process holds it for longer than `LOCK_TIMEOUT_S`.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # whoever reads it tells what is the matter
        yield
        return
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        _wait(descriptor, folder, deadline, time.monotonic, time.sleep)
        yield
    finally:
        os.close(descriptor)  # closing gives the lock back


def read_settled(
    path: Path,
    *,
    timeout_s: float = SETTLE_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Return the bytes of a file while no writer is at it, or None if that cannot be had.

    CANN's writers truncate a bank and write it again in place, so a reader without a lock
    can meet an empty file or half of one. Asks for the shared lock, which needs no more
    than permission to read.
    """
    deadline = clock() + timeout_s
    try:
        while True:
            with path.open("rb") as stream:
                _wait(stream.fileno(), path, deadline, clock, pause, fcntl.LOCK_SH)
                if _is_named(stream.fileno(), path):
                    return stream.read()
    except (OSError, BankLockedError):
        return None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (PermissionError, IsADirectoryError) as error:
        raise BankPermissionError(
            "file cannot be opened for writing", path=path, hint=f"chmod u+rw {shell_word(path)}"
        ) from error


def _wait(
    descriptor: int,
    path: Path,
    deadline: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    kind: int = fcntl.LOCK_EX,
) -> None:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if clock() >= deadline:
                raise BankLockedError(
                    "another writer holds the lock",
                    path=path,
                    hint=f"wait for it to end; `fuser {shell_word(path)}` names it",
                ) from error
            pause(_POLL_S)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
