"""The files of a commit, read as they are asked for."""

from __future__ import annotations

from pathlib import Path

from aoebank.storage.git.program import iter_blobs, read_blobs

_FILE_MODES = ("100644", "100755")  # a link in a revision leads nowhere here


class CommitTree:
    """The regular files of a commit by their path from the top."""

    def __init__(self, commit: str, *, cwd: Path) -> None:
        self.commit = commit
        self._cwd = cwd
        self.blobs = {
            blob.path: blob.name for blob in iter_blobs(commit, cwd=cwd) if blob.mode in _FILE_MODES
        }

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if the commit has none of this name."""
        blob = self.blobs.get(path)
        return None if blob is None else next(read_blobs([blob], cwd=self._cwd))
