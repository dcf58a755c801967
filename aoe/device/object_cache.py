"""Compiled kernels, kept from run to run: what was compiled for a target once is not again.

One file for each kernel, named after the digest of all it depends on: what it computes, its
schedule, the CPU features it is compiled for, Halide's version and the sources of its family: a
change of one family leaves the kernels of the others. The digests of sources are kept, too:
reading them takes as long as everything else of a run that finds all in the bank.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path

from aoe.bank.sources import kernel_files, kernel_source
from aoe.device.compiler import BUILD_FEATURES, KernelSource, halide_features
from aoe.device.kept_objects import KeptObjects
from aoe.folders.disk_cache import DiskCache
from aoe.schedule import schedule_to_json
from aoe.target import Target
from aoe.workload import workload_to_json

_SUFFIX, _SOURCES = ".kernel", ".sources"
_KERNELS = "kernels"
_SHARED_SOURCES = (
    *("kernels/family.py", "kernels/halide", "operators", "schedule"),
    *("device/compiler.py", "target.py", "workload.py"),
)
"""Sources inside the package that every kernel depends on, besides the files its family imports."""


class ObjectCache:
    """Objects of kernels for one target, kept in a folder many processes may share.

    Args:
        root: Folder, made when something is put into it; not used where others can write to it.
        target: What kernels are compiled for.
        limit_bytes: What it may hold.
        renew: True to compile everything anew and keep that.
        build_features: Halide's features the objects are compiled with.

    Attributes:
        hits: Kernels taken so far.
        kept: The folder.
    """

    def __init__(
        self,
        root: Path,
        target: Target,
        *,
        limit_bytes: int,
        renew: bool = False,
        build_features: Sequence[str] = BUILD_FEATURES,
    ) -> None:
        self.hits = 0
        self.kept = KeptObjects(files=DiskCache(root, limit_bytes), renew=renew)
        self._build_features = tuple(build_features)
        self._target = target
        self._sources: dict[str, _FamilySources] = {}

    @property
    def root(self) -> Path:
        """Real path of the folder."""
        return self.kept.files.root

    def has(self, source: KernelSource) -> bool:
        """True if a kernel was compiled before: its schedule fits what it computes."""
        return bool(self._family(source).files) and self.kept.has(self._name_of(source))

    def kernel_source(self, op_type: str) -> str | None:
        """Return the digest of a family's sources, as `aoe.bank.sources.kernel_source` does."""
        return self._sources_of(op_type).code

    def take(self, source: KernelSource, directory: Path) -> bool:
        """Write the objects of a kernel into a folder; return False if they are not known."""
        if not self._family(source).files or not self.kept.take(self._name_of(source), directory):
            return False
        self.hits += 1
        return True

    def put(self, source: KernelSource, objects: Sequence[Path]) -> None:
        """Keep the objects of a kernel, if the folder can be written to; none that is empty."""
        if self._family(source).files:
            self.kept.put(self._name_of(source), objects)

    def prune(self) -> None:
        """Remove what has not been used for the longest time, where there is too much."""
        self.kept.files.prune()

    def _name_of(self, source: KernelSource) -> str:
        key = object_key(
            source, self._target, self._build_features, sources=lambda _: self._family(source).all
        )
        return f"{key}{_SUFFIX}"

    def _family(self, source: KernelSource) -> _FamilySources:
        return self._sources_of(source.workload.op_type)

    def _sources_of(self, op_type: str) -> _FamilySources:
        """Return the digests of a family's sources, read anew where they have changed."""
        if op_type in self._sources:
            return self._sources[op_type]
        name, found = f"{_all_kernels()}-{op_type}{_SOURCES}", None
        with suppress(OSError, ValueError, TypeError):
            if (text := self.kept.text(name)) is not None:
                found = _FamilySources(**json.loads(text))
        if found is None:
            found = _FamilySources.read(op_type)
            self.kept.put_text(name, json.dumps(asdict(found)))
        return self._sources.setdefault(op_type, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FamilySources:
    """Sources of a kernel family, by their digests."""

    files: int  # How many there are; none of a family made at run time
    code: str | None  # Of their code, see `kernel_source`; None if there are none
    all: str  # Of all that decides the bytes of its kernels, see `sources_digest`

    @classmethod
    def read(cls, op_type: str) -> _FamilySources:
        return cls(
            files=len(kernel_files(op_type)),
            code=kernel_source(op_type),
            all=sources_digest(op_type),
        )


def object_key(
    source: KernelSource,
    target: Target,
    build_features: Sequence[str] = BUILD_FEATURES,
    *,
    halide_version: str | None = None,
    sources: Callable[[str], str] | None = None,
) -> str:
    """Return a digest of all that decides the bytes a kernel is compiled to.

    Args:
        source: The kernel.
        target: What it is compiled for.
        build_features: Halide's features it is compiled with.
        halide_version: Of the compiler; the installed one by default.
        sources: Gives the digest of the sources of a family, `sources_digest` by default.
    """
    facts = [
        source.name,
        workload_to_json(source.workload),
        schedule_to_json(source.schedule),
        halide_features(source, target, build_features),
        halide_version or version("halide"),
        (sources or sources_digest)(source.workload.op_type),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def sources_digest(op_type: str) -> str:
    """Return a digest of the sources that make the kernels of a family."""
    package = resources.files("aoe")
    found = {path: package / path for path in kernel_files(op_type)}
    for name in _SHARED_SOURCES:
        found.update(_files(package / name, name))
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(f"{path}\n".encode() + found[path].read_bytes())
    return digest.hexdigest()


@cache
def _all_kernels() -> str:
    """Return a digest of all sources any family may be made of."""
    package = resources.files("aoe")
    digest = hashlib.sha256()
    for name in (_KERNELS, *_SHARED_SOURCES):
        for path, place in sorted(_files(package / name, name), key=lambda one: one[0]):
            digest.update(f"{path}\n".encode() + place.read_bytes())
    return digest.hexdigest()[:32]


def _files(place: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    if place.is_file():
        if path.endswith(".py"):
            yield path, place
        return
    for entry in place.iterdir():
        yield from _files(entry, f"{path}/{entry.name}")
