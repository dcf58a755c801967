"""Subgraphs of the models that are given: found by their identity, measured as SGAT does.

Forms are of the imported graph, kernels of ONNX Runtime's optimised one; each is measured at the
first occurrence of the first model that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.records.subgraph import FusionGroup, SubgraphStrategy, nanoseconds, strategy_of
from aoe.bank.subgraphs import source_of_strategy
from aoe.device.compiler import KernelSource
from aoe.entry.protocol import ImportedModel
from aoe.entry.registry import find_entry
from aoe.entry.tuned_model import SUFFIX
from aoe.errors import BuildError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.subgraphs.boundary_tensors import InferTensors
from aoe.measurement import Measurement, Outcome
from aoe.om.file import LIBRARY
from aoe.ort.inputs import ModelInputs
from aoe.ort.static_shapes import infer_tensors
from aoe.runs.opening import optimized_graph
from aoe.runs.subgraphs.fusion_groups import invalid_reason_of_groups
from aoe.runs.verify_records import ONNX_RUNTIME, RecordedGain, RecordReader, VerifyContext
from aoe.runs.written_form import other_forms
from aoe.tasks.fusion_groups.finding import find_fusion_groups
from aoe.tasks.fusion_groups.measuring import FusionMeasurer
from aoe.tasks.rewrites.measuring import RewriteMeasurer
from aoe.tasks.rewrites.subgraphs import Subgraph, occurrences_by_id
from aoebank import Record

_ONNX = 5
_TIME = "end2EndTime"
NO_MODEL = "a subgraph is measured in its model, which --model=FILE gives"
NOT_THERE = "its subgraph is in none of the models --model gives, with the shapes they have"


class GivenModel:
    """A model whose subgraphs are looked up by their identity; cut up when one is asked for.

    Args:
        model: As it was imported.
        context: Says what optimises it and by which rules it is rewritten.
    """

    def __init__(self, model: ImportedModel, context: VerifyContext) -> None:
        self.model = model
        self.context = context

    @cached_property
    def infer(self) -> InferTensors:
        """Shape inference of a graph."""
        return lambda proto: infer_tensors(proto, self.context.device.open_session)

    @cached_property
    def imported(self) -> ModelGraph:
        """The imported graph in the form rules read."""
        proto = prepared(self.model.proto)
        return ModelGraph(proto, self.infer(proto), block=0)

    @cached_property
    def optimized(self) -> ModelGraph:
        """ONNX Runtime's optimised graph of the model."""
        context = self.context
        return optimized_graph(
            self.model.proto, context.device, context.scratch, threads=context.target.core_num
        )

    def find(self, graph_id: str, strategy: SubgraphStrategy) -> Subgraph | None:
        """Return the subgraph of a record, None where the model has none such."""
        by_id = self._with_kernels if strategy.groups else self._imported
        return by_id.get(graph_id)

    @cached_property
    def _imported(self) -> dict[str, Subgraph]:
        occurrences, _ = occurrences_by_id(self.imported, self.context.rules)
        return {key: Subgraph(graph_id=key, occurrences=tuple(p)) for key, p in occurrences.items()}

    @cached_property
    def _with_kernels(self) -> dict[str, Subgraph]:
        # no limit of fusions: a limit bounds what a search tries, not what a record holds
        found = find_fusion_groups(self.optimized, ())
        return {subgraph.graph_id: subgraph for subgraph in found.subgraphs}


def reader(context: VerifyContext) -> SubgraphReader:
    """Return the reader of subgraph records.

    Raises:
        AoeError: a model that is given cannot be read.
    """
    return SubgraphReader(context)


