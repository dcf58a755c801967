"""A key and its records in the three versions, and the choice where both sides changed it.

Of two records under keep-best:

                                       two plausible times to compare?
    keep-best                          yes                      no
    for two targets                    the one for the target of the result
    gap beyond the noise band          the faster               untimed policy
    gap inside it                      the incumbent            untimed policy
    same strategy, no gap to speak of  the incumbent            the timed one, the incumbent
    one edit contains the other        as the gap says          the containing one, not a conflict

The incumbent of a two-way merge is ours, unless the rules say there is none. With a base it is
the side that still has the strategy of the base. Where there is none, or both are, the smaller
time wins, then the smaller text: what comes out does not depend on which side is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from aoebank.errors import RecordError
from aoebank.formats.faults import Fault, find_fault
from aoebank.formats.plausibility import find_time_problem, read_neighbours
from aoebank.formats.protocol import ParsedFile
from aoebank.merging.decisions import (
    ONE_SIDED,
    SOURCE_OF,
    Action,
    Changed,
    Choice,
    Incumbent,
    MergeRules,
    Policy,
    Reason,
    Source,
    Three,
    conflict_of,
)
from aoebank.merging.versions import MergeContext, Versions, differing_target
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.model.timing import Measurements, are_comparable, is_beyond, noise_band

_FAR = 10.0  # a gain that makes one look at the neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVersions(Three[int | None]):
    """Positions of a key in the three versions, None where it is absent, and its records there."""

    key: str
    files: Versions  # The versions it is in
    _records: dict[Source, Record | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _faults: dict[Source, Fault | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def record(self, source: Source) -> Record | None:
        """Return the record of one version; None if the key is absent or the record unreadable."""
        if source not in self._records:
            parsed, number = self.files.of(source), self.of(source)
            self._records[source] = None
            if parsed is not None and number is not None:
                with suppress(RecordError):
                    self._records[source] = parsed.format.record(parsed, number)
        return self._records[source]

    def fault(self, source: Source) -> Fault | None:
        """Return the fault of the record of one version; None for a sound or an absent record."""
        if source not in self._faults:
            parsed, number = self.files.of(source), self.of(source)
            self._faults[source] = None
            if parsed is not None and number is not None:
                self._faults[source] = find_fault(parsed, number)
        return self._faults[source]

    def raw(self, source: Source) -> bytes | None:
        """Return the bytes of the record of one version; None where the key is absent."""
        parsed, number = self.files.of(source), self.of(source)
        return None if parsed is None or number is None else parsed.raw(number)


def changed_in_meaning(key: KeyVersions) -> Changed:
    """Return who changed the meaning of a key, where the bytes of all three versions differ."""
    ours, theirs = key.record(Source.OURS), key.record(Source.THEIRS)
    if is_same(ours, theirs):
        return Changed.NOBODY
    base = key.record(Source.BASE)
    if is_same(theirs, base):
        return Changed.OURS
    return Changed.THEIRS if is_same(ours, base) else Changed.BOTH


def is_same(a: Record | None, b: Record | None) -> bool:
    """True if both records are there and say the same, however they are spelled."""
    if a is None or b is None or a.strategy != b.strategy:  # equal may still be 1 and 1.0
        return False
    return meaning_of(a) == meaning_of(b)


def meaning_of(record: Record) -> str:
    """Return a text that two records share if they say the same in any spelling."""
    return canonical_text([answer.facts for answer in record.answers])


# ---- changed on both sides ----


def decide_contested(key: KeyVersions, context: MergeContext) -> Choice:
    """Return the policy's choice about a key that both sides changed in different ways."""
    rules = context.rules
    if rules.is_one_sided:
        return choose_by_policy(rules.policy)
    ours, theirs = key.record(Source.OURS), key.record(Source.THEIRS)
    known, name = ours or theirs, key.files.any().name
    # an override may name the operator: the record tells it where the file name does not
    policy = rules.policy_for(
        soc_version=(name.soc_version if name else None) or (known.soc_version if known else None),
        key=key.key,
        op_type=(known.op_type if known else None) or (name.op_type if name else None),
    )
    if policy in ONE_SIDED:
        return choose_by_policy(policy)
    # removed or unreadable on one side: no time or strategy to compare, so a person decides
    if ours is None or theirs is None:
        is_gone = key.ours is None or key.theirs is None
        return conflict_of(Reason.DELETED_AND_CHANGED if is_gone else Reason.UNREADABLE)
    by_target = _by_target(key, rules) if policy is Policy.KEEP_BEST else None
    if by_target is not None:
        return by_target if rules.untimed is Policy.FAIL else choose_by_policy(rules.untimed)
    raws = key.raw(Source.OURS) or b"", key.raw(Source.THEIRS) or b""
    format_ = key.files.any().format
    if policy is Policy.KEEP_BEST and format_.complements(key.raw(Source.BASE), *raws):
        note = "each side has answers that the other one lacks"
        return Choice(action=Action.KEEP_BOTH, reason=Reason.BOTH_KEPT, note=note)
    # with a base its strategy tells the incumbent, see `_incumbent`
    has_incumbent = context.is_two_way and rules.incumbent is Incumbent.OURS
    answers = TwoAnswers(
        ours=ours,
        theirs=theirs,
        base=key.record(Source.BASE),
        incumbent=Action.KEEP_OURS if has_incumbent else None,
        times_of_ours=context.times_of_ours,
        times_of_theirs=context.times_of_theirs,
        read_neighbours=partial(_read_neighbours, key),
    )
    choice = choose(answers, policy, rules)
    # only some formats have room for a second answer of a key
    if choice.action is Action.KEEP_BOTH and not format_.keeps_alternatives:
        return conflict_of(Reason.NO_ROOM)
    return choice


