"""Which kernels of a model are believed: what it, or one like it, has kept in the same place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import KeptKernel
from aoe.measurement import Scatter
from aoe.tuning.judging.precedent import Precedent
from aoe.tuning.opat.assembly import Assembly, ChosenKernel

_LIKE = 0.5
"""Share of what all kernels promise that believed ones make up at least, for a model to be like the
earlier one: how far its processes scatter is taken from there."""


def precedent_of(
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    own: frozenset[str],
    *,
    repeat_tune: bool,
) -> Precedent:
    """Return what earlier judgements say of the kernels of a model.

    What the model of `--base_result` has kept is believed where it stands between the same
    neighbours at every place, and no noise decided that.

    Args:
        bank: Knows the earlier result, too.
        assembly: Knows where kernels stand.
        kernels: Of the model.
        own: Names of those this very model has kept.
        repeat_tune: True to believe nothing.
    """
    found = {one.name: bank.kept_in_base(one.source.workload) for one in kernels}
    in_base = {name: kept for name, kept in found.items() if kept is not None}
    proven = own.union(in_base)
    if own or repeat_tune:
        return Precedent(proven=proven, believed=own, is_own=bool(own))
    believed = frozenset(
        one.name
        for one in kernels
        if one.name in in_base and _is_believed(in_base[one.name], assembly.surroundings(one))
    )
    return Precedent(
        proven=proven,
        believed=believed,
        scatter=_scatter(kernels, believed, in_base.values()),
    )


def _is_believed(kept: KeptKernel, here: frozenset[str]) -> bool:
    return kept.is_settled and bool(here) and here <= kept.surroundings


def _scatter(
    kernels: Sequence[ChosenKernel], believed: frozenset[str], in_base: Iterable[KeptKernel]
) -> Scatter | None:
    """Return how far processes of a model like this one scatter, None if none is like it."""
    promised = sum(one.gain_us for one in kernels)
    of_believed = sum(one.gain_us for one in kernels if one.name in believed)
    if not believed or of_believed < _LIKE * promised:
        return None
    scatters = [kept.scatter for kept in in_base if kept.scatter is not None]
    return max(scatters, key=lambda one: one.deviation, default=None)
