"""Puts a tuned model together: compiles its kernels, links them, writes the model files."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from aoe.bank.operators import OperatorBank
from aoe.bank.remembered import remembered_to_json
from aoe.device.compiler import KernelSource, required_features
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import ModelPart
from aoe.graph.hosted.operators import HostOperators, host_operators
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.graph.rewrite import Replacement, computes, kernel_node_name, rewrite
from aoe.graph.subgraphs.adjacency_digest import adjacency_of
from aoe.graph.weights import WeightStore, array_of, is_outside
from aoe.kernels.host_products import hosted_product
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MODEL,
    WEIGHTS,
    KernelUse,
    Manifest,
    write_offline_model,
)
from aoe.tuning.live_report import Phase
from aoe.tuning.tune_context import TuneContext
from aoe.tuning.validation.model_validator import ValidationResult
from aoe.workload import Precision, workload_to_json

_CHOSEN = "chosen.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenKernel:
    """A kernel that goes into the model.

    Attributes:
        source: Name, workload and schedule.
        key: Record key.
        regions: Places in the model it computes.
        op_names: Node at the end of each place.
        gain_us: Time it has proven, alone, to save in one run of the model, all places together.
    """

    source: KernelSource
    key: str
    regions: tuple[Region, ...]
    op_names: tuple[str, ...]
    gain_us: float

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.source.name

    @property
    def kind(self) -> str:
        """Its family: kernels of one lose for one reason."""
        return self.source.workload.op_type


def lowest_precision(kernels: Sequence[ChosenKernel]) -> Precision:
    """Return the lowest precision any of the kernels computes in; float32 without any."""
    found = (kernel.source.workload.precision for kernel in kernels)
    lower = [precision for precision in found if precision.is_lower]
    return max(lower, key=lambda precision: precision.rank, default=Precision.FLOAT32)


class Assembly:
    """The parts of one tuned model in one directory; weights are written once.

    Args:
        directory: Directory to be made for the parts.
        original: The model as it was imported.
        graph: ONNX Runtime's optimised form of it, as written by `Device.optimize`.
        compilers: Compile its kernels, or have them already.
        chosen: The model kernels go into, where an earlier mode has made another one of it.
        clock: Seconds.

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        directory.mkdir()
        began_s = clock()
        self.directory = directory
        self._graph = graph
        self._light: ModelGraph | None = None
        self._hosted: dict[tuple[str, str], HostOperators] = {}
        self._compilers = compilers
        self._store = WeightStore(directory / WEIGHTS)
        self._is_large = is_outside(original)
        self._write(original, FALLBACK)
        self._start = FALLBACK if chosen is None else _CHOSEN
        if chosen is not None:
            self._write(chosen, _CHOSEN)
        self.write_s = clock() - began_s

    def close(self) -> None:
        """Finish the weights file; the parts are complete then, and no model can be added."""
        self._store.close()

    def drop_unused_weights(self) -> None:
        """Write the weights of a closed assembly anew, without those of operators tried in vain."""
        if not self._hosted:
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
        """The model without kernels: the imported one, or what an earlier mode made of it."""
        return self._plain(self._start)

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
        errors = self._compilers.compile(
            [kernel.source for kernel in by_gain], self.directory, left_s=left_s
        )
        good = [
            kernel.source
            for kernel in kernels
            if not errors[kernel.source.name] and not kernel.source.is_hosted
        ]
        if good:
            runner = self._compilers.runner
            runner.device.build_library(
                good,
                [self.directory / f"{source.name}.o" for source in good],
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
            return self._plain(name)
        replacements = [
            Replacement(
                region=region,
                kernel=kernel.source.name,
                operators=self._operators(kernel.source, region),
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
            precision=lowest_precision(kernels),
            is_large=self._is_large,
        )

    def _operators(self, source: KernelSource, region: Region) -> HostOperators | None:
        """Return ONNX Runtime's own operators for a place, None where a kernel computes it.

        The weights of a place are quantised once.
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
        """Return digests of what stands around the places of a kernel."""
        return frozenset(adjacency_of(self._graph, region) for region in kernel.regions)

    def _plain(self, name: str) -> ModelPart:
        return ModelPart(model=self.directory / name, optimize=True, is_large=self._is_large)

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


# ---- writing ----


def write_model(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
) -> None:
    """Write the tuned model of a closed assembly, and the records of its kernels beside it.

    Raises:
        OutputError: it cannot be written.
    """
    target, om_file = tuning.machine.runner.target, tuning.places.om_file
    manifest = Manifest(
        name=tuning.subject.model.name,
        model_sha256=tuning.subject.model.sha256,
        soc_version=target.soc_version,
        core_num=target.core_num,
        cpu_features=required_features([kernel.source for kernel in validation.kept], target),
        nchwc_block=tuning.machine.runner.device.channel_block(),
        versions=dict(tuning.machine.versions),
        operators=tuning.subject.operators,
        kernels=tuple(_use(kernel, bank) for kernel in validation.kept),
        parts={},
        precision=lowest_precision(validation.kept),
        subgraphs=tuning.subject.chosen.uses if tuning.subject.chosen is not None else (),
        accuracy=str(validation.accuracy or ""),
        streams=tuning.subject.streams,
    )
    tuning.time.phases.begin(Phase.WRITE)
    tuning.progress.step(f"writing {om_file}")
    assembly.drop_unused_weights()
    write_offline_model(om_file, assembly.directory, manifest)
    if tuning.places.bank is not None:
        bank.copy_to(tuning.places.bank, [kernel.source.workload for kernel in validation.kept])


def _use(kernel: ChosenKernel, bank: OperatorBank) -> KernelUse:
    op_type = kernel.source.workload.op_type
    return KernelUse(
        name=kernel.source.name,
        op_type=op_type,
        key=kernel.key,
        bank_file=bank.file_of(kernel.source.workload).name,
        op_names=kernel.op_names,
        precision=kernel.source.workload.precision,
        record={
            "workload": workload_to_json(kernel.source.workload),
            **remembered_to_json(bank.remembered(kernel.source.workload).without_samples()),
        },
    )
