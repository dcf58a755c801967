"""Libraries of kernels for tests of what kernels compute: compiled once, and kept for later runs.

A change of a family, of Halide or of the C code compiles them anew, as it does for users
(`aoe.device.object_cache`). Tests of the compiler itself compile every time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from aoe.device.compiler import KernelSource, build_library, compile_kernel, objects_of
from aoe.device.object_cache import ObjectCache
from aoe.device.toolchain import Toolchain, find_toolchain
from aoe.target import Target

_LIMIT_BYTES = 1 << 30


@cache
def _kept(target: Target) -> ObjectCache | None:
    """Return the kept objects for a target, None if `AOE_TEST_CACHE` is not set."""
    named = os.environ.get("AOE_TEST_CACHE")
    if not named:
        return None
    kept = ObjectCache(Path(named) / "objects", target, limit_bytes=_LIMIT_BYTES)
    kept.prune()
    return kept


def kept_toolchain(target: Target) -> Toolchain:
    """Return this machine's C compiler, which keeps the glue it has compiled."""
    kept = _kept(target)
    return replace(find_toolchain(os.environ), kept=kept.kept if kept is not None else None)


def compiled(source: KernelSource, target: Target, folder: Path) -> Path:
    """Return the object file of a kernel, in a folder; those of its packed inputs lie beside it."""
    file, kept = folder / f"{source.name}.o", _kept(target)
    if file.exists() or (kept is not None and kept.take(source, folder)):
        return file
    compile_kernel(source, target, folder)
    if kept is not None:
        kept.put(source, objects_of(file))
    return file


def linked(
    sources: Sequence[KernelSource], *, target: Target, toolchain: Toolchain, file: Path
) -> Path:
    """Return the library of kernels, whose parts are compiled into the folder of `file`."""
    parts = {part.name: part for source in sources for part in source.parts}
    objects = [compiled(part, target, file.parent) for part in parts.values()]
    return build_library(sources, objects, target=target, toolchain=toolchain, file=file)