def _by_target(key: KeyVersions, rules: MergeRules) -> Choice | None:
    """Return the choice between records for two targets, None where both are for one.

    Times of two chips say nothing about each other. Whoever merges them all the same
    (`--allow-other-soc`) wants what the other one has more, and keeps what is tuned for this one.
    The target of a file whose name tells none may be any.
    """
    files = (key.files.ours, key.files.theirs)
    ours, theirs = (None if parsed is None else parsed.name for parsed in files)
    members = differing_target(ours, theirs)
    if not members and rules.may_differ_in_soc:
        unnamed = [parsed.path.name for parsed in files if parsed and not _has_target(parsed)]
        note = f"the name of {' and of '.join(unnamed)} tells no target"
        return conflict_of(Reason.OTHER_TARGET, note) if unnamed else None
    if not members:
        return None
    told = [
        " and ".join(str(getattr(name, member)) for member in members) for name in (ours, theirs)
    ]
    note = f"ours is for {told[0]}, theirs for {told[1]}"
    result = key.files.named[1] if key.files.named is not None else ours
    for action, name in ((Action.KEEP_OURS, ours), (Action.TAKE_THEIRS, theirs)):
        if not differing_target(result, name):
            return Choice(action=action, reason=Reason.OWN_TARGET, note=note)
    return conflict_of(Reason.OTHER_TARGET, note)


def _has_target(parsed: ParsedFile) -> bool:
    return parsed.name is not None or parsed.format.has_target_in_rows


def _read_neighbours(key: KeyVersions, side: Action) -> Sequence[Record]:
    parsed, number = key.files.of(SOURCE_OF[side]), key.of(SOURCE_OF[side])
    assert parsed is not None
    assert number is not None
    return read_neighbours(parsed, number)


# ---- two records ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoAnswers:
    """Two records of one key that differ, and what they came from."""

    ours: Record
    theirs: Record
    base: Record | None  # None where the base has no such record
    incumbent: Action | None  # The side that wins inside the noise band; None: no side
    times_of_ours: Measurements  # Asked only when both have a time; so for the other
    times_of_theirs: Measurements
    # Gives the records near the one of a side; asked only for a large gap.
    read_neighbours: Callable[[Action], Sequence[Record]] = lambda action: ()


def choose(answers: TwoAnswers, policy: Policy, rules: MergeRules) -> Choice:
    """Return the policy's choice about two records."""
    if policy is not Policy.KEEP_BEST:
        return choose_by_policy(policy)
    # times first: a measured gain counts more than who edited what
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
    return replace(choose_by_policy(rules.untimed, fail=known), note=note)


def choose_by_policy(policy: Policy, *, fail: Reason = Reason.POLICY_FAIL) -> Choice:
    """Return the choice of a policy that looks at no time; a conflict where it makes none."""
    actions = {
        Policy.OURS: Choice(action=Action.KEEP_OURS, reason=Reason.POLICY),
        Policy.THEIRS: Choice(action=Action.TAKE_THEIRS, reason=Reason.POLICY),
        Policy.UNION: Choice(action=Action.KEEP_BOTH, reason=Reason.BOTH_KEPT),
    }
    return actions.get(policy) or Choice(action=Action.KEEP_OURS, reason=fail, conflict=True)


def _by_time(answers: TwoAnswers, rules: MergeRules) -> Choice | Reason:
    """Return the choice by two times, or the reason why they decide nothing."""
    ours_us, theirs_us = answers.ours.cost_us, answers.theirs.cost_us
    if ours_us is None or theirs_us is None:
        return Reason.NO_TIMES
    if _time_problem(answers, Action.KEEP_OURS) or _time_problem(answers, Action.TAKE_THEIRS):
        return Reason.IMPLAUSIBLE
    ours = answers.times_of_ours.find(answers.ours)
    theirs = answers.times_of_theirs.find(answers.theirs)
    if not are_comparable(ours, theirs, rules.times):
        return Reason.OTHER_MACHINE
    # relative to the smaller time, so that the gap does not depend on which side is ours
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
    own_us, other_us = own.cost_us, other.cost_us
    # only a large gain is worth reading more records
    is_far_less = own_us is not None and other_us is not None and own_us * _FAR < other_us
    near = answers.read_neighbours(side) if is_far_less else ()
    return find_time_problem(own, rivals=[other], neighbours=near)


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
    # a total order on content: both merge directions give the same record
    smaller = _rank(answers.ours) <= _rank(answers.theirs)
    return Action.KEEP_OURS if smaller else Action.TAKE_THEIRS


def _rank(record: Record) -> tuple[bool, float, str, str]:
    """Return the sort key of a record, whatever its spelling."""
    time = record.cost_us or 0.0
    return record.cost_us is None, time, canonical_text(record.strategy), meaning_of(record)


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
    # items are compared by place, and places match only in lists of one length
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


def _members(record: Record) -> JsonValue:
    """Return the members of a record by name; absent ones are left out."""
    members: dict[str, JsonValue] = {
        "workload": record.workload,
        "strategy": record.strategy,
        "extra": record.extra,
        "alternatives": [other.facts for other in record.alternatives],
    }
    more = {"cost_us": record.cost_us, "origin": record.origin}
    return {**members, **{name: value for name, value in more.items() if value is not None}}
