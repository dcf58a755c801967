"""Times of kernels in the whole model, node by node, beside the nodes they replace.

A kernel that wins alone may lose among its neighbours. Its operands are cold there or already in a
cache, and the nodes it replaces may have worked in place. The nodes that read its result may find
it elsewhere, too: behind convolutions of EfficientNet-B0 that save 720 us, the depthwise ones take
170 us longer. So the nodes on both sides of a kernel are counted with it. Other nodes hardly
change: by 0.1 % of the model there. Reorders into the blocked layout and out of it are nodes like
others. A kernel that takes one in has it among the nodes it replaces, and one that stays on a side
of a kernel is a neighbour. No kernel adds one, since kernels go into the optimised graph.

Two to four profiles of the model with all kernels and without any tell that of every kernel at
once. They choose what is compared; they prove nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import onnx

from aoe.errors import RunError
from aoe.operators import REORDER_INPUT, REORDER_OUTPUT, op_key
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.tune_context import TuneContext
from aoe.validation.candidates import ModelTimes
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.time_reserve import ModelCosts
from aoebank import plural

_MOST_SHARE = 0.2
"""Most of the time left that the profiles may take."""
_TIMEOUT_S = 60.0
_FEWEST, _MOST = 2, 4
"""Profiles of each model, in turns: what disturbs one of them is not in the others."""
_MORE_SHARE = 0.1
"""What all of them may take where there are more than the fewest: one takes as long as a process of
the proof."""
_SURE_LOSS, _SURE_BESIDE = 0.05, 0.03
"""Parts of the time a kernel replaces, and of that of its neighbours, which it has to cost in all
profiles. Source: the shortest times of a node in eight sessions have quartiles 3 to 4 % apart on a
machine with three processes for each core, and much less on a quiet one."""

Profile = tuple[Mapping[str, float], Mapping[str, float]]
"""Times of the nodes of the model without kernels, and of the model with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A kernel in the model, all occurrences together."""

    kernel: ChosenKernel
    nodes: tuple[str, ...]  # Its nodes in the model with kernels
    replaced: tuple[str, ...]  # The nodes they take the places of
    beside: Mapping[str, float]  # ONNX Runtime's nodes on both sides, with the kernel's share
    reorders: frozenset[str]  # Those among them that change the layout

    def kernel_us(self, profile: Profile) -> float:
        """Return the time of the kernel."""
        return _sum(profile[1], self.nodes)

    def replaced_us(self, profile: Profile) -> float:
        """Return the time of the nodes it replaces."""
        return _sum(profile[0], self.replaced)

    def more_beside_us(self, profile: Profile, nodes: Iterable[str]) -> float:
        """Return the time which neighbours take longer beside the kernel."""
        without, tuned = profile
        known = [name for name in nodes if name in without and name in tuned]
        return sum(self.beside[name] * (tuned[name] - without[name]) for name in known)

    def saved_us(self, profile: Profile) -> float:
        """Return the time the model saves where the kernel stands."""
        more_us = self.more_beside_us(profile, self.beside)
        return self.replaced_us(profile) - self.kernel_us(profile) - more_us

    def noise_us(self, profile: Profile) -> float:
        """Return the error of a profile, us: shares of the times replaced and of those beside."""
        beside_us = sum(share * profile[0].get(name, 0.0) for name, share in self.beside.items())
        return _SURE_LOSS * self.replaced_us(profile) + _SURE_BESIDE * beside_us

    def why(self, profiles: Sequence[Profile]) -> str:
        """Return where the time goes that the kernel costs."""

        def usual(time_us: Callable[[Profile], float]) -> float:
            return median(map(time_us, profiles))

        def more_us(nodes: Iterable[str]) -> float:
            return usual(lambda profile: self.more_beside_us(profile, nodes))

        words = f"in the model it takes {usual(self.kernel_us):.0f} us for what takes "
        words += f"{usual(self.replaced_us):.0f} us without it"
        if round(more_us(self.beside)) > 0:
            words += f", and its neighbours take {more_us(self.beside):.0f} us longer"
            reorders = [name for name in self.reorders if round(more_us([name])) > 0]
            if reorders:
                words += f", {plural(len(reorders), 'reorder')} {more_us(reorders):.0f} us of them"
        return f"{words}, though it saves {self.kernel.gain_us:.0f} us alone"


def times_in_model(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    costs: ModelCosts,
    left_s: float,
) -> ModelTimes:
    """Return the time kernels save in the model; empty where a profile of it takes too long.

    Args:
        tuning: The model.
        assembly: Puts it together.
        kernels: Kernels in the library.
        costs: What things take with this model.
        left_s: Seconds until the time limit.
    """
    places = _places(assembly, kernels)
    groups = _groups(assembly, kernels)
    profiles = _profiles(tuning, assembly, kernels, costs, left_s)
    known = [
        place
        for place in places
        if profiles and all(node in profiles[0][1] for node in place.nodes)
    ]
    saved_us = {place.kernel.name: median(map(place.saved_us, profiles)) for place in known}
    if saved_us:
        alone_us = sum(place.kernel.gain_us for place in known)
        tuning.progress.step(
            f"in the model {plural(len(known), 'kernel')} save {sum(saved_us.values()):.0f} us by "
            f"its profiles, {alone_us:.0f} us alone"
        )
    losing = _losing(known, groups, profiles)
    return ModelTimes(
        saved_us=saved_us,
        losses={place.kernel.name: place.why(profiles) for place in known if place in losing},
        model_us=median(sum(without.values()) for without, _ in profiles) if profiles else 0.0,
        groups=groups,
    )


def _profiles(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    costs: ModelCosts,
    left_s: float,
) -> list[Profile]:
    """Return profiles of the model, none where there is no time for two or it cannot be run."""
    most_s = min(_MOST_SHARE * left_s, _TIMEOUT_S)
    if not kernels or costs.in_turns_s > most_s:
        return []
    each_s = costs.in_turns_s / _FEWEST
    affordable = int(min(_MORE_SHARE * left_s, most_s) / each_s) if each_s > 0 else _MOST
    count = max(_FEWEST, min(_MOST, affordable))
    parts = assembly.write_graph("plain.onnx"), assembly.write_model(kernels, "variant.onnx")
    try:
        return [
            tuple(
                tuning.machine.runner.call(
                    "profile_models",
                    timeout_s=_TIMEOUT_S + most_s,
                    models=parts,
                    inputs=tuning.subject.inputs,
                    most_s=most_s / count,
                )
            )
            for _ in range(count)
        ]
    except RunError:  # the comparison of the whole model says it, too
        return []


def _places(assembly: Assembly, kernels: Sequence[ChosenKernel]) -> list[_Place]:
    """Return where kernels stand; a node between several counts for each of them in part."""
    nodes = {kernel.name: assembly.replaced_nodes(kernel) for kernel in kernels}
    replaced = {name for own in nodes.values() for names in own.values() for name in names}
    beside = {
        kernel.name: _outside(assembly.adjacent_nodes(kernel), replaced) for kernel in kernels
    }
    sharing: dict[str, int] = defaultdict(int)
    for hosts in beside.values():
        for name in hosts:
            sharing[name] += 1
    return [
        _Place(
            kernel=kernel,
            nodes=tuple(nodes[kernel.name]),
            replaced=tuple(name for names in nodes[kernel.name].values() for name in names),
            beside={name: 1 / sharing[name] for name in beside[kernel.name]},
            reorders=frozenset(
                name
                for name, node in beside[kernel.name].items()
                if op_key(node) in (REORDER_INPUT, REORDER_OUTPUT)
            ),
        )
        for kernel in kernels
    ]


def _outside(nodes: Iterable[onnx.NodeProto], replaced: set[str]) -> dict[str, onnx.NodeProto]:
    return {node.name: node for node in nodes if node.name not in replaced}


def _groups(assembly: Assembly, kernels: Sequence[ChosenKernel]) -> tuple[tuple[str, ...], ...]:
    """Return the names of kernels that are connected, directly or by one node between them.

    Reorders on both sides of that node belong to the segment between them.
    """
    touched: dict[str, set[str]] = {}
    for kernel in kernels:
        names = {node.name for node in assembly.adjacent_nodes(kernel, behind_reorders=True)}
        for replaced in assembly.replaced_nodes(kernel).values():
            names.update(replaced)
        touched[kernel.name] = names
    order = {kernel.name: min(region.nodes[0] for region in kernel.regions) for kernel in kernels}
    groups: list[tuple[set[str], set[str]]] = []  # Names of kernels, and of the nodes they touch
    for name, nodes in touched.items():
        joined, others = ({name}, set(nodes)), []
        for group in groups:
            if group[1] & joined[1]:
                joined = joined[0] | group[0], joined[1] | group[1]
            else:
                others.append(group)
        groups = [*others, joined]
    return tuple(tuple(sorted(names, key=order.__getitem__)) for names, _ in groups)


def _losing(
    places: Sequence[_Place], groups: Sequence[Sequence[str]], profiles: Sequence[Profile]
) -> list[_Place]:
    """Return the kernels that cost time alone, and those of a group that does so as a whole.

    What a node between two kernels takes longer may be the fault of either of them: of a group
    without a gain those go that save nothing.
    """
    losing = [place for place in places if _is_loss([place], profiles)]
    for names in groups:
        rest = [one for one in places if one.kernel.name in names and one not in losing]
        if len(rest) > 1 and _is_loss(rest, profiles):
            losing += [one for one in rest if median(map(one.saved_us, profiles)) <= 0]
    return losing


def _is_loss(places: Sequence[_Place], profiles: Sequence[Profile]) -> bool:
    """True if kernels cost time in every profile, and together more than noise explains."""
    saved_us = [sum(place.saved_us(one) for place in places) for one in profiles]
    noise_us = [sum(place.noise_us(one) for place in places) for one in profiles]
    return max(saved_us) < 0 and -median(saved_us) > median(noise_us)


def _sum(times: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(times.get(name, 0.0) for name in names)
