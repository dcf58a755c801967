"""Look into the folders of a bank without ever raising."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aoebank.model.resolution import Query
from aoebank.storage.readers.places import SHORT_SOC, SOC, Place, Rules
from aoebank.storage.readers.soc_versions import short_soc

_ARCH = "<arch>"


def find_files(rules: Rules, place: Place, root: Path, query: Query) -> list[Path]:
    """Return the files a program would open below `root`: all of the first folder that has some."""
    for below in place.below:
        found = [
            path
            for folder, asked in _folders(root, below, query)
            for path in list_files(folder)
            if is_asked_for(path.name, rules, asked)
            or (place.any_name and path.suffix == ".json" and _has_format(path, rules))
        ]
        if found:
            return found
    return []


def is_asked_for(name: str, rules: Rules, query: Query) -> bool:
    """True if a file name is one a program would open for a query."""
    from aoebank.formats.registry import get_format  # heavy, and many callers look at no file

    format_ = get_format(rules.format)
    found = format_.parse_name(name)
    return found is not None and (
        (
            None in (query.soc_version, found.soc_version)
            or format_.is_soc(str(found.soc_version), str(query.soc_version))
        )
        and (None in (query.core_num, found.core_num) or query.core_num == found.core_num)
        and (None in (query.op_type, found.op_type) or query.op_type == found.op_type)
        and (None in (query.core_type, found.core_type) or query.core_type == found.core_type)
    )


def file_name(rules: Rules, query: Query) -> str:
    """Return the name a program would open or write, open parts in angle brackets."""
    from aoebank.formats.registry import get_format

    return get_format(rules.format).build_name(query)


def _folders(root: Path, below: str, query: Query) -> Iterator[tuple[Path, Query]]:
    """Yield the folders of a pattern with the query for the files there."""
    if query.soc_version is not None or not {SOC, SHORT_SOC} & set(Path(below).parts):
        yield root / fill(below, query.soc_version), query
        return
    for name in list_names(root):
        folder = root / below.replace(SOC, name).replace(SHORT_SOC, name)
        yield folder, replace(query, soc_version=name) if SOC in below else query


def fill(below: str, soc_version: str | None) -> str:
    """Return a folder pattern for a soc_version; left open when there is none."""
    if soc_version is None:
        return below
    return below.replace(SHORT_SOC, short_soc(soc_version)).replace(SOC, soc_version)


def built_in_roots(path: Path, folder: str) -> list[Path]:
    """Return the directories `folder` means from `path`, the processor filled in."""
    if _ARCH not in folder:
        return [path / folder]
    base = path.parent
    start, rest = folder.removeprefix("../").split("/", 1)
    suffix = start.removeprefix(_ARCH)
    found = [base / name / rest for name in list_names(base) if name.endswith(suffix)]
    return found or [base / start / rest]


def list_names(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones left out; none if it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except (OSError, ValueError):
        return []


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a folder, sorted, hidden ones left out."""
    for name in list_names(folder):
        if kind_of(folder / name) == "file":
            yield folder / name


def _has_format(path: Path, rules: Rules) -> bool:
    from aoebank.formats.registry import HEAD_BYTES, find_format  # heavy, and rarely needed

    try:
        with path.open("rb") as stream:
            format_ = find_format(path, stream.read(HEAD_BYTES))
    except OSError:
        return False
    return format_ is not None and str(format_.name) == rules.format


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 when that cannot be told."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def kind_of(path: Path) -> str:
    """Return `directory`, `file`, `other`, `missing`, or why it cannot be told."""
    try:
        if path.is_dir():
            return "directory"
        if path.is_file():
            return "file"
        return "other" if path.exists() else "missing"
    except OSError as error:  # a name too long
        return str(error.strerror or error).lower()


def problem_of(path: Path) -> str:
    """Return the problem that keeps a path from being a directory, in words."""
    kind = kind_of(path)
    words = {"missing": "does not exist", "file": "is not a directory"}
    return words.get(kind, "is not a directory" if kind == "other" else kind)
