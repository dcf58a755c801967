"""Compiled kernels, kept from run to run: what was compiled for a target once is not again.

One file for each kernel, named after the digest of all it depends on: what it computes, its
schedule, the CPU features it is compiled for, Halide's version and the sources of its family: a
change of one family leaves the kernels of the others.
A file holds the objects and their digests, is written whole or not at all, and is believed only
when it is still what was written. What has not been used for the longest time goes first.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO

from aoe.bank.sources import kernel_files
from aoe.device.compiler import BUILD_FEATURES, KernelSource, halide_features
from aoe.folders.disk_cache import DiskCache
from aoe.schedule import schedule_to_json
from aoe.target import Target
from aoe.workload import workload_to_json

_SCHEMA = "aoe.compiled_kernel/1"
_MANIFEST = "manifest.json"
_SUFFIX = ".kernel"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHARED_SOURCES = (
    *("kernels/family.py", "kernels/halide", "operators", "schedule"),
    *("device/compiler.py", "target.py", "workload.py"),
)
"""Sources inside the package that every kernel depends on, besides the files its family imports."""

_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class ObjectCache:
    """Objects of kernels for one target, kept in a folder many processes may share.

    Args:
        root: Folder, made when something is put into it; not used where others can write to it.
        target: What kernels are compiled for.
        limit_bytes: What it may hold.
        renew: True to compile everything anew and keep that.
        build_features: Halide's features the objects are compiled with.
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
        self._files = DiskCache(root, limit_bytes)
        self._build_features = tuple(build_features)
        self._target = target
        self._renew = renew

    @property
    def root(self) -> Path:
        """Real path of the folder."""
        return self._files.root

    def take(self, source: KernelSource, directory: Path) -> bool:
        """Write the objects of a kernel into a folder; return False if they are not known."""
        if self._renew or not _has_sources(source):
            return False
        name = self._name_of(source)
        file = self._files.take(name)
        if file is None:
            return False
        try:
            for part, content in _read(file).items():
                (directory / part).write_bytes(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, *_UNREADABLE):
            self._files.drop(name)  # torn or changed: compiled again
            return False
        self.hits += 1
        return True

    def put(self, source: KernelSource, objects: Sequence[Path]) -> None:
        """Keep the objects of a kernel, if the folder can be written to; none that is empty."""
        if _has_sources(source) and all(file.stat().st_size for file in objects):
            self._files.put(self._name_of(source), lambda sink: _write(sink, objects))

    def prune(self) -> None:
        """Remove what has not been used for the longest time, where there is too much."""
        self._files.prune()

    def _name_of(self, source: KernelSource) -> str:
        return f"{object_key(source, self._target, self._build_features)}{_SUFFIX}"


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


def _has_sources(source: KernelSource) -> bool:
    """Tell whether a kernel's family has source files; a family made at run time has none."""
    return bool(kernel_files(source.workload.op_type))


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


def _files(place: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    if place.is_file():
        if path.endswith(".py"):
            yield path, place
        return
    for entry in place.iterdir():
        yield from _files(entry, f"{path}/{entry.name}")


def _write(sink: IO[bytes], objects: Sequence[Path]) -> None:
    contents = {file.name: file.read_bytes() for file in objects}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = json.dumps({"schema": _SCHEMA, "objects": digests})
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in {_MANIFEST: manifest.encode(), **contents}.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=_EPOCH), data, zipfile.ZIP_DEFLATED)


def _read(file: Path) -> dict[str, bytes]:
    """Return the objects in a file by name.

    Raises:
        ValueError: they are not what was written.
    """
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read(_MANIFEST))
        if manifest["schema"] != _SCHEMA:
            raise ValueError("unknown schema")
        found = {}
        for name, digest in manifest["objects"].items():
            data = archive.read(name)
            if Path(name).name != name or hashlib.sha256(data).hexdigest() != digest:
                raise ValueError("not what was written")
            if not data:
                raise ValueError("an empty object")
            found[name] = data
    return found
