"""What commands do with files: the driver as git calls it, a merge of trees into a new one."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

from aoebank import AoebankError, merge
from aoebank.git.driver import DriverCall, DriverFiles, run_merge_driver
from aoebank.merging.decisions import Three
from aoebank.merging.merge_bytes import merge_bytes
from aoebank.merging.versions import MergeContext
from support.fuzz.inputs import FuzzInput
from support.fuzz.reader import FindError

_VERSIONS = ("base", "ours", "theirs")


def check_on_disk(tried: FuzzInput, scratch: Path) -> None:
    """Merge files and trees of an input; both write what the merge in memory gives.

    Raises:
        FindError: they do not, or a failed merge leaves something.
    """
    root = scratch / "disk"
    try:
        for version in _VERSIONS:
            (root / version).mkdir(parents=True)
            (root / version / tried.name).write_bytes(getattr(tried, version))
        _check_driver(tried, root)
        _check_trees(tried, root)
    finally:
        shutil.rmtree(root)


def _expected(tried: FuzzInput) -> bytes | None:
    versions = Three(base=tried.base or None, ours=tried.ours, theirs=tried.theirs)
    try:
        return merge_bytes(versions, Path(tried.name), MergeContext()).data
    except AoebankError:  # what one side alone changed a tree takes as it is, broken or not
        return tried.theirs if tried.ours == tried.base else tried.ours


def _check_driver(tried: FuzzInput, root: Path) -> None:
    base, ours, theirs = (root / version / tried.name for version in _VERSIONS)
    result = root / "result.json"
    shutil.copyfile(ours, result)
    files = DriverFiles(base=base, ours=result, theirs=theirs, path=Path(tried.name))
    call = DriverCall(cwd=root, env={}, today=date(2026, 1, 2))
    try:
        run_merge_driver(files, call)
    except AoebankError:
        if result.read_bytes() != tried.ours:
            raise FindError("a driver that fails changed ours") from None
        return
    if result.read_bytes() != (_expected(tried) or b""):
        raise FindError("the driver writes something else than the merge")


def _check_trees(tried: FuzzInput, root: Path) -> None:
    base, ours, theirs, new = (root / name for name in (*_VERSIONS, "new"))
    try:
        merge(ours, theirs, base=base, output=new, allow_unrelated=True)
    except AoebankError:
        if new.exists():
            raise FindError("a merge that fails leaves its destination") from None
        return
    merged = new / tried.name
    found = merged.read_bytes() if merged.exists() else None
    if found != _expected(tried):
        raise FindError("the merge of trees writes something else than that of files")
