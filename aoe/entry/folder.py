"""The models of a directory (`--model_path`): each file an entry reads, each dump, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aoe.entry.protocol import Entry
from aoe.entry.registry import ENTRIES
from aoe.entry.torch_dump import DUMP_FILE
from aoe.errors import ModelNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model of a directory.

    Attributes:
        path: Its file, or its own directory.
        framework: AOE's number of what reads it, None for a directory of graphs.
        weight: Second file, for frameworks that keep the weights apart.
    """

    path: Path
    framework: int | None
    weight: Path | None = None


def find_models(folder: Path) -> tuple[FoundModel, ...]:
    """Return the models of a directory, sorted by name; of its own directories, those of graphs.

    A directory that is a dump itself is one model.

    Raises:
        ModelNotFoundError: no such directory, or no model in it.
    """
    where = f"--model_path={folder}"
    if not folder.is_dir():
        missing = "not a directory" if folder.exists() else "no such directory"
        raise ModelNotFoundError(where, missing)
    if (folder / DUMP_FILE).exists():
        return (FoundModel(path=folder, framework=None),)
    found = tuple(_models_of(folder))
    if not found:
        read = [f"*{suffix}" for entry in ENTRIES.values() for suffix in entry.suffixes]
        raise ModelNotFoundError(
            where,
            "no model in it",
            expected=", ".join((*read, f"or a dump of aoe.torch.set_aoe ({DUMP_FILE})")),
        )
    return found


def _models_of(folder: Path) -> Iterator[FoundModel]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if (path / DUMP_FILE).exists():
                yield FoundModel(path=path, framework=None)
            continue
        for framework, entry in ENTRIES.items():
            if path.suffix.lower() in entry.suffixes:
                yield FoundModel(path=path, framework=framework, weight=_weight(path, entry))


def _weight(path: Path, entry: Entry) -> Path | None:
    """Return the file of the same name with the weights, None if there is none."""
    if not entry.weight_suffix:
        return None
    weight = path.with_suffix(entry.weight_suffix)
    return weight if weight.exists() else None
