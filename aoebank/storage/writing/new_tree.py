"""A tree that comes into being as a whole: made beside its place, and put there by one rename."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.storage.writing.atomic import (
    FILE_MODE,
    make_directories,
    sync_directory,
    temporary_path,
    write_synced,
)
from aoebank.storage.writing.journal import Journal


@dataclass(slots=True)
class NewTree:
    """Files of a folder that is not there yet; the journal knows all of them.

    Attributes:
        path: Where it is going to be, without links.
    """

    path: Path
    _journal: Journal
    _folders: dict[Path, None] = field(default_factory=dict)
    _beside: Path = field(init=False)
    _digests: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beside = temporary_path(self.path)

    def write(self, path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
        """Write a file of the tree, on disk when this returns.

        Args:
            path: Where it is going to be.
        """
        place = self._beside / path.relative_to(self.path)
        self._make(place.parent)
        self._journal.temporary(place)
        write_synced(place, data, mode=mode, like=place.parent)
        self._digests[path.relative_to(self.path)] = hashlib.sha256(data).hexdigest()

    def put_in_place(self) -> None:
        """Give the tree its name; whoever looks sees nothing or all of it.

        Raises:
            BankPathError: something else has that name by now.
        """
        if not self._folders:
            return
        for folder in self._folders:
            sync_directory(folder)
        self._journal.tree(self._beside, self.path, self._digests)
        try:
            os.rename(self._beside, self.path)  # noqa: PTH104
        except OSError as error:
            if not os.path.lexists(self.path):
                raise
            raise BankPathError(
                "came into being meanwhile, so it is left as it is",
                path=self.path,
                hint="run the command again",
            ) from error
        sync_directory(self.path.parent)

    def _make(self, folder: Path) -> None:
        missing = [place for place in (folder, *folder.parents) if place not in self._folders]
        for place in reversed(missing):
            if place.is_relative_to(self._beside):
                self._journal.folder(place)
                make_directories(place)
                self._folders[place] = None
