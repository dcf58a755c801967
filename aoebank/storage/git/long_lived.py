"""Git programs that stay and answer one request after another.

A program started per file costs milliseconds each, thousands of times over in a repository of
sources; one that stays costs microseconds. It ends with the object that asks it.
"""

from __future__ import annotations

import os
import subprocess
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from aoebank.errors import HistoryError
from aoebank.storage.git.program import FILE_MODES, LINK_MODE, run_git, start_git

_EMPTY_TREE = ("hash-object", "-t", "tree", "--stdin")
_LAST = b"/\n"  # no object name: `git diff-tree --stdin` writes it back, and what it held with it
_PIECE_BYTES = 1 << 16
_KEPT_NAMES = 4096


class _LongLivedProcess:
    """One git program with a pipe to it and one from it, started when first asked."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.cwd = cwd
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: bytes) -> IO[bytes]:
        """Send a request; return where the answer comes from."""
        if self._process is None or self._owner != os.getpid():  # a fork shares no pipe
            self._owner = os.getpid()
            self._process = start_git(self._arguments, cwd=self.cwd)
            weakref.finalize(self, _end, self._process, self._owner)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self.broken() from error
        return self._process.stdout

    def broken(self) -> HistoryError:
        """Return the error for a program that ended."""
        command = f"git {self._arguments[0]}"
        return HistoryError(f"{command} ended early", where=str(self.cwd), hint="git fsck")


class ObjectReader:
    """Contents of objects, from one `git cat-file --batch`."""

    def __init__(self, cwd: Path) -> None:
        self._program = _LongLivedProcess("cat-file", "--batch", cwd=cwd)
        self._trees: dict[str, str] = {}

    @property
    def cwd(self) -> Path:
        """Return a folder in the repository."""
        return self._program.cwd

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            HistoryError: it is missing.
        """
        return self._read(name, None)[1]

    def read_head(self, name: str, size: int) -> bytes:
        """Return the first `size` bytes of an object, the rest passed over.

        Raises:
            HistoryError: it is missing.
        """
        return self._read(name, size)[1]

    def tree_of(self, commit: str) -> str:
        """Return the object name of the tree of a commit; of the empty tree for no commit."""
        found = self._trees.get(commit)
        if found is None:
            if len(self._trees) >= _KEPT_NAMES:
                self._trees.clear()
            found = self._read(f"{commit}^{{tree}}", 0)[0] if commit else self._empty_tree()
            self._trees[commit] = found
        return found

    def _empty_tree(self) -> str:
        return run_git(_EMPTY_TREE, cwd=self.cwd, data=b"").decode("ascii").strip()

    def _read(self, name: str, size: int | None) -> tuple[str, bytes]:
        """Return the object name and the first `size` bytes of an object; None: all."""
        stream = self._program.ask(name.encode("ascii") + b"\n")
        fields = stream.readline().split()
        if not fields:
            raise self._program.broken()
        if len(fields) != 3:
            raise HistoryError("object is missing", where=f"git:{name}", hint="git fsck")
        total = int(fields[2])
        data = stream.read(total if size is None else min(size, total))
        rest = total - len(data) + 1  # a line end follows
        while rest and (piece := stream.read(min(rest, _PIECE_BYTES))):
            rest -= len(piece)
        if rest:
            raise self._program.broken()
        return fields[0].decode("ascii"), data


class TreeReader:
    """The regular files of commits that match pathspecs, from one `git diff-tree`.

    Two trees are compared, never listed: what they share is not looked into.

    Attributes:
        links: Links among what matches, of the commit `files` was asked about last.
        met_links: Links among what the last comparison found; true for those the second tree has.
    """

    def __init__(self, pathspecs: tuple[str, ...], *, objects: ObjectReader) -> None:
        options = ("--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")
        self._program = _LongLivedProcess("diff-tree", *options, "--", *pathspecs, cwd=objects.cwd)
        self.objects = objects
        self.links: set[str] = set()
        self.met_links: dict[str, bool] = {}
        self._last = ""
        self._files: dict[str, str] = {}

    def files(self, commit: str) -> dict[str, str]:
        """Return the object name of each file by its path; cheap if asked for in a row."""
        for path, (_, new) in self.differences(self._last, commit).items():
            if new is None:
                self._files.pop(path, None)
            else:
                self._files[path] = new
        for path, is_there in self.met_links.items():
            (self.links.add if is_there else self.links.discard)(path)
        self._last = commit
        return dict(self._files)

    def differences(self, old: str, new: str) -> dict[str, tuple[str | None, str | None]]:
        """Return the object names a file has in two commits, where they differ.

        Args:
            old: A commit; empty for nothing at all.
        """
        trees = [self.objects.tree_of(commit).encode("ascii") for commit in (old, new)]
        found: dict[str, tuple[str | None, str | None]] = {}
        self.met_links = {}
        if trees[0] == trees[1]:
            return found
        request = b" ".join(trees) + b"\n"
        fields = self._ask(request).removeprefix(request).split(b"\0")[:-1]
        for head, path in zip(fields[::2], fields[1::2], strict=True):
            old_mode, new_mode, old_name, new_name, _ = head[1:].decode("ascii").split()
            names = (_file(old_mode, old_name), _file(new_mode, new_name))
            if LINK_MODE in (old_mode, new_mode):
                self.met_links[os.fsdecode(path)] = new_mode == LINK_MODE
            if names[0] != names[1]:
                found[os.fsdecode(path)] = names
        return found

    def _ask(self, request: bytes) -> bytes:
        stream = self._program.ask(request + _LAST)
        answer = bytearray()
        # a path does not begin with `/`, so behind a 0 this is the end
        while not (answer.endswith(b"\0" + _LAST) or answer == request + _LAST):
            piece = stream.read1(_PIECE_BYTES)  # type: ignore[attr-defined]
            if not piece:
                raise self._program.broken()
            answer += piece
        return bytes(answer[: -len(_LAST)])


class CommitTree:
    """The files of a commit that a tree reader looks for, by their path from the top."""

    def __init__(self, commit: str, *, trees: TreeReader) -> None:
        self.commit = commit
        self.blobs = trees.files(commit)
        self._objects = trees.objects

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if the commit has none of this name."""
        blob = self.blobs.get(path)
        return None if blob is None else self._objects.read(blob)

    def read_head(self, path: str, size: int) -> bytes:
        """Return the first `size` bytes of a file; none if the commit has none of this name."""
        blob = self.blobs.get(path)
        return b"" if blob is None else self._objects.read_head(blob, size)


def _file(mode: str, name: str) -> str | None:
    """Return the object name of a regular file; None for no file, a link or a submodule."""
    return name if mode in FILE_MODES else None


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner != os.getpid():
        return
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    process.wait()
