"""One random network with the kernels of its scopes, and the strategies that use them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from aoe.bank.operators import key_of
from aoe.bank.records.subgraph import FusionGroup, SubgraphStrategy
from aoe.errors import RunError
from aoe.execute.accuracy import MODEL_TOLERANCE, compare_model_results
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.graph.fusing import FUSION_CLASSES
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.graph.rewrites.registry import RULES
from aoe.graph.subgraphs.boundary_tensors import cancel_at_boundaries
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of, tolerance_of
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.om.file import LIBRARY
from aoe.ort.inputs import ModelInputs
from aoe.ort.static_shapes import infer_tensors
from aoe.results.files import RepoOutcome
from aoe.runs.opening import optimized_graph
from aoe.schedule import Schedule, Space
from aoe.tasks.fusion_groups.choosing import fusion_space
from aoe.tasks.fusion_groups.finding import find_fusion_groups
from aoe.tasks.fusion_groups.kernels import WonKernels, source_of
from aoe.tasks.fusion_groups.measuring import FusionMeasurer
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operators import Operator
from aoe.tasks.rewrites.lookup import TunedSubgraph
from aoe.tasks.rewrites.space import StrategySpace, strategy_space
from aoe.tasks.rewrites.subgraphs import FoundSubgraphs, Subgraph, find_subgraphs
from aoe.tuner.policies import single_run_policy
from aoe.validation.kernel_assembly import Assembly
from support.engine.subgraphs import graph_of
from support.fusion_fuzz.networks import RandomNetwork

KERNELS_MAX = 12  # of a network: each takes half a second to compile
FORMS_SHARE = 0.4  # of networks that get another form before their kernels
PIECES_SHARE = 0.25  # of strategies of which one subgraph is run by itself, as its search does
TIMEOUT_S = 60.0
INPUTS = ModelInputs(seed=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What compiles, runs and compares, shared by all networks of a run."""

    runner: Runner
    compilers: KernelCompilers

    @property
    def facts(self) -> KernelTarget:
        """What schedules depend on."""
        return KernelTarget.of(self.runner.target)


class ScopedNetwork:
    """A network, what could become one kernel in it, and a kernel for each of these.

    Args:
        number: Decides on all of it.
        machine: Compiles, runs and compares.
        scratch: Folder that is made for it.

    Attributes:
        unbuilt: What is wrong with kernels that could not be compiled, by name.
    """

    def __init__(self, number: int, machine: Machine, scratch: Path) -> None:
        scratch.mkdir()
        self._machine = machine
        self._scratch = scratch
        network = RandomNetwork(number)
        rng = network.rng
        original = network.build()
        chosen, self._tolerance = original, MODEL_TOLERANCE
        if rng.random() < FORMS_SHARE:
            chosen, self._tolerance = random_form(original, machine.runner, rng)
        device, threads = machine.runner.device, machine.runner.target.core_num
        self._graph = optimized_graph(chosen, device, scratch, threads=threads)
        is_limited = rng.random() < 0.5
        self._found = find_fusion_groups(self._graph, FUSION_CLASSES if is_limited else ())
        kernels = _kernels(self._graph, self._found, machine.facts, rng)
        self._won = WonKernels(kernels)
        self._assembly = Assembly(
            scratch / "parts", original, self._graph, machine.compilers, chosen=chosen
        )
        self.unbuilt = self._assembly.build(self._won.chosen())
        self._won.drop(self.unbuilt)
        self._expected = self._results(self._assembly.imported)

    def close(self) -> None:
        """Finish its files; they go with the scratch folder."""
        self._assembly.close()

    def draw(self, rng: random.Random) -> list[TunedSubgraph]:
        """Return a random strategy of every subgraph that has kernels, but for those without."""
        spaces = [(one, _groups_of(one, self._won, rng)) for one in self._found.subgraphs]
        spaces = [(one, space) for one, space in spaces if space.space.knobs]
        while spaces:
            drawn = [_tuned(one, s.strategy(_drawn(s.space, rng))) for one, s in spaces]
            if used := [one for one in drawn if one.strategy is not None and one.strategy.groups]:
                return used
        return []

    def flaws(self, drawn: Sequence[TunedSubgraph], rng: random.Random) -> list[str]:
        """Return what is wrong with strategies: all together, and some of them one by itself."""
        alone = self._segment_flaws(rng.choice(drawn)) if rng.random() < PIECES_SHARE else []
        return [*alone, *self._model_flaws(drawn)]

    def _segment_flaws(self, tuned: TunedSubgraph) -> list[str]:
        assert tuned.strategy is not None
        subgraph, runner = tuned.subgraph, self._machine.runner
        measurer = FusionMeasurer(
            subgraph,
            {group: source_of(one).name for group, one in self._won.of(subgraph).items()},
            self._assembly.directory / LIBRARY,
            runner,
            directory=self._scratch / subgraph.graph_id,
            inputs=INPUTS,
            bytes_around=0,
        )
        try:
            found = measurer.measure(tuned.strategy, single_run_policy(runner.target.core_num))
        finally:
            measurer.close()
        told = _told(tuned)
        return [] if found.is_correct else [f"{told}: {found.outcome.value}, {found.detail}"]

    def _model_flaws(self, tuned: Sequence[TunedSubgraph]) -> list[str]:
        used = [_as_chosen(one) for one in self._won.used(self._graph, tuned)]
        told = "; ".join(map(_told, tuned))
        try:
            found = self._results(self._assembly.write_model(used, "strategy.onnx"))
        except RunError as error:  # it crashed, or does not end
            return [f"model, {told}: {error}"]
        compared = compare_model_results(self._expected, found, tolerance=self._tolerance)
        return [f"model, {told}: {compared.detail}"] if not compared.acceptable else []

    def _results(self, part: ModelPart) -> list[Any]:
        """Run a model in the measuring process."""
        run = self._machine.runner.call
        (found,) = run("run_model", timeout_s=TIMEOUT_S, part=part, inputs=INPUTS)
        return list(found)


