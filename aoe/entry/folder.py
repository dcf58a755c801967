"""The models of a directory (`--model_path`): each file an entry reads, each dump, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.entry.protocol import Entry
from aoe.entry.registry import ENTRIES
from aoe.errors import ModelNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model of a directory."""

    path: Path  # Its file, or its own directory
    framework: int | None  # AOE's number of what reads it, None for a directory of graphs
    weight: Path | None = None  # Second file, for frameworks that keep the weights apart


def find_models(
    folder: Path, *, where: str = "", besides: Sequence[str] = ()
) -> tuple[FoundModel, ...]:
    """Return the models of a directory, sorted by name: files, and directories that are models.

    A directory that is a model itself, a dump of `aoe.torch.set_aoe` or a SavedModel, is one.

    Args:
        folder: The directory.
        where: What errors call it; AOE's option if empty.
        besides: Suffixes of files that are taken as well, such as `.om`; of no framework.

    Raises:
        ModelNotFoundError: no such directory, or no model in it.
    """
    where = where or f"--model_path={folder}"
    if not folder.is_dir():
        missing = "not a directory" if folder.exists() else "no such directory"
        raise ModelNotFoundError(where, missing)
    found = tuple(_folder_model(folder)) or tuple(_models_of(folder, besides))
    if not found:
        suffixes = [suffix for entry in ENTRIES.values() for suffix in entry.suffixes]
        files = [f"*{suffix}" for suffix in (*suffixes, *besides)]
        folders = [entry.folder_file for entry in ENTRIES.values() if entry.folder_file]
        raise ModelNotFoundError(
            where,
            "no model in it",
            expected=", ".join((*files, f"or a directory with {' or '.join(folders)}")),
        )
    return found


def _models_of(folder: Path, besides: Sequence[str]) -> Iterator[FoundModel]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _folder_model(path)
            continue
        if path.suffix.lower() in besides:
            yield FoundModel(path=path, framework=None)
        for framework, entry in ENTRIES.items():
            if path.suffix.lower() in entry.suffixes:
                yield FoundModel(path=path, framework=framework, weight=_weight(path, entry))


def _folder_model(folder: Path) -> Iterator[FoundModel]:
    """Yield the directory if it is a model itself."""
    for framework, entry in ENTRIES.items():
        if entry.folder_file and (folder / entry.folder_file).exists():
            yield FoundModel(path=folder, framework=framework)


def _weight(path: Path, entry: Entry) -> Path | None:
    """Return the file of the same name with the weights, None if there is none."""
    if not entry.weight_suffix:
        return None
    weight = path.with_suffix(entry.weight_suffix)
    if weight.exists():
        return weight
    others = (one for one in sorted(path.parent.iterdir()) if one.stem == path.stem)
    return next((one for one in others if one.suffix.lower() == entry.weight_suffix), None)
