"""Subgraphs of the models that are given: found by their identity, measured as SGAT does.

Forms are of the imported graph, kernels of ONNX Runtime's optimised one; each is measured at the
first place of the first model that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aoe.bank.operators import OperatorBank
from aoe.bank.records.subgraph import FusionGroup
from aoe.bank.remeasured import MeasurableRecord
from aoe.device.compiler import KernelSource
from aoe.device.protocol import Device
from aoe.entry.imported_model import ImportedModel
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.entry.tuned_model import SUFFIX
from aoe.errors import BuildError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.subgraphs.boundary_tensors import InferTensors
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.om.file import LIBRARY
from aoe.ort.inputs import ModelInputs
from aoe.ort.static_shapes import infer_tensors
from aoe.tuning.opat.profiles import optimized_graph
from aoe.tuning.sgat.fusion_tuning import invalid_reason_of_groups
from aoe.tuning.tasks.fusion_groups.finding import find_fusion_groups
from aoe.tuning.tasks.fusion_groups.measuring import FusionMeasurer
from aoe.tuning.tasks.rewrites.measuring import RewriteMeasurer
from aoe.tuning.tasks.rewrites.subgraphs import Subgraph, places_by_id

_ONNX = 5
NO_MODEL = "a subgraph is measured in its model, which --model=FILE gives"
NOT_THERE = "its subgraph is in none of the models --model gives, with the shapes they have"


class GivenModel:
    """A model whose subgraphs are looked up by their identity; cut up when one is asked for.

    Args:
        model: As it was imported.
        device: Optimises it, tells shapes.
        scratch: Directory for a file while that is done.
        threads: Of the session that optimises.
        rules: Rewrite rules by name.
    """

    def __init__(
        self,
        model: ImportedModel,
        device: Device,
        scratch: Path,
        *,
        threads: int,
        rules: Mapping[str, RewriteRule],
    ) -> None:
        self.model = model
        self.rules = rules
        self._device = device
        self._scratch = scratch
        self._threads = threads

    @cached_property
    def infer(self) -> InferTensors:
        """What tells the shapes of a graph."""
        return lambda proto: infer_tensors(proto, self._device.open_session)

    @cached_property
    def imported(self) -> ModelGraph:
        """The imported graph in the form rules read."""
        proto = prepared(self.model.proto)
        return ModelGraph(proto, self.infer(proto), block=0)

    @cached_property
    def optimized(self) -> ModelGraph:
        """ONNX Runtime's own graph of it."""
        return optimized_graph(self.model.proto, self._device, self._scratch, threads=self._threads)

    def find(self, one: MeasurableRecord) -> Subgraph | None:
        """Return the subgraph of a record, None where the model has none such."""
        by_id = self._with_kernels if one.strategy.groups else self._imported
        return by_id.get(one.record.key)

    @cached_property
    def _imported(self) -> dict[str, Subgraph]:
        places, _ = places_by_id(self.imported, self.rules)
        return {key: Subgraph(graph_id=key, places=tuple(p)) for key, p in places.items()}

    @cached_property
    def _with_kernels(self) -> dict[str, Subgraph]:
        # no limit of fusions: a limit bounds what a search tries, not what a record holds
        found = find_fusion_groups(self.optimized, ())
        return {subgraph.graph_id: subgraph for subgraph in found.subgraphs}


def given_models(
    sources: Iterable[ModelSource],
    device: Device,
    scratch: Path,
    *,
    threads: int,
    rules: Mapping[str, RewriteRule],
) -> list[GivenModel]:
    """Return the models that are given, read and checked.

    Args:
        sources: ONNX models, and tuned ones for the model in them.
        device: As for `GivenModel`, and so are the others.
        scratch: Directory.
        threads: Of sessions.
        rules: Rewrite rules by name.

    Raises:
        AoeError: one cannot be read.
    """
    models = []
    for source in sources:
        entry = find_entry(None if source.path.suffix == SUFFIX else _ONNX, source)
        model = entry.load(source)
        models.append(GivenModel(model, device, scratch, threads=threads, rules=rules))
    return models


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSubgraph:
    """The subgraph of a record, and the model it is in."""

    model: GivenModel
    subgraph: Subgraph

    @property
    def bytes_around(self) -> int:
        """What one inference of the model reads and writes."""
        graph = self.model.optimized if self.subgraph.groups else self.model.imported
        return graph.bytes_touched()


def place_of(
    one: MeasurableRecord, models: Sequence[GivenModel], operators: OperatorBank
) -> PlacedSubgraph | str:
    """Return the subgraph in which a record can be measured, or the reason why there is none.

    Args:
        one: The record.
        models: Those that are given.
        operators: The records of its kernels.
    """
    for model in models:
        subgraph = model.find(one)
        if subgraph is None:
            continue
        if one.strategy.groups and (
            why := invalid_reason_of_groups(subgraph, one.strategy, operators)
        ):
            return why
        return PlacedSubgraph(model=model, subgraph=subgraph)
    return NOT_THERE if models else NO_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphVerifier:
    """Measures records of subgraphs again, as a search measures its winner.

    Attributes:
        compilers: Compile kernels; their runner measures.
        operators: The records of kernels.
        scratch: Directory for pieces while they are measured.
        seed: Of inputs.
        policy: Of the pairs.
    """

    compilers: KernelCompilers
    operators: OperatorBank
    scratch: Path
    seed: int
    policy: MeasurePolicy

    def measure(self, one: MeasurableRecord, place: PlacedSubgraph) -> Measurement:
        """Return fresh pairs of the subgraph with what its record says, and as it is."""
        if one.strategy.groups:
            return self._with_kernels(one, place)
        measurer = RewriteMeasurer(
            place.subgraph,
            place.model.imported,
            place.model.rules,
            self.compilers.runner,
            directory=self.scratch / "piece",
            seed=self.seed,
            bytes_around=place.bytes_around,
            infer=place.model.infer,
        )
        with closing(measurer):
            return measurer.measure(one.strategy, self.policy)

    def _with_kernels(self, one: MeasurableRecord, place: PlacedSubgraph) -> Measurement:
        sources = self._sources(place.subgraph, one.strategy.groups)
        directory = self.scratch / "piece"
        measurer = FusionMeasurer(
            place.subgraph,
            {group: source.name for group, source in sources.items()},
            directory / LIBRARY,
            self.compilers.runner,
            directory=directory,
            inputs=ModelInputs(seed=self.seed),
            bytes_around=place.bytes_around,
        )
        with closing(measurer):
            error = self._build(sources.values(), directory)
            if error:
                return Measurement.failure(Outcome.COMPILE, error)
            return measurer.measure(one.strategy, self.policy)

    def _sources(
        self, subgraph: Subgraph, groups: Iterable[FusionGroup]
    ) -> dict[FusionGroup, KernelSource]:
        sources = {}
        for group in groups:
            region = subgraph.groups[group].regions[0]
            answer = self.operators.find(region.workload) if region is not None else None
            if region is not None and answer is not None:  # else another run removed it just now
                sources[group] = KernelSource.of(region.workload, answer.schedule)
        return sources

    def _build(self, sources: Iterable[KernelSource], directory: Path) -> str:
        """Compile and link kernels; return what is wrong, the empty string if nothing is."""
        unique = list({source.name: source for source in sources}.values())
        errors = self.compilers.compile(unique, directory)
        wrong = next(filter(None, errors.values()), "")
        if wrong:
            return wrong
        runner = self.compilers.runner
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