def random_form(
    proto: onnx.ModelProto, runner: Runner, rng: random.Random
) -> tuple[onnx.ModelProto, float]:
    """Return another form of a model, as the first half of a run chooses one, and its tolerance."""
    graph = graph_of(proto)
    chosen, tolerance = [], MODEL_TOLERANCE
    for subgraph in find_subgraphs(graph, RULES, uneven=True, blocked=False).subgraphs:
        choices = strategy_space(subgraph)
        strategy = choices.strategy(_drawn(choices.space, rng))
        for segment in subgraph.occurrences:
            form = rewrite_of(segment, strategy, RULES)
            if not isinstance(form, str):  # weights may keep a rule away at another place
                chosen.append(Splice(segment=segment, rewrite=form))
                tolerance = max(tolerance, tolerance_of(strategy, RULES))
    joined = cancel_at_boundaries(
        splice(graph, chosen),
        graph.proto,
        lambda model: infer_tensors(model, runner.device.open_session),
    )
    return joined, tolerance


def _drawn(space: Space, rng: random.Random) -> Mapping[str, int | str]:
    """Return one of the first guesses, or any configuration."""
    if space.first_guesses and rng.random() < 0.3:
        return rng.choice(space.first_guesses)
    return next(space.draw(rng))


def _kernels(
    graph: ModelGraph, found: FoundSubgraphs, facts: KernelTarget, rng: random.Random
) -> dict[str, TunedOperator]:
    """Return a kernel for scopes of all subgraphs, each with a random schedule."""
    places: dict[str, dict[tuple[int, ...], Region]] = {}
    for subgraph in found.subgraphs:
        for group in subgraph.allowed_fusion_groups:
            for region in subgraph.groups[group].regions:
                if region is not None:
                    places.setdefault(key_of(region.workload), {})[region.nodes] = region
    kernels = {}
    for key in rng.sample(sorted(places), min(KERNELS_MAX, len(places))):
        regions = tuple(places[key].values())
        schedule = drawn_schedule(key, regions[0], facts, rng)
        if schedule is not None:
            kernels[key] = kernel_of(graph, key, regions, schedule)
    return kernels


def drawn_schedule(
    key: str, region: Region, facts: KernelTarget, rng: random.Random
) -> Schedule | None:
    """Return one of a few schedules of a workload, so that networks share kernels."""
    family = get_family(region.workload.op_type)
    space = allowed_space(family, region.workload, facts)
    if space is None:
        return None
    drawn = _drawn(space, random.Random(f"{key} {rng.randrange(3)}"))
    return family.schedule(region.workload, drawn, facts)


def kernel_of(
    graph: ModelGraph, key: str, regions: tuple[Region, ...], schedule: Schedule
) -> TunedOperator:
    operator = Operator(
        workload=regions[0].workload,
        key=key,
        regions=regions,
        op_names=tuple(graph.nodes[region.nodes[-1]].name for region in regions),
        share=0.0,
        default_us=0.0,
    )
    return TunedOperator(
        operator=operator,
        outcome=RepoOutcome.ADD,
        reason="drawn",
        schedule=schedule,
        speedup=2.0,
        proven_speedup=2.0,
        before_us=1.0,
    )


def _groups_of(subgraph: Subgraph, won: WonKernels, rng: random.Random) -> StrategySpace:
    """Return the sets of scopes of a subgraph, as if each saved some time of its own."""
    gains = {group: rng.uniform(0.1, 9) for group in won.of(subgraph)}
    return fusion_space(gains, {group: subgraph.groups[group].owned for group in gains})


def _tuned(subgraph: Subgraph, strategy: SubgraphStrategy) -> TunedSubgraph:
    return TunedSubgraph(
        subgraph=subgraph, outcome=RepoOutcome.ADD, reason="drawn", strategy=strategy
    )


def _as_chosen(tuned: TunedOperator) -> ChosenKernel:
    return ChosenKernel(
        source=source_of(tuned),
        key=tuned.operator.key,
        regions=tuned.operator.regions,
        op_names=tuned.operator.op_names,
        gain_us=1.0,
    )


def _told(tuned: TunedSubgraph) -> str:
    groups: tuple[FusionGroup, ...] = tuned.strategy.groups if tuned.strategy is not None else ()
    named = (f"{group.family} {list(group.nodes)}" for group in groups)
    return f"{tuned.subgraph.graph_id} with {', '.join(named)}"
