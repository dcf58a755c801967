"""Choose between two records of one key, both changed.

                                       two times to compare?
    keep-best                          yes                      no
    gap beyond the noise band          the faster               untimed policy
    gap inside it                      the incumbent            untimed policy
    same strategy, no gap to speak of  the incumbent            the timed one, the incumbent

The incumbent of a two-way merge is ours, unless the rules say there is none. With a base it is
the side that still has the strategy of the base. Where there is none, or both are, the smaller
time wins, then the smaller text: what comes out does not depend on which side is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Alternative, Record
from aoebank.ops.diff.change import is_beyond
from aoebank.ops.merge.measured import Measured
from aoebank.ops.merge.plan import Action, Reason
from aoebank.ops.merge.policy import MergeRules, Policy, Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What becomes of a key, before anybody else has a say."""

    action: Action
    reason: Reason
    conflict: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Two records of one key that differ, and what they came from.

    Attributes:
        base: None where the base has no such record.
        incumbent: The side that wins inside the noise band; None: no side.
        measured_ours: Asked only when both have a time; so for the other.
    """

    ours: Record
    theirs: Record
    base: Record | None
    incumbent: Action | None
    measured_ours: Callable[[], Measured]
    measured_theirs: Callable[[], Measured]


def choose(rivals: Rivals, policy: Policy, rules: MergeRules) -> Choice:
    """Return what a policy says about two records."""
    if policy is not Policy.KEEP_BEST:
        return _by_policy(policy)
    known = _by_time(rivals, rules)
    if isinstance(known, Choice):
        return known
    if _text(rivals.ours.strategy) == _text(rivals.theirs.strategy):
        return Choice(action=_timed(rivals) or _incumbent(rivals), reason=Reason.SAME_STRATEGY)
    if rules.untimed is Policy.FAIL:
        return Choice(action=Action.KEEP_OURS, reason=known, conflict=True)
    return _by_policy(rules.untimed)


def is_same(a: Record, b: Record) -> bool:
    """Return whether two records say the same, however they are spelled."""
    if a.strategy != b.strategy:  # the usual case, and cheap; equal may still be 1 and 1.0
        return False
    return _meaning(a) == _meaning(b)


def _by_policy(policy: Policy) -> Choice:
    actions = {
        Policy.OURS: Choice(action=Action.KEEP_OURS, reason=Reason.POLICY),
        Policy.THEIRS: Choice(action=Action.TAKE_THEIRS, reason=Reason.POLICY),
        Policy.UNION: Choice(action=Action.KEEP_BOTH, reason=Reason.BOTH_KEPT),
    }
    fail = Choice(action=Action.KEEP_OURS, reason=Reason.POLICY_FAIL, conflict=True)
    return actions.get(policy, fail)


def _by_time(rivals: Rivals, rules: MergeRules) -> Choice | Reason:
    """Return what two times say, or why they say nothing."""
    ours_us, theirs_us = rivals.ours.cost_us, rivals.theirs.cost_us
    if ours_us is None or theirs_us is None:
        return Reason.NO_TIMES
    ours, theirs = rivals.measured_ours(), rivals.measured_theirs()
    if not _are_comparable(ours.fingerprint, theirs.fingerprint, rules.times):
        return Reason.OTHER_MACHINE
    gap = max(ours_us, theirs_us) / min(ours_us, theirs_us) - 1
    band = max(rules.noise_ratio, ours.spread_ratio, theirs.spread_ratio)
    if is_beyond(min(ours_us, theirs_us), max(ours_us, theirs_us), band):
        faster = Action.KEEP_OURS if ours_us < theirs_us else Action.TAKE_THEIRS
        return Choice(action=faster, reason=Reason.FASTER, note=f"by {100 * gap:.1f} %")
    note = f"{100 * gap:.1f} % is within {100 * band:.1f} %"
    return Choice(action=_incumbent(rivals), reason=Reason.INSIDE_NOISE, note=note)


def _are_comparable(ours: str | None, theirs: str | None, times: Times) -> bool:
    if times is Times.ANY:
        return True
    return ours == theirs and not (times is Times.STRICT and ours is None)


def _timed(rivals: Rivals) -> Action | None:
    """Return the only side with a time, if there is one."""
    timed = (rivals.ours.cost_us is not None, rivals.theirs.cost_us is not None)
    if timed[0] == timed[1]:
        return None
    return Action.KEEP_OURS if timed[0] else Action.TAKE_THEIRS


def _incumbent(rivals: Rivals) -> Action:
    if rivals.incumbent is not None:
        return rivals.incumbent
    if rivals.base is not None:
        old = _text(rivals.base.strategy)
        has_old = (_text(rivals.ours.strategy) == old, _text(rivals.theirs.strategy) == old)
        if has_old[0] != has_old[1]:
            return Action.KEEP_OURS if has_old[0] else Action.TAKE_THEIRS
    smaller = _rank(rivals.ours) <= _rank(rivals.theirs)
    return Action.KEEP_OURS if smaller else Action.TAKE_THEIRS


def _rank(record: Record) -> tuple[bool, float, str, str]:
    """Return what records are ordered by: nothing in it depends on how they are spelled."""
    time = record.cost_us or 0.0
    return record.cost_us is None, time, _text(record.strategy), _meaning(record)


def _meaning(record: Record) -> str:
    first = Alternative(
        workload=record.workload,
        strategy=record.strategy,
        cost_us=record.cost_us,
        origin=record.origin,
        extra=record.extra,
    )
    return _text([_members(each) for each in (first, *record.alternatives)])


def _members(each: Alternative) -> list[JsonValue]:
    return [each.workload, each.strategy, each.extra, each.cost_us, each.origin]


def _text(value: JsonValue) -> str:
    return canonical_text(value)