class SubgraphReader(RecordReader):
    """Reads the records of subgraphs: each is placed in the first given model that has it.

    Args:
        context: What with; its models are ONNX models, or tuned ones for the model in them.

    Raises:
        AoeError: a model cannot be read.
    """

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._file = context.journal.bank.graph_file(context.journal.soc_version)
        self._operators = OperatorBank(context.journal, core_num=context.target.core_num)
        self._models = []
        for source in context.models:
            entry = find_entry(None if source.path.suffix == SUFFIX else _ONNX, source)
            model = entry.load(source)
            threads = context.target.core_num
            forms = other_forms(model.proto, context.device, context.scratch, threads=threads)
            written = [form.proto for form in forms if form.proto is not None]
            for proto in (model.proto, *written):  # rewrites were searched in one of them
                self._models.append(GivenModel(replace(model, proto=proto), context))

    def read(self, file: Path, record: Record) -> PlacedSubgraph | str | None:
        """Return the subgraph to measure a record in, or the reason why there is none."""
        if file != self._file:
            return None
        strategy = strategy_of(record)
        for given in self._models:
            subgraph = given.find(record.key, strategy)
            if subgraph is None:
                continue
            if strategy.groups and (
                why := invalid_reason_of_groups(subgraph, strategy, self._operators)
            ):
                return why
            return PlacedSubgraph(
                given=given, subgraph=subgraph, strategy=strategy, operators=self._operators
            )
        return NOT_THERE if self._models else NO_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSubgraph:
    """The subgraph of a record in a model, measured as a search does; see `MeasurableAnswer`."""

    given: GivenModel  # The model
    subgraph: Subgraph  # Of it
    strategy: SubgraphStrategy  # What is done with it
    operators: OperatorBank  # The records of its kernels
    op_type: str = "subgraph"
    default: str = ONNX_RUNTIME

    @property
    def source(self) -> str | None:
        """Digest of what carries the strategy out."""
        return source_of_strategy(self.strategy)

    @property
    def model(self) -> Path:
        """File of the model."""
        return self.given.model.path

    @property
    def bytes_around(self) -> int:
        """Bytes one inference of the model reads and writes."""
        graph = self.given.optimized if self.subgraph.groups else self.given.imported
        return graph.bytes_touched()

    def timed(self, record: Record, latency_us: float) -> Record:
        """Return the record with a new time."""
        strategy: Any = record.strategy
        return replace(record, strategy={**strategy, _TIME: nanoseconds(latency_us)})

    def facts(self, recorded: RecordedGain | None) -> dict[str, Any]:
        """Return bytes read and written before each run, and the model's digest."""
        return {"bytes_around": self.bytes_around, "model_sha256": self.given.model.sha256}

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return fresh pairs of the subgraph with what its record says, and as it is."""
        if self.strategy.groups:
            return self._with_kernels(compilers)
        context = self.given.context
        measurer = RewriteMeasurer(
            self.subgraph,
            self.given.imported,
            context.rules,
            compilers.runner,
            directory=context.scratch / "piece",
            seed=context.seed,
            bytes_around=self.bytes_around,
            infer=self.given.infer,
        )
        with closing(measurer):
            return measurer.measure(self.strategy, context.policy)

    def _with_kernels(self, compilers: KernelCompilers) -> Measurement:
        context, sources = self.given.context, self._sources()
        directory = context.scratch / "piece"
        measurer = FusionMeasurer(
            self.subgraph,
            {group: source.name for group, source in sources.items()},
            directory / LIBRARY,
            compilers.runner,
            directory=directory,
            inputs=ModelInputs(seed=context.seed),
            bytes_around=self.bytes_around,
        )
        with closing(measurer):
            error = _build(sources.values(), directory, compilers)
            if error:
                return Measurement.failure(Outcome.COMPILE, error)
            return measurer.measure(self.strategy, context.policy)

    def _sources(self) -> dict[FusionGroup, KernelSource]:
        sources = {}
        for group in self.strategy.groups:
            region = self.subgraph.groups[group].regions[0]
            answer = self.operators.find(region.workload) if region is not None else None
            if region is not None and answer is not None:  # else another run removed it just now
                sources[group] = KernelSource.of(region.workload, answer.schedule)
        return sources


def _build(sources: Iterable[KernelSource], directory: Path, compilers: KernelCompilers) -> str:
    """Compile and link kernels; return what is wrong, the empty string if nothing is."""
    unique = list({source.name: source for source in sources}.values())
    errors = compilers.compile(unique, directory)
    wrong = next(filter(None, errors.values()), "")
    if wrong:
        return wrong
    runner = compilers.runner
    try:
        runner.device.build_library(
            unique,
            [directory / f"{source.name}.o" for source in unique],
            target=runner.target,
            toolchain=runner.toolchain,
            file=directory / LIBRARY,
        )
    except BuildError as error:
        return str(error)
    return ""
