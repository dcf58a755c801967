"""Whether a region, or a whole training graph, is computed as PyTorch does it, only faster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from aoe.device.registry import default_device
from aoe.errors import MeasurementError
from aoe.measurement import (
    Clock,
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
)
from aoe.measurement.pairs import run_pairs
from aoe.settings import accept_busy, environment

Compute = Callable[..., Any]
Usage = Callable[[], CpuUse]
"""Returns the counters of this process."""

REGION_GAIN = 1.03
"""Speed-up of a region over eager from which on it is used."""
_SAMPLE_US = 200.0
_REGION_POLICY = MeasurePolicy(pairs_min=10, pairs_max=20, enough_s=1.0, sample_min_us=_SAMPLE_US)
_GRAPH_POLICY = MeasurePolicy(pairs_min=6, pairs_max=24, enough_s=3.0, sample_min_us=0.0)
_TRIES = 3
"""Most comparisons, where the first ones meet a busy machine."""
_ERROR_RATIO, _ROUNDINGS = 4.0, 16
"""A result may be so many times as far from float64 as eager's, and so many roundings of its
largest element: sums of another order differ by less."""


def disagreement(
    module: Compute, call: Compute, arguments: Sequence[Any], *, spreads: bool = False
) -> str:
    """Return how the results of a kernel differ from autograd's, the empty string if they do not.

    Both are compared with the same operators in float64; then with NaN and infinities among the
    arguments, which have to end where PyTorch has them, but for NaN it makes of 0 * inf.

    Args:
        module: PyTorch's operators.
        call: The kernel.
        arguments: Of both.
        spreads: True if neighbours of a result that is no number may be none, as in a tile of
            Winograd's method.
    """
    exact = [_in_float64(value) for value in arguments]
    try:
        reference = _results(module, exact)
    except RuntimeError:  # an operator that names its type
        reference = _results(module, arguments)
    eager, found = _results(module, arguments), _results(call, arguments)
    for number, rows in enumerate(zip(reference, eager, found, strict=True)):
        if reason := _difference(*rows):
            return f"result {number}: {reason}"
    places = (_none_hidden, _none_hidden) if spreads else (_same_places, _no_worse)
    for value, is_same in zip((math.nan, math.inf), places, strict=True):
        unusual = [_with(value, argument) for argument in arguments]
        expected: Sequence[Any] = _results(module, unusual)
        if spreads:  # oneDNN multiplies padding by what is no number, too
            wide = _results(module, [_in_float64(one) for one in unusual])
            expected = [
                torch.where(torch.isfinite(one), one.to(other.dtype), other)
                for one, other in zip(wide, expected, strict=True)
            ]
        pairs = zip(expected, _results(call, unusual), strict=True)
        for number, (one, other) in enumerate(pairs):
            if not is_same(one, other):
                return f"result {number}: other results for {value}"
    return ""


def _results(compute: Compute, arguments: Sequence[Any]) -> Sequence[torch.Tensor]:
    found = compute(*arguments)
    return found if isinstance(found, tuple | list) else (found,)


def _in_float64(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(torch.float64) if is_float else value


def _with(unusual: float, value: Any) -> Any:
    """Return a copy of floats with an unusual number of either sign among them."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or 0 in value.stride():
        return value
    # in the strides of the argument, which a kernel may be compiled for
    changed = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    changed.copy_(value.detach())
    if changed.numel() > 1:
        for place, number in ((changed.numel() // 2, unusual), (changed.numel() // 3, -unusual)):
            changed[torch.unravel_index(torch.tensor(place), value.shape)] = number
    return changed


def _difference(reference: torch.Tensor, eager: torch.Tensor, found: torch.Tensor) -> str:
    if not eager.is_floating_point():
        return "" if torch.equal(eager, found) else "other numbers"
    if not _same_places(eager, found):
        return "NaN or infinities in other places"
    finite = torch.isfinite(reference) & torch.isfinite(eager)
    if not bool(finite.any()):
        return ""
    exact = reference[finite].double()
    errors = [float((one[finite].double() - exact).abs().max()) for one in (eager, found)]
    scale = float(exact.abs().max())
    bound = _ERROR_RATIO * errors[0] + _ROUNDINGS * torch.finfo(eager.dtype).eps * scale
    return "" if errors[1] <= bound else f"an error of {errors[1]:.3g}, eager has {errors[0]:.3g}"


def _same_places(eager: torch.Tensor, found: torch.Tensor) -> bool:
    if not eager.is_floating_point():
        return bool(torch.equal(eager, found))
    infinite = torch.isinf(eager)
    return bool(
        torch.equal(torch.isnan(eager), torch.isnan(found))
        and torch.equal(infinite, torch.isinf(found))
        and torch.equal(eager[infinite], found[infinite])
    )


def _no_worse(eager: torch.Tensor, found: torch.Tensor) -> bool:
    """True for the same infinities, wherever eager has a number: inf * 0 in it may be avoided."""
    known = ~torch.isnan(eager)
    return _same_places(eager[known], found[known])


def _none_hidden(eager: torch.Tensor, found: torch.Tensor) -> bool:
    """True if nothing is a number that eager has none for."""
    return not bool((torch.isfinite(found) & ~torch.isfinite(eager)).any())


_ROUNDS = 5
"""Calls of each of several ways: enough to tell which one the pairs are for."""


def fastest_first(calls: Mapping[str, Compute], arguments: Sequence[Any]) -> Sequence[str]:
    """Return names of calls by the least time of a few, which take turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(calls, math.inf)
    for _ in range(_ROUNDS if len(calls) > 1 else 0):
        for name, call in calls.items():
            began_s = clock()
            call(*arguments)
            least[name] = min(least[name], clock() - began_s)
    return sorted(calls, key=least.__getitem__)


def region_speedup(
    module: Compute, call: Compute, arguments: Sequence[Any], *, usage: Usage | None = None
) -> SpeedupEstimate:
    """Return the speed-up of a kernel over eager, in pairs in this process.

    Args:
        module: PyTorch's operators.
        call: The kernel.
        arguments: Of both.
        usage: Counters that say how the machine served the pairs; None for those of this process.

    Raises:
        MeasurementError: the machine is too busy to tell.
    """
    return _speedup(region_measurement(module, call, arguments, usage=usage))


def region_measurement(
    module: Compute,
    call: Compute,
    arguments: Sequence[Any],
    *,
    usage: Usage | None = None,
    least_quiet: float | None = None,
) -> Measurement:
    """Return such pairs, for a record; those of a busy machine do not count.

    Args:
        module: PyTorch's operators.
        call: The kernel.
        arguments: Of both.
        usage: As for `region_speedup`.
        least_quiet: Share of the CPU time asked for that pairs have to get; None for the default,
            or none at all with `AOE_ACCEPT_BUSY`.
    """
    policy = _policy(_REGION_POLICY)
    if least_quiet is not None:
        policy = replace(policy, least_quiet=least_quiet)
    return _measured(lambda: module(*arguments), lambda: call(*arguments), policy, usage=usage)


def step_speedup(
    eager: Callable[[], object], compiled: Callable[[], object], *, usage: Usage | None = None
) -> SpeedupEstimate:
    """Return the speed-up of the forward and backward passes of a graph over eager.

    Raises:
        MeasurementError: the machine is too busy to tell.
    """
    return _speedup(_measured(eager, compiled, _policy(_GRAPH_POLICY), usage=usage))


def wins(estimate: SpeedupEstimate, threshold: float) -> bool:
    """True if a speed-up is proven to be more than a threshold."""
    return accepts(estimate, threshold)


def _policy(policy: MeasurePolicy) -> MeasurePolicy:
    return replace(policy, least_quiet=0.0) if accept_busy(environment()) else policy


def _speedup(found: Measurement) -> SpeedupEstimate:
    if not found.counts:
        raise MeasurementError("machine", "too busy to compare on", got=found.busy_words)
    return estimate_speedup(found)


def _measured(
    eager: Callable[[], object],
    compiled: Callable[[], object],
    policy: MeasurePolicy,
    *,
    usage: Usage | None,
) -> Measurement:
    """Return the first pairs that count, else those of the quietest machine."""
    policy = replace(policy, threads=torch.get_num_threads())
    began_s = time.perf_counter()
    eager()
    once_us = max((time.perf_counter() - began_s) * 1e6, 1.0)
    repeats = max(1, math.ceil(policy.sample_min_us / once_us))
    baseline, tuned = (default_device().timer(run, repeats=repeats) for run in (eager, compiled))
    found: list[Measurement] = []
    while len(found) < _TRIES and not any(one.counts for one in found):
        tries = len(found) + 1
        found.append(_once(baseline, tuned, policy, usage or default_device().usage, tries))
    # the quietest, never the fastest: choosing by speed would choose lucky pairs
    return max(found, key=lambda one: (one.counts, one.load.use.given_share if one.load else 0.0))


def _once(
    baseline: Callable[[], float],
    tuned: Callable[[], float],
    policy: MeasurePolicy,
    usage: Usage,
    tries: int,
) -> Measurement:
    before = usage()
    samples = run_pairs(baseline, tuned, policy)
    load = MachineLoad(
        use=usage().since(before),
        threads=policy.threads,
        tries=tries,
        least_quiet=policy.least_quiet,
    )
    # A neighbour on the core lengthens wall time alone. Several threads share what CPU time adds
    # up, and wait for each other longer than a loop on one thread waits for its core: pairs of a
    # busy machine do not count then.
    by_cpu_time = samples.by_cpu_time if policy.threads == 1 else None
    decisive = by_cpu_time or samples
    return Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=decisive.baseline_us,
        tuned_us=decisive.tuned_us,
        looks=samples.looks,
        load=load,
        clock=Clock.CPU if by_cpu_time else Clock.WALL,
    )
