"""Choose between two records of one key, both changed.

                                       two times to compare?
    keep-best                          yes                      no
    gap beyond the noise band          the faster               untimed policy
    gap inside it                      the incumbent            untimed policy
    same strategy, no gap to speak of  the incumbent            the timed one, the incumbent
    one edit contains the other        as the gap says          the containing one, not a conflict

The incumbent of a two-way merge is ours, unless the rules say there is none. With a base it is
the side that still has the strategy of the base. Where there is none, or both are, the smaller
time wins, then the smaller text: what comes out does not depend on which side is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isclose
from statistics import median

from aoebank.formats.provenance import ProvenanceLog
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Alternative, Record
from aoebank.model.timing import (
    Timing,
    are_comparable,
    fingerprint_of,
    is_beyond,
    noise_band,
    timing_of,
)
from aoebank.ops.merge.plan import Action, Reason
from aoebank.ops.merge.policy import MergeRules, Policy

_STORED = (Event.ADD, Event.UPDATE)  # the events that put a time into the bank
_ROUNDING = 1e-3  # banks keep times rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What becomes of a key, before anybody else has a say."""

    action: Action
    reason: Reason
    conflict: bool = False
    note: str = ""


@dataclass(slots=True)
class Measurements:
    """Looks up how the times of one side's bank file were measured.

    Attributes:
        load: Gives the side-car; called when first needed, which is rarely.
    """

    load: Callable[[], ProvenanceLog]
    _by_key: dict[str, list[Provenance]] | None = field(default=None, init=False)

    def find(self, record: Record) -> Timing:
        """Return what is known about the time of a record.

        A side-car holds the history of its key, after a merge that of both sides. The entry
        meant is the last one with this time; without it all of them must agree.
        """
        if self._by_key is None:
            self._by_key = {}
            for entry in self.load().entries:
                if entry.event in _STORED:
                    self._by_key.setdefault(entry.key, []).append(entry)
        entries = self._by_key.get(record.key, [])
        meant = [entry for entry in entries if _is_time_of(entry, record)]
        if meant:
            return timing_of(max(meant, key=lambda entry: entry.time))
        texts = {fingerprint_of(entry) for entry in entries}
        return Timing(fingerprint=texts.pop() if len(texts) == 1 else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoAnswers:
    """Two records of one key that differ, and what they came from.

    Attributes:
        base: None where the base has no such record.
        incumbent: The side that wins inside the noise band; None: no side.
        times_of_ours: Asked only when both have a time; so for the other.
    """

    ours: Record
    theirs: Record
    base: Record | None
    incumbent: Action | None
    times_of_ours: Measurements
    times_of_theirs: Measurements


def choose(answers: TwoAnswers, policy: Policy, rules: MergeRules) -> Choice:
    """Return what a policy says about two records."""
    if policy is not Policy.KEEP_BEST:
        return _by_policy(policy)
    known = _by_time(answers, rules)
    if isinstance(known, Choice):
        return known
    if canonical_text(answers.ours.strategy) == canonical_text(answers.theirs.strategy):
        return Choice(action=_timed(answers) or _incumbent(answers), reason=Reason.SAME_STRATEGY)
    containing = find_containing(answers) if rules.takes_containing else None
    if containing is not None and rules.untimed is Policy.FAIL:
        note = "it has all the other side changed, and more"
        return Choice(action=containing, reason=Reason.CONTAINS, note=note)
    return _by_policy(rules.untimed, fail=known)


def find_containing(answers: TwoAnswers) -> Action | None:
    """Return the side whose edit of the base contains that of the other side, if one does.

    Members count by their path: every member the other side gave a value, or took out, is the same
    here. A list is one member, unless all three have the same length.
    """
    if answers.base is None:
        return None
    base, ours, theirs = map(_members, (answers.base, answers.ours, answers.theirs))
    if _contains(base, ours, theirs):
        return Action.KEEP_OURS
    return Action.TAKE_THEIRS if _contains(base, theirs, ours) else None


def _contains(base: JsonValue, big: JsonValue, small: JsonValue) -> bool:
    if _is_equal(small, base) or _is_equal(big, small):
        return True
    if isinstance(base, Mapping) and isinstance(big, Mapping) and isinstance(small, Mapping):
        return all(
            _contains_member(name, base, big, small) for name in dict.fromkeys((*base, *small))
        )
    lists = [value for value in (base, big, small) if isinstance(value, list)]
    if len(lists) < 3 or len({*map(len, lists)}) > 1:
        return False
    return all(_contains(*items) for items in zip(*lists, strict=True))


def _contains_member(
    name: str,
    base: Mapping[str, JsonValue],
    big: Mapping[str, JsonValue],
    small: Mapping[str, JsonValue],
) -> bool:
    if name in base and name in small:
        # taken out by the one that has more: then the other one must have left it alone
        return (
            _contains(base[name], big[name], small[name])
            if name in big
            else _is_equal(base[name], small[name])
        )
    if name in small:  # added
        return name in big and _is_equal(big[name], small[name])
    return name not in big  # taken out


def _is_equal(a: JsonValue, b: JsonValue) -> bool:
    return canonical_text(a) == canonical_text(b)


def is_same(a: Record | None, b: Record | None) -> bool:
    """Return whether there are two records that say the same, however they are spelled."""
    if a is None or b is None or a.strategy != b.strategy:  # equal may still be 1 and 1.0
        return False
    return _meaning(a) == _meaning(b)


def _by_policy(policy: Policy, *, fail: Reason = Reason.POLICY_FAIL) -> Choice:
    actions = {
        Policy.OURS: Choice(action=Action.KEEP_OURS, reason=Reason.POLICY),
        Policy.THEIRS: Choice(action=Action.TAKE_THEIRS, reason=Reason.POLICY),
        Policy.UNION: Choice(action=Action.KEEP_BOTH, reason=Reason.BOTH_KEPT),
    }
    return actions.get(policy) or Choice(action=Action.KEEP_OURS, reason=fail, conflict=True)


def _by_time(answers: TwoAnswers, rules: MergeRules) -> Choice | Reason:
    """Return what two times say, or why they say nothing."""
    ours_us, theirs_us = answers.ours.cost_us, answers.theirs.cost_us
    if ours_us is None or theirs_us is None:
        return Reason.NO_TIMES
    ours = answers.times_of_ours.find(answers.ours)
    theirs = answers.times_of_theirs.find(answers.theirs)
    if not are_comparable(ours, theirs, rules.times):
        return Reason.OTHER_MACHINE
    gap = max(ours_us, theirs_us) / min(ours_us, theirs_us) - 1
    band = noise_band(rules.noise_ratio, ours, theirs)
    if is_beyond(min(ours_us, theirs_us), max(ours_us, theirs_us), band):
        faster = Action.KEEP_OURS if ours_us < theirs_us else Action.TAKE_THEIRS
        return Choice(action=faster, reason=Reason.FASTER, note=f"by {100 * gap:.1f} %")
    note = f"{100 * gap:.1f} % is within {100 * band:.1f} %"
    return Choice(action=_incumbent(answers), reason=Reason.INSIDE_NOISE, note=note)


def _timed(answers: TwoAnswers) -> Action | None:
    """Return the only side with a time, if there is one."""
    timed = (answers.ours.cost_us is not None, answers.theirs.cost_us is not None)
    if timed[0] == timed[1]:
        return None
    return Action.KEEP_OURS if timed[0] else Action.TAKE_THEIRS


def _incumbent(answers: TwoAnswers) -> Action:
    if answers.incumbent is not None:
        return answers.incumbent
    if answers.base is not None:
        old = canonical_text(answers.base.strategy)
        has_old = (
            canonical_text(answers.ours.strategy) == old,
            canonical_text(answers.theirs.strategy) == old,
        )
        if has_old[0] != has_old[1]:
            return Action.KEEP_OURS if has_old[0] else Action.TAKE_THEIRS
    smaller = _rank(answers.ours) <= _rank(answers.theirs)
    return Action.KEEP_OURS if smaller else Action.TAKE_THEIRS


def _rank(record: Record) -> tuple[bool, float, str, str]:
    """Return what records are ordered by: nothing in it depends on how they are spelled."""
    time = record.cost_us or 0.0
    return record.cost_us is None, time, canonical_text(record.strategy), _meaning(record)


def _members(record: Record) -> JsonValue:
    """Return what a record says, by names; what it does not say is not there."""
    members: dict[str, JsonValue] = {
        "workload": record.workload,
        "strategy": record.strategy,
        "extra": record.extra,
        "alternatives": [
            [answer.workload, answer.strategy, answer.extra, answer.cost_us, answer.origin]
            for answer in record.alternatives
        ],
    }
    more = {"cost_us": record.cost_us, "origin": record.origin}
    return {**members, **{name: value for name, value in more.items() if value is not None}}


def _meaning(record: Record) -> str:
    first = Alternative(
        workload=record.workload,
        strategy=record.strategy,
        cost_us=record.cost_us,
        origin=record.origin,
        extra=record.extra,
    )
    return canonical_text(
        [
            [answer.workload, answer.strategy, answer.extra, answer.cost_us, answer.origin]
            for answer in (first, *record.alternatives)
        ]
    )


def _is_time_of(entry: Provenance, record: Record) -> bool:
    if record.cost_us is None or not entry.tuned_us:
        return False
    return isclose(median(entry.tuned_us), record.cost_us, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
