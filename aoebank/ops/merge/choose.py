"""Choose between two records of one key, both changed.

                                       two plausible times to compare?
    keep-best                          yes                      no
    gap beyond the noise band          the faster               untimed policy
    gap inside it                      the incumbent            untimed policy
    same strategy, no gap to speak of  the incumbent            the timed one, the incumbent
    one edit contains the other        as the gap says          the containing one, not a conflict

The incumbent of a two-way merge is ours, unless the rules say there is none. With a base it is
the side that still has the strategy of the base. Where there is none, or both are, the smaller
time wins, then the smaller text: what comes out does not depend on which side is ours.

Of several records of one key in one file, the one that counts:

    some kept out or with an error, others sound               a sound one
    two comparable times, the gap beyond the noise band        the fastest
    anything else                                              the one readers use
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isclose
from statistics import median

from aoebank.errors import RecordError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.plausibility import find_time_problem
from aoebank.formats.protocol import ParsedFile
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
from aoebank.ops.merge.plan import SOURCE_OF, Action, Reason
from aoebank.ops.merge.policy import MergeRules, Policy

KeptOut = Callable[[ParsedFile], Mapping[int, str]]
_STORED = (Event.ADD, Event.UPDATE)  # the events that put a time into the bank
_ROUNDING = 1e-3  # banks keep times rounded
_FAR = 10.0  # a gain that makes one look at the neighbours


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
        read_neighbours: Gives the records near the one of a side; asked only for a large gap.
    """

    ours: Record
    theirs: Record
    base: Record | None
    incumbent: Action | None
    times_of_ours: Measurements
    times_of_theirs: Measurements
    read_neighbours: Callable[[Action], Sequence[Record]] = lambda action: ()


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
    note = "; ".join(
        f"{SOURCE_OF[side]}: {problem}"
        for side, _ in _sides(answers)
        if (problem := _time_problem(answers, side))
    )
    return replace(_by_policy(rules.untimed, fail=known), note=note)


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


def prefer_best(
    parsed: ParsedFile, *, times: Measurements, rules: MergeRules, kept_out: KeptOut
) -> ParsedFile:
    """Return a file whose `find` gives the record that counts for each key.

    Args:
        times: How the times of the file were measured.
        kept_out: Gives by position the records that stay out; asked where a key is repeated.
    """
    repeated = {} if parsed.format.joins_equal_keys else parsed.repeated()
    if not repeated:
        return parsed
    bad = kept_out(parsed)
    preferred = {}
    for key, numbers in repeated.items():
        used, sound = _sound(parsed, numbers, bad)
        preferred[key] = _fastest(parsed, used, sound, times, rules)
    return replace(parsed, preferred=preferred)


def _sound(
    parsed: ParsedFile, numbers: Sequence[int], kept_out: Mapping[int, str]
) -> tuple[int, list[int]]:
    """Return the record readers use among those without an error, and all of these."""
    ranks = {
        number: (number in kept_out, rank_of(find_fault(parsed, number))) for number in numbers
    }
    sound = [number for number in numbers if ranks[number] == min(ranks.values())]
    return sound[0 if parsed.format.first_wins else -1], sound


def _fastest(
    parsed: ParsedFile,
    used: int,
    sound: Sequence[int],
    times: Measurements,
    rules: MergeRules,
) -> int:
    """Return the fastest record, if its gap to the one readers use is beyond the noise band."""
    records = {
        number: record for number in sound if (record := _read_timed(parsed, number)) is not None
    }
    if used not in records:
        return used
    used_us, used_timing = records[used].cost_us, times.find(records[used])
    best, best_us = used, used_us
    for number, record in records.items():
        timing = times.find(record)
        band = noise_band(rules.noise_ratio, timing, used_timing)
        is_comparable = are_comparable(timing, used_timing, rules.times)
        assert record.cost_us is not None
        assert best_us is not None
        assert used_us is not None
        if is_comparable and record.cost_us < best_us and is_beyond(record.cost_us, used_us, band):
            best, best_us = number, record.cost_us
    return best


def _read_timed(parsed: ParsedFile, number: int) -> Record | None:
    """Return a record with a plausible time."""
    with suppress(RecordError):
        record = parsed.format.record(parsed, number)
        is_usable = record.cost_us is not None and not find_time_problem(record)
        return record if is_usable else None
    return None


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
    if _time_problem(answers, Action.KEEP_OURS) or _time_problem(answers, Action.TAKE_THEIRS):
        return Reason.IMPLAUSIBLE
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
    """Return the only side with a time somebody can have measured, if there is one."""
    timed = [
        side
        for side, record in _sides(answers)
        if record.cost_us is not None and not _time_problem(answers, side)
    ]
    return timed[0] if len(timed) == 1 else None


def _sides(answers: TwoAnswers) -> tuple[tuple[Action, Record], tuple[Action, Record]]:
    return (Action.KEEP_OURS, answers.ours), (Action.TAKE_THEIRS, answers.theirs)


def _time_problem(answers: TwoAnswers, side: Action) -> str:
    """Return why the time of a side cannot have been measured; empty if it can."""
    ours, theirs = answers.ours, answers.theirs
    own, other = (ours, theirs) if side is Action.KEEP_OURS else (theirs, ours)
    is_far_less = None not in (own.cost_us, other.cost_us) and _is_far_less(own, other)
    # only a large gain is worth reading more records
    near = answers.read_neighbours(side) if is_far_less else ()
    return find_time_problem(own, rivals=[other], neighbours=near)


def _is_far_less(own: Record, other: Record) -> bool:
    assert own.cost_us is not None
    assert other.cost_us is not None
    return own.cost_us * _FAR < other.cost_us


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
