"""Puts a tuned model together: compiles its kernels, links them, writes the model files."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from aoe.device.compiler import KernelSource
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import ModelPart
from aoe.graph.extents import OpenShape
from aoe.graph.hosted import HostOperators, host_operators
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.graph.rewrite import Replacement, computes, kernel_node_name, rewrite
from aoe.graph.rewrites.half_precision import is_half_precision
from aoe.graph.subgraphs.adjacency_digest import adjacency_of
from aoe.graph.weights import WeightStore, array_of, is_outside
from aoe.kernels.host_products import hosted_product
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MODEL,
    WEIGHTS,
)
from aoe.operators import REORDER_INPUT, REORDER_OUTPUT, op_key
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.workload import Precision

_CHOSEN = "chosen.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOutModel:
    """A model whose weights lie where its tuned model will have them, before that is assembled."""

    store: WeightStore  # Their file, in the directory of the assembly; open
    imported: onnx.ModelProto  # The imported model
    start: onnx.ModelProto  # The one kernels go into, the same where no other was made of it
    write_s: float  # Seconds writing the weights took


class Assembly:
    """The parts of one tuned model in one directory; weights are written once.

    Args:
        directory: Directory to be made for the parts.
        original: The model as it was imported.
        graph: ONNX Runtime's optimised form of it, as written by `Device.optimize`.
        compilers: Compile its kernels, or have them already.
        chosen: The model kernels go into, where another one has been made of it.
        precision: The lowest that one computes in.
        clock: Seconds.
        open_shapes: Shapes of the graph's tensors where they are open, a name for each extent.
        laid_out: Both models with their weights in the directory, which is there then; None where
            they are in memory or in files of others.

    Attributes:
        directory: As given.
        write_s: Seconds writing the weights took.
    """

    def __init__(
        self,
        directory: Path,
        original: onnx.ModelProto,
        graph: ModelGraph,
        compilers: KernelCompilers,
        *,
        chosen: onnx.ModelProto | None = None,
        precision: Precision = Precision.FLOAT32,
        clock: Callable[[], float] = time.monotonic,
        open_shapes: Mapping[str, OpenShape] | None = None,
        laid_out: LaidOutModel | None = None,
    ) -> None:
        if laid_out is None:
            directory.mkdir()
        began_s = clock()
        self.directory = directory
        self._graph = graph
        self._open_shapes = open_shapes or {}
        self._light: ModelGraph | None = None
        self._hosted: dict[tuple[str, str], HostOperators] = {}
        self._compilers = compilers
        self._store = WeightStore(directory / WEIGHTS) if laid_out is None else laid_out.store
        self._is_large = is_outside(original)
        self._is_narrow = is_half_precision(original)
        self._write(original if laid_out is None else laid_out.imported, FALLBACK)
        self._start = FALLBACK if chosen is None else _CHOSEN
        self._precision = precision
        self._is_given_up = False
        if chosen is not None:
            self._write(chosen if laid_out is None else laid_out.start, _CHOSEN)
        self.write_s = clock() - began_s + (laid_out.write_s if laid_out is not None else 0.0)

    def close(self) -> None:
        """Finish the weights file; the parts are complete then, and no model can be added."""
        self._store.close()

    def drop_unused_weights(self) -> None:
        """Write the weights of a closed assembly anew, without those of what was tried in vain."""
        if not (self._hosted or self._is_given_up):
            return
        tried = self.directory / "tried"
        tried.mkdir()
        for name in (WEIGHTS, FALLBACK, MODEL):
            (self.directory / name).rename(tried / name)
        with WeightStore(self.directory / WEIGHTS) as store:
            for name in (FALLBACK, MODEL):
                proto = onnx.load(str(tried / name), load_external_data=False)
                light = store.adopt(proto, tried)
                (self.directory / name).write_bytes(light.SerializeToString(deterministic=True))
        shutil.rmtree(tried)

    @property
    def imported(self) -> ModelPart:
        """The imported model, for ONNX Runtime to optimise as it likes."""
        return self._plain(FALLBACK)

    @property
    def untuned(self) -> ModelPart:
        """The model without kernels: the imported one, or the graph an earlier mode has chosen."""
        return self._plain(self._start, self._precision)

    def build(self, kernels: Sequence[ChosenKernel], *, left_s: float = math.inf) -> dict[str, str]:
        """Compile kernels and link them into a new library; without kernels there is none.

        Args:
            kernels: In the order of the library; those that save most are compiled first.
            left_s: Seconds after which no kernel is compiled any more.

        Returns:
            Errors by kernel name; such kernels are not in the library.

        Raises:
            BuildError: linking failed.
        """
        library = self.directory / LIBRARY
        library.unlink(missing_ok=True)  # never in place: the worker may have it mapped
        if not kernels:
            return {}
        by_gain = sorted(kernels, key=lambda kernel: -kernel.gain_us)
        parts = {part.name: part for kernel in by_gain for part in kernel.source.parts}
        found = self._compilers.compile([*parts.values()], self.directory, left_s=left_s)
        errors = {
            kernel.source.name: next(filter(None, (found[p.name] for p in kernel.source.parts)), "")
            for kernel in kernels
        }
        good = [
            kernel.source
            for kernel in kernels
            if not errors[kernel.source.name] and not kernel.source.is_hosted
        ]
        if good:
            runner = self._compilers.runner
            linked = dict.fromkeys(part.name for source in good for part in source.parts)
            runner.device.build_library(
                good,
                [self.directory / f"{name}.o" for name in linked],
                target=runner.target,
                toolchain=runner.toolchain,
                file=library,
            )
        return {name: error for name, error in errors.items() if error}

    def write_model(self, kernels: Sequence[ChosenKernel], name: str = MODEL) -> ModelPart:
        """Write the model with these kernels in it; the library may hold more.

        Without kernels that is the one they would go into: ONNX Runtime's optimised form of it,
        read back from a file, is no better and was measured up to 3 % slower.
        """
        if not kernels:
            shutil.copyfile(self.directory / self._start, self.directory / name)
            return self._plain(name, self._precision)
        replacements = [
            Replacement(
                region=region,
                kernel=kernel.source.name,
                operators=self._operators(kernel.source, region),
                shape=self._open_shapes.get(region.output),
            )
            for kernel in sorted(kernels, key=lambda kernel: kernel.source.name)
            for region in kernel.regions
        ]
        self._write_light(rewrite(self._light_graph(), replacements), name)
        is_linked = any(not kernel.source.is_hosted for kernel in kernels)
        return ModelPart(
            model=self.directory / name,
            library=self.directory / LIBRARY if is_linked else None,
            optimize=False,
            precision=lowest_precision(kernels, self._precision),
            is_large=self._is_large,
            is_narrow=self._is_narrow,
        )

    def write_graph(self, name: str) -> ModelPart:
        """Write ONNX Runtime's optimised form of the model, without kernels."""
        self._write_light(self._light_graph().proto, name)
        return replace(self._plain(name, self._precision), optimize=False)

    def replaced_nodes(self, kernel: ChosenKernel) -> dict[str, list[str]]:
        """Return the nodes of a kernel in the model, and what each replaces of `write_graph`."""
        places = ([self._graph.nodes[at].name for at in one.nodes] for one in kernel.regions)
        return {kernel_node_name(names[-1], kernel.name): names for names in places}

    def adjacent_nodes(
        self, kernel: ChosenKernel, *, behind_reorders: bool = False
    ) -> list[onnx.NodeProto]:
        """Return the nodes that write what a kernel reads, and the nodes that read its result.

        Args:
            kernel: For regions of the graph.
            behind_reorders: True to add the node on the other side of a change of layout.
        """
        graph, found = self._graph, dict[int, onnx.NodeProto]()
        for region in kernel.regions:
            waiting = _linked(graph, region.inputs, [region.output])
            while waiting:
                at = waiting.pop()
                if at in found or at in region.nodes:
                    continue
                node = found[at] = graph.nodes[at]
                if behind_reorders and op_key(node) in (REORDER_INPUT, REORDER_OUTPUT):
                    waiting += _linked(graph, node.input, node.output)
        return [*found.values()]

    def write_imported(self) -> ModelPart:
        """Write the imported model as the tuned one; nothing of the chosen graph is left."""
        self._is_given_up = True
        (self.directory / LIBRARY).unlink(missing_ok=True)
        shutil.copyfile(self.directory / FALLBACK, self.directory / MODEL)
        return self._plain(MODEL)

    def _operators(self, source: KernelSource, region: Region) -> HostOperators | None:
        """Return ONNX Runtime's own operators for an occurrence, None where a kernel computes it.

        The weights of an occurrence are quantised once.
        """
        if not source.is_hosted:
            return None
        key = source.name, region.output
        if key not in self._hosted:
            product = hosted_product(region.workload)
            assert product is not None  # else nothing of it is hosted
            weights = self._graph.initializers[region.inputs[product.right]]
            names = [self._graph.nodes[index].name for index in region.nodes]
            found = host_operators(
                region.workload,
                source.schedule.algorithm,
                array_of(weights),
                inputs=region.inputs,
                output=region.output,
                name=kernel_node_name(names[-1], source.name),
                doc_string=computes(names),
            )
            light = self._store.take(found.initializers)
            self._hosted[key] = replace(found, initializers=light)
        return self._hosted[key]

    def surroundings(self, kernel: ChosenKernel) -> frozenset[str]:
        """Return digests of what stands around the occurrences of a kernel."""
        return frozenset(adjacency_of(self._graph, region) for region in kernel.regions)

    def _plain(self, name: str, precision: Precision = Precision.FLOAT32) -> ModelPart:
        return ModelPart(
            model=self.directory / name,
            precision=precision,
            is_large=self._is_large,
            is_narrow=self._is_narrow,
        )

    def _light_graph(self) -> ModelGraph:
        """Return the optimised graph with its weights in the store, which takes them once.

        What functions have as constants of their own is still found in it as it is. To rewrite
        the graph as it is copied VGG-19 five times for each model that is compared.
        """
        if self._light is None:
            self._light = copy(self._graph)
            self._light.proto = self._store.externalize(self._graph.proto)
        return self._light

    def _write(self, proto: onnx.ModelProto, name: str) -> None:
        self._write_light(self._store.externalize(proto), name)

    def _write_light(self, proto: onnx.ModelProto, name: str) -> None:
        (self.directory / name).write_bytes(proto.SerializeToString(deterministic=True))


def _linked(graph: ModelGraph, read: Iterable[str], written: Iterable[str]) -> list[int]:
    """Return the nodes that write some tensors, and the nodes that read others."""
    before = (graph.producer.get(name) for name in read)
    after = (at for name in written for at in graph.consumers.get(name, ()))
    return [at for at in (*before, *after) if at is not None]
