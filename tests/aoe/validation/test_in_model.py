"""What profiles of the whole model say of its kernels, neighbours counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from support.engine.assembling import assembling
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.models import conv_net
from support.engine.offline import first_guess, regions_of, view_of
from support.engine.scripted_runs import ScriptedCpu

from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.graph.model_graph import ModelGraph
from aoe.operators import REORDER_INPUT, REORDER_OUTPUT, op_key
from aoe.ort.inputs import MADE_UP
from aoe.target import Target
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.validation.candidates import ModelTimes
from aoe.validation.in_model import times_in_model
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.time_reserve import NO_COSTS, ModelCosts

_NODE_US, _ALONE_US = 100.0, 60.0


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, target: Target) -> ModelGraph:
    """Return a small network as ONNX Runtime optimises it."""
    return view_of(conv_net(), tmp_path_factory.mktemp("graph"), target)


@dataclass
class ProfiledModel:
    """A network with kernels whose nodes take known times."""

    graph: ModelGraph
    assembly: Assembly
    runner: ScriptedRunner
    kernels: list[ChosenKernel]
    extra_us: dict[str, float] = field(default_factory=dict)  # Of nodes of ONNX Runtime, tuned
    kernel_us: dict[str, float] = field(default_factory=dict)  # Of kernels, by name
    noise_us: Callable[[int], float] = lambda profile: 0.0  # Of the extra times
    profiles: int = 0
    progress: RecordingProgress = field(default_factory=RecordingProgress)

    def node_us(self, part: ModelPart) -> Mapping[str, float]:
        nodes = onnx.load(str(part.model), load_external_data=False).graph.node
        is_tuned = any(node.domain == "aoe" for node in nodes)
        self.profiles += is_tuned
        factor = 1 + self.noise_us(self.profiles)
        return {node.name: self._us(node, factor if is_tuned else 0.0) for node in nodes}

    def _us(self, node: onnx.NodeProto, factor: float) -> float:
        if node.domain == "aoe":
            return self.kernel_us.get(node.op_type, _NODE_US - _ALONE_US)
        return _NODE_US + factor * self.extra_us.get(node.name, 0.0)

    def times(
        self, *names: str, left_s: float = math.inf, costs: ModelCosts = NO_COSTS
    ) -> ModelTimes:
        """Return what is said of the kernels that compute nodes with these in their names."""
        tuning = SimpleNamespace(
            machine=SimpleNamespace(runner=self.runner),
            subject=SimpleNamespace(inputs=MADE_UP),
            progress=self.progress,
        )
        kernels = [self.kernel(name) for name in names]
        return times_in_model(tuning, self.assembly, kernels, costs, left_s)  # type: ignore[arg-type]

    def kernel(self, name: str) -> ChosenKernel:
        """Return the kernel that computes a node."""
        return next(
            one
            for one in self.kernels
            if any(name in replaced for names in self.replaced(one) for replaced in names)
        )

    def replaced(self, kernel: ChosenKernel) -> list[list[str]]:
        return [*self.assembly.replaced_nodes(kernel).values()]

    def hosts(self, kernel: ChosenKernel) -> list[onnx.NodeProto]:
        return self.assembly.adjacent_nodes(kernel)


@pytest.fixture
def model(tmp_path: Path, graph: ModelGraph, target: Target) -> Iterator[ProfiledModel]:
    """Return the network with a kernel for each of its regions."""
    runner = ScriptedRunner(device=ScriptedCpu())
    kernels: dict[str, ChosenKernel] = {}
    for region in regions_of(graph):
        source = first_guess(region, target)
        made = ChosenKernel(
            source=source,
            key=source.name,
            regions=(region,),
            op_names=(region.output,),
            gain_us=_ALONE_US,
        )
        known = kernels.setdefault(source.name, made)
        if known is not made:
            kernels[source.name] = replace(known, regions=(*known.regions, region))
    with assembling(tmp_path, conv_net(), graph, runner, None) as assembly:
        made_model = ProfiledModel(graph, assembly, runner, [*kernels.values()])
        runner.node_us = made_model.node_us
        yield made_model


def test_kernel_saves_what_its_nodes_took_without_it(model: ProfiledModel) -> None:
    found = model.times("prelu0")
    (kernel,) = [model.kernel("prelu0")]
    replaced = sum(map(len, model.replaced(kernel)))
    assert found.saved_us[kernel.name] == replaced * _NODE_US - (_NODE_US - _ALONE_US)
    assert not found.losses
    (told,) = model.progress.texts("step")
    assert told.startswith("in the model 1 kernel save") and "60 us alone" in told


def test_neighbours_that_take_longer_are_counted_against_a_kernel(model: ProfiledModel) -> None:
    kernel = model.kernel("lrn1")
    before = model.times("lrn1").saved_us[kernel.name]
    hurt = model.hosts(kernel)[-1]
    model.extra_us[hurt.name] = 70.0
    assert model.times("lrn1").saved_us[kernel.name] == pytest.approx(before - 70)
    model.extra_us[hurt.name] = before + 100.0
    found = model.times("lrn1")
    reason = found.losses[kernel.name]
    assert f"and its neighbours take {before + 100:.0f} us longer" in reason
    assert reason.endswith("though it saves 60 us alone")
    is_reorder = op_key(hurt) in (REORDER_INPUT, REORDER_OUTPUT)
    assert ("1 reorder" in reason) == is_reorder


def test_reorders_beside_a_kernel_are_named(model: ProfiledModel) -> None:
    reordered = [
        (kernel, node)
        for kernel in model.kernels
        for node in model.hosts(kernel)
        if op_key(node) in (REORDER_INPUT, REORDER_OUTPUT)
    ]
    if not reordered:
        pytest.skip("the blocked layout has no reorder beside a kernel on this machine")
    kernel, node = reordered[0]
    model.extra_us[node.name] = 5000.0
    found = model.times(model.replaced(kernel)[0][0])
    assert "longer, 1 reorder 5000 us of them" in found.losses[kernel.name]


def test_kernels_on_both_sides_of_a_node_and_its_reorders_are_a_group(model: ProfiledModel) -> None:
    names = model.kernel("prelu0").name, model.kernel("lrn1").name
    assert model.times("prelu0", "lrn1").groups == (names,)
    assert model.times("lrn1", "prelu0").groups == (names,)  # in the order of the graph


def test_node_between_two_kernels_counts_for_both(model: ProfiledModel) -> None:
    pairs = [
        (first, second, {one.name for one in shared})
        for number, first in enumerate(model.kernels)
        for second in model.kernels[number + 1 :]
        if (shared := _common(model.hosts(first), model.hosts(second)))
    ]
    first, second, shared = pairs[0]
    nodes = [model.replaced(one)[0][0] for one in (first, second)]
    plain = model.times(*nodes)
    node = next(name for name in shared if name not in _nodes(model, first, second))
    model.extra_us[node] = 50.0
    found = model.times(*nodes)
    for name in (first.name, second.name):
        assert found.saved_us[name] == pytest.approx(plain.saved_us[name] - 25)


def _common(first: list[onnx.NodeProto], second: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    names = {node.name for node in second}
    return [node for node in first if node.name in names]


def _nodes(model: ProfiledModel, *kernels: ChosenKernel) -> set[str]:
    return {name for one in kernels for names in model.replaced(one) for name in names}


def test_kernels_far_from_each_other_are_no_group(model: ProfiledModel) -> None:
    found = model.times("prelu0", "softmax2")
    assert sorted(map(len, found.groups)) == [1, 1]


def test_loss_that_one_profile_does_not_show_is_noise(model: ProfiledModel) -> None:
    kernel = model.kernel("lrn1")
    model.extra_us[model.hosts(kernel)[-1].name] = 2000.0
    assert kernel.name in model.times("lrn1").losses
    model.profiles, model.noise_us = 0, lambda profile: -1.0 if profile == 2 else 0.0
    assert not model.times("lrn1").losses


def test_small_loss_is_no_loss(model: ProfiledModel) -> None:
    kernel = model.kernel("lrn1")
    model.kernel_us[kernel.name] = 1.01 * _NODE_US * sum(map(len, model.replaced(kernel)))
    found = model.times("lrn1")
    assert found.saved_us[kernel.name] < 0 and not found.losses


@pytest.mark.parametrize(("left_s", "profiles"), [(1.9, 0), (5.9, 2), (6.1, 3), (100.0, 4)])
def test_profiles_are_as_many_as_there_is_time_for(
    model: ProfiledModel, left_s: float, profiles: int
) -> None:
    costs = ModelCosts(load_s=0.1)  # two profiles of each model take 0.4 s
    found = model.times("lrn1", left_s=left_s, costs=costs)
    assert len(model.runner.asked("profile_models")) == profiles
    assert bool(found.saved_us) == (profiles > 0)
    assert found.groups  # the graph tells that


def test_model_that_cannot_be_profiled_says_nothing(model: ProfiledModel) -> None:
    def dies(part: ModelPart) -> Mapping[str, float]:
        raise RunError("profile_models", "the worker ended with signal 11")

    model.runner.node_us = dies
    assert not model.times("lrn1").saved_us
