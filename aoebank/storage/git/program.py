"""Git as a place to read banks from: revisions, trees and blobs, through the `git` program."""

from __future__ import annotations

import os
import platform
import pwd
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import HistoryError, shell_word
from aoebank.storage.machine import cpu_model

_NOT_FOUND = "git is not installed, or not on PATH"
# another repository's settings must not leak in, and nothing may wait for a person
_STEADY = (
    *("-c", "core.quotePath=false", "-c", "core.fsmonitor=false"),
    # `git log` would print what a signature is worth before each commit, or follow one path
    *("-c", "log.showSignature=false", "-c", "log.follow=false"),
)
FILE_MODES = ("100644", "100755")
LINK_MODE = "120000"
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One file of a revision."""

    path: str  # From the top of the work tree, `/` between the parts
    name: str  # Object name of its content
    mode: str  # As in `100644`; `120000` is a link

    @property
    def is_file(self) -> bool:
        """True for a regular file."""
        return self.mode in FILE_MODES

    @property
    def is_link(self) -> bool:
        """True for a link; its content is the path it leads to."""
        return self.mode == LINK_MODE


def run_git(arguments: Sequence[str], *, cwd: Path, data: bytes | None = None) -> bytes:
    """Run git and return its standard output.

    Args:
        data: Standard input.

    Raises:
        HistoryError: git is not there, or says no; its own words are in the message.
    """
    result = try_git(arguments, cwd=cwd, data=data)
    if result.returncode:
        words = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        said = words[-1] if words else f"exit code {result.returncode}"
        raise HistoryError(f"git {arguments[0]}: {said}", where=str(cwd))
    return result.stdout


def try_git(
    arguments: Sequence[str], *, cwd: Path, data: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return its result, whatever its exit code is.

    Raises:
        HistoryError: git is not there.
    """
    try:
        return subprocess.run(
            ["git", *_STEADY, *arguments],
            cwd=cwd,
            input=data,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL if data is None else None,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise _not_started(cwd, error) from error


def start_git(arguments: Sequence[str], *, cwd: Path) -> subprocess.Popen[bytes]:
    """Start git with a pipe to it and one from it; whoever starts it ends it.

    Raises:
        HistoryError: git is not there.
    """
    try:
        return subprocess.Popen(
            ["git", *_STEADY, *arguments],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise _not_started(cwd, error) from error


def iter_git(arguments: Sequence[str], *, cwd: Path) -> Iterator[bytes]:
    """Run git and yield what it writes, cut at each 0, as it comes; ended when nobody asks more.

    Raises:
        HistoryError: git is not there, or says no.
    """
    process = start_git(arguments, cwd=cwd)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        rest = b""
        while piece := process.stdout.read1(_PIECE_BYTES):  # type: ignore[attr-defined]
            *fields, rest = (rest + piece).split(b"\0")
            yield from fields
        if process.wait():
            run_git(arguments, cwd=cwd)  # tells why
            raise HistoryError(f"git {arguments[0]} ended early", where=str(cwd), hint="git fsck")
    finally:
        process.stdout.close()
        process.kill()
        process.wait()


def find_work_tree(path: Path) -> Path | None:
    """Return the top of the git work tree `path` lies in, or None."""
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        return None
    result = try_git(["rev-parse", "--show-toplevel"], cwd=folder)
    top = os.fsdecode(result.stdout).removesuffix("\n")
    return Path(top) if result.returncode == 0 and top else None


def find_top(path: Path) -> Path | None:
    """Return the top of the work tree `path` lies in, or the bare repository it is; else None."""
    top = find_work_tree(path)
    if top is not None or not path.is_dir():
        return top
    result = try_git(["rev-parse", "--is-bare-repository", "--absolute-git-dir"], cwd=path)
    is_bare, _, folder = os.fsdecode(result.stdout).removesuffix("\n").partition("\n")
    is_here = bool(folder) and Path(folder) == path.resolve()
    return path.resolve() if result.returncode == 0 and is_bare == "true" and is_here else None


def find_commit(revision: str, *, cwd: Path) -> str | None:
    """Return the object name of the commit a revision means, or None if there is none."""
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    result = try_git(arguments, cwd=cwd)
    return result.stdout.decode("ascii").strip() if result.returncode == 0 else None


def get_commit(revision: str, *, cwd: Path) -> str:
    """Return the object name of the commit a revision means.

    Raises:
        HistoryError: there is no such revision, or no repository.
    """
    commit = find_commit(revision, cwd=cwd)
    if commit is None and try_git(["rev-parse", "--git-dir"], cwd=cwd).returncode:
        raise HistoryError(
            "not in a git repository",
            where=f"git:{revision}",
            got=str(cwd),
            hint="cd into the repository that has it",
        )
    if commit is None:
        raise HistoryError(
            "unknown revision",
            where=f"git:{revision}",
            expected="a commit, a branch or a tag",
            hint=f"git -C {shell_word(cwd)} log --oneline",
        )
    return commit


def iter_blobs(commit: str, *, cwd: Path, path: str = "") -> Iterator[Blob]:
    """Yield the files of a commit at or below `path`, in git's order.

    Args:
        path: From the top of the work tree; empty for all.
    """
    place = ["--", path] if path else []
    listing = run_git(["ls-tree", "-r", "-z", "--full-tree", commit, *place], cwd=cwd)
    for entry in listing.split(b"\0"):
        if entry:
            head, _, name = entry.partition(b"\t")
            mode, kind, blob = head.decode("ascii").split()
            if kind == "blob":
                yield Blob(path=os.fsdecode(name), name=blob, mode=mode)


def has_link_above(commit: str, path: str, *, cwd: Path) -> bool:
    """True if a folder above a path of a commit is a link there, or the path itself is."""
    parts = path.split("/")
    places = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
    listing = run_git(["ls-tree", "-z", "--full-tree", commit, "--", *places], cwd=cwd)
    return any(entry.startswith(LINK_MODE.encode()) for entry in listing.split(b"\0"))


def read_blobs(names: Iterable[str], *, cwd: Path) -> Iterator[bytes]:
    """Yield the contents of blobs, in the order of their object names."""
    wanted = list(names)
    if not wanted:
        return
    output = run_git(["cat-file", "--batch"], cwd=cwd, data="\n".join(wanted).encode() + b"\n")
    start = 0
    for name in wanted:
        end = output.index(b"\n", start)
        fields = output[start:end].split()
        if len(fields) != 3:
            raise HistoryError("object is missing", where=f"git:{name}", hint="git fsck")
        size = int(fields[2])
        yield output[end + 1 : end + 1 + size]
        start = end + 1 + size + 1


def _not_started(cwd: Path, error: OSError) -> HistoryError:
    if isinstance(error, FileNotFoundError):
        return HistoryError(_NOT_FOUND if cwd.is_dir() else "no such directory", where=str(cwd))
    return HistoryError("not a directory we can enter", where=str(cwd))


def current_identity(folder: Path) -> str:
    """Return the name and address git would write here, else login and host."""
    try:
        answers = [
            try_git(["config", "--get", name], cwd=folder) for name in ("user.name", "user.email")
        ]
    except HistoryError:  # no git on this machine
        return _login()
    name, address = (os.fsdecode(answer.stdout).strip() for answer in answers)
    if not name and not address:
        return _login()
    return f"{name} <{address}>".strip() if address else name


def current_machine() -> Mapping[str, str]:
    """Return the facts that tell this machine and program from others when times are compared."""
    from aoebank import __version__

    return {
        "aoebank": __version__,
        "python": platform.python_version(),
        "host": platform.node(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
    }


def _login() -> str:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a made-up user
        name = f"uid {os.getuid()}"
    return f"{name}@{platform.node()}"
