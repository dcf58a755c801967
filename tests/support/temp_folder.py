"""A folder for temporary files of one test: `tempfile.tempdir` is the documented setting for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temp_folder(folder: Path) -> Iterator[Path]:
    """Let temporary files and folders of this process be made in `folder`, made if missing."""
    folder.mkdir(exist_ok=True)
    earlier, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = earlier
