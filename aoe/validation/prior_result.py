"""Results of earlier validations: of this model, or of one like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aoe.bank.verdicts import KeptKernel
from aoe.measurement import Scatter
from aoe.validation.candidates import P
from aoe.validation.group_tests import PROVEN

_LIKE = 0.5
"""Share of what all parts promise that those an earlier model has kept make up at least, for a
model to be like it: how far its processes scatter is taken from there."""
_OF_USUAL = 0.9
"""Part of what kernels of other models have kept that those of a model are held to: models of one
family differ, and what falls short is taken apart in a dozen comparisons. In simulations a kernel
that costs the model 1 % may stay then where the others keep what is usual, one of 4 % does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorResult:
    """Decisions of earlier validations about the kernels of a model."""

    # Names of parts a model like this one has kept: half of what they promise will do.
    proven: frozenset[str] = frozenset()
    believed: frozenset[str] = frozenset()  # Names of parts that stay without a test of their own
    # True if this very model has kept those that are believed: that they gain is proven.
    is_own: bool = False
    # Of the processes that have judged a model like this one, None if not known.
    scatter: Scatter | None = None
    # By name, what of their promise believed parts have kept in the model they are believed from;
    # without those of which nobody noted that.
    kept_share: Mapping[str, float] = field(default_factory=dict)
    # What of their promise kernels are held to that no model has kept: all of it, or a little less
    # than others have kept in other models, but not less than proven ones.
    usual_share: float = 1.0


NO_PRIOR_RESULT = PriorResult()
"""Nothing was judged before."""


def prior_result_of(
    parts: Sequence[P],
    own: frozenset[str],
    kept_before: Callable[[P], KeptKernel | None],
    surroundings: Callable[[P], frozenset[str]],
    *,
    repeat_tune: bool,
    usual_share: float | None = None,
) -> PriorResult:
    """Return the earlier decisions about the kernels of a model.

    What the model of `--base_result` or another model of the bank has kept is believed where it
    stands between the same neighbours at every place, and no noise decided that.

    Args:
        parts: Of the model.
        own: Names of those this very model has kept.
        kept_before: Returns what an earlier model says of a part, None if it has not kept it.
        surroundings: Returns digests of what stands around the places of a part.
        repeat_tune: True to believe nothing.
        usual_share: What of their promise kernels have kept in other models, None if not known.
    """
    usual = (
        1.0
        if usual_share is None or repeat_tune
        else min(1.0, max(PROVEN, _OF_USUAL * usual_share))
    )
    found = {one.name: kept_before(one) for one in parts}
    in_base = {name: kept for name, kept in found.items() if kept is not None}
    proven = own.union(in_base)
    if own or repeat_tune:
        return PriorResult(proven=proven, believed=own, is_own=bool(own), usual_share=usual)
    believed = frozenset(
        one.name
        for one in parts
        if one.name in in_base and _is_believed(in_base[one.name], surroundings(one))
    )
    return PriorResult(
        proven=proven,
        believed=believed,
        scatter=_scatter(parts, in_base),
        kept_share={
            name: share for name in believed if (share := in_base[name].kept_share) is not None
        },
        usual_share=usual,
    )


def _is_believed(kept: KeptKernel, here: frozenset[str]) -> bool:
    return kept.is_settled and bool(here) and here <= kept.surroundings


def _scatter(parts: Sequence[P], in_base: Mapping[str, KeptKernel]) -> Scatter | None:
    """Return the scatter of processes of a model like this one, None if there is none.

    The same kernels make models alike, whatever stands around them: where their memory comes to
    lie is what processes differ in.
    """
    promised = sum(one.gain_us for one in parts)
    of_kept = sum(one.gain_us for one in parts if one.name in in_base)
    if not in_base or of_kept < _LIKE * promised:
        return None
    scatters = [kept.scatter for kept in in_base.values() if kept.scatter is not None]
    return max(scatters, key=lambda one: one.deviation, default=None)
