"""Assemblies with compilers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import onnx

from aoe.device.object_cache import ObjectCache
from aoe.execute.compiling import KernelCompilers
from aoe.execute.runner import Runner
from aoe.graph.model_graph import ModelGraph
from aoe.validation.kernel_assembly import Assembly
from support.engine.fakes import ScriptedRunner


@contextmanager
def assembling(
    folder: Path,
    proto: onnx.ModelProto,
    graph: ModelGraph,
    runner: Runner | ScriptedRunner,
    cache: ObjectCache | None = None,
) -> Iterator[Assembly]:
    """Yield an assembly in `folder/parts`; its parts are complete and stay after the `with`."""
    with (
        closing(KernelCompilers(runner, cache)) as compilers,  # type: ignore[arg-type]
        closing(Assembly(folder / "parts", proto, graph, compilers)) as assembly,
    ):
        yield assembly
