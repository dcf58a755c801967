"""Decide, key by key, what a merge is to do; nothing is written here.

With a base, o is ours, t theirs, b base, - is absent:

    o == t                      ours, both changed it the same way or nobody did
    t == b                      ours: only we changed, added or removed it
    o == b                      theirs: only they did
    o, t and b all differ       the policy; - against a change is a conflict unless the
                                policy is ours or theirs

Without one a key only one side has was added there, and one that differs is for the policy.
"Equal" is by bytes first and by meaning where bytes differ. Whatever comes out of this, a record
with an error does not get the key of one without: that is a conflict too.

Two records of one key, both changed, under keep-best:

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from aoebank.errors import HistoryError, RecordError, UsageError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.plausibility import find_time_problem, read_neighbours
from aoebank.formats.protocol import ParsedFile
from aoebank.merging.context import MergeContext
from aoebank.merging.decisions import (
    CLEAN,
    SOURCE_OF,
    Action,
    Changed,
    Choice,
    Incumbent,
    MergeRules,
    Policy,
    Reason,
    Source,
)
from aoebank.merging.document import PersonalVerdict
from aoebank.merging.versions import Inputs, KeyVersions, differing_target
from aoebank.model.digest import canonical_text, sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Alternative, Record
from aoebank.model.timing import Measurements, are_comparable, is_beyond, noise_band

_CHOSEN = {Policy.OURS: Action.KEEP_OURS, Policy.THEIRS: Action.TAKE_THEIRS}
_FAR = 10.0  # a gain that makes one look at the neighbours
_USED = {  # the versions whose record an action takes, or whose removal
    Action.KEEP_BOTH: (Source.OURS, Source.THEIRS),
    Action.REMOVE: (Source.THEIRS,),
    **{action: (source,) for action, source in SOURCE_OF.items()},
}


def decide_key(key: KeyVersions, who: Changed, inputs: Inputs, context: MergeContext) -> Choice:
    """Return the choice about a key, from its three records and what is known of them.

    Args:
        key: Its records.
        who: Who changed it, going by bytes.
        inputs: Tells which records stay out, which have an error, and which do not count.
        context: Rules, how times were measured, and what a person decided.

    Raises:
        HistoryError: a person decided about other records.
        UsageError: a person asks for what is not there.
    """
    choice = _keep_out(key, who, inputs) or _decide(key, who, context)
    if not choice.conflict and choice.reason not in (Reason.SAME, Reason.QUARANTINE):
        objection = _find_objection(key, choice.action, inputs)
        choice = _conflict(Reason.UNREADABLE, objection) if objection else choice
        fault = key.fault(Source.THEIRS) if choice.reason is Reason.THEIRS_ADDED else None
        if fault is not None:  # nothing better is lost, but it is said
            choice = replace(choice, note=f"{Source.THEIRS}: {fault.problem}")
    if key.key in context.verdicts:
        choice = _apply_verdict(context.verdicts[key.key], key, choice)
    return _tell_repeated(choice, key, inputs)


def _keep_out(key: KeyVersions, who: Changed, inputs: Inputs) -> Choice | None:
    """Return the choice where one of the records, or both, is to stay out."""
    ours_note = None if key.ours is None else inputs.ours_out.get(key.ours)
    theirs_note = None if key.theirs is None else inputs.theirs_out.get(key.theirs)
    is_out_already = key.ours is None and who in (Changed.OURS, Changed.NOBODY)
    if is_out_already or (ours_note is None and theirs_note is None):
        return None
    action = Action.REMOVE
    if key.ours is not None and ours_note is None:
        action = Action.KEEP_OURS
    elif key.theirs is not None and theirs_note is None:
        action = Action.TAKE_THEIRS
    return Choice(action=action, reason=Reason.QUARANTINE, note=ours_note or theirs_note or "")


def _decide(key: KeyVersions, who: Changed, context: MergeContext) -> Choice:
    """Return the choice about a key, going by who changed it."""
    rules = context.rules
    if who is Changed.BOTH:
        if context.is_two_way and not rules.overrides and rules.policy in _CHOSEN:
            # times and strategies cannot change it: they are not compared
            return Choice(action=_CHOSEN[rules.policy], reason=Reason.POLICY)
        who = _changed_in_meaning(key)
    if who is Changed.BOTH:
        return _decide_contested(key, context)
    action, reason = Action.KEEP_OURS, Reason.SAME
    if who is Changed.OURS:
        reason = Reason.OURS_CHANGED
    elif who is Changed.THEIRS and key.theirs is None:
        action, reason = Action.REMOVE, Reason.THEIRS_REMOVED
    elif who is Changed.THEIRS:
        action = Action.TAKE_THEIRS
        reason = Reason.THEIRS_ADDED if key.ours is None else Reason.THEIRS_CHANGED
    return Choice(action=action, reason=reason)


def _changed_in_meaning(key: KeyVersions) -> Changed:
    """Return the side that changed the meaning of a key, where all bytes differ."""
    ours, theirs = key.record(Source.OURS), key.record(Source.THEIRS)
    if is_same(ours, theirs):
        return Changed.NOBODY
    base = key.record(Source.BASE)
    if is_same(theirs, base):
        return Changed.OURS
    return Changed.THEIRS if is_same(ours, base) else Changed.BOTH


def _decide_contested(key: KeyVersions, context: MergeContext) -> Choice:
    """Return the policy's choice about two changes."""
    rules = context.rules
    ours, theirs = key.record(Source.OURS), key.record(Source.THEIRS)
    known, name = ours or theirs, key.files.any().name
    policy = rules.policy_for(
        soc_version=name.soc_version if name else None,
        key=key.key,
        op_type=(known.op_type if known else None) or (name.op_type if name else None),
    )
    if policy in _CHOSEN:
        return Choice(action=_CHOSEN[policy], reason=Reason.POLICY)
    if ours is None or theirs is None:
        is_gone = key.ours is None or key.theirs is None
        return _conflict(Reason.DELETED_AND_CHANGED if is_gone else Reason.UNREADABLE)
    by_target = _by_target(key) if policy is Policy.KEEP_BEST else None
    if by_target is not None:
        return by_target if rules.untimed is Policy.FAIL else _by_policy(rules.untimed)
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
    if choice.action is Action.KEEP_BOTH and not key.files.any().format.keeps_alternatives:
        return _conflict(Reason.NO_ROOM)
    return choice


def _by_target(key: KeyVersions) -> Choice | None:
    """Return the choice between records for two targets, None where both are for one.

    Times of two chips say nothing about each other. Whoever merges them all the same
    (`--allow-other-soc`) wants what the other one has more, and keeps what is tuned for this one.
    """
    files = (key.files.ours, key.files.theirs)
    ours, theirs = (None if parsed is None else parsed.name for parsed in files)
    members = differing_target(ours, theirs)
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
    return _conflict(Reason.OTHER_TARGET, note)


def _read_neighbours(key: KeyVersions, side: Action) -> Sequence[Record]:
    parsed, number = key.files.of(SOURCE_OF[side]), key.of(SOURCE_OF[side])
    assert parsed is not None
    assert number is not None
    return read_neighbours(parsed, number)


def _conflict(reason: Reason, note: str = "") -> Choice:
    return Choice(action=Action.KEEP_OURS, reason=reason, conflict=True, note=note)


# ---- no record with an error gets the key of one without ----


def _find_objection(key: KeyVersions, action: Action, inputs: Inputs) -> str:
    """Return why an action is for a person to choose; empty if it is not.

    | the record taken has an error, and | |
    |---|---|
    | it takes the place of one that has none, or cannot be read while that one can | objection |
    | it is new, and cannot be read | objection |
    | it is new, and another side has its workload under the key readers look up | objection |
    | it is new, and stands where its side removed another one | objection, to the removal too |
    | it is new otherwise, or as bad as the one it replaces | none: nothing better is lost |

    Without a base a record only one side has is new.
    """
    for source in _USED[action]:
        if key.of(source) is None:
            if key.base is not None and key.key in _find_mangled(source, inputs):
                return f"{source} has a record with an error in its place"
            continue
        fault = key.fault(source)
        if fault is not None and _is_worse(key, source, inputs):
            return f"{source}: {fault.problem}"
        if fault is not None and _has_other(key, source, fault.own_key):
            return f"{source}: {fault.problem}; {fault.own_key} has this workload"
    return ""


def _has_other(key: KeyVersions, source: Source, own_key: str) -> bool:
    """True if a new record is one that another version has under the key of its workload."""
    others = [other for other in Source if other is not source]
    if not own_key or any(key.of(other) is not None for other in others):
        return False
    files = [key.files.of(other) for other in others]
    return any(parsed is not None and parsed.find(own_key) is not None for parsed in files)


def _is_worse(key: KeyVersions, source: Source, inputs: Inputs) -> bool:
    fault = key.fault(source)
    others = [other for other in Source if other is not source and key.of(other) is not None]
    if others:
        return rank_of(fault) > min(rank_of(key.fault(other)) for other in others)
    if fault is None:
        return False
    return fault.is_unreadable or key.key in _find_mangled(source, inputs)


def _find_mangled(source: Source, inputs: Inputs) -> frozenset[str]:
    """Return the keys a side removed, and those with an error it has in their places."""
    if source not in inputs.mangled:
        base, side = inputs.versions.base, inputs.versions.of(source)
        found = () if base is None or side is None else _iter_mangled(base, side)
        inputs.mangled[source] = frozenset(found)
    return inputs.mangled[source]


def _iter_mangled(base: ParsedFile, side: ParsedFile) -> Iterator[str]:
    """Yield keys that went and keys of bad records that came behind the same record."""
    gone, new = _runs(base, side), _runs(side, base)
    for neighbour in gone.keys() & new.keys():
        bad = [key for key in new[neighbour] if _is_bad(side, key)]
        if bad:
            yield from (*bad, *gone[neighbour])


def _runs(parsed: ParsedFile, other: ParsedFile) -> dict[str, list[str]]:
    """Return the keys another file has not, by the key they follow that it has."""
    found: dict[str, list[str]] = {}
    neighbour = ""
    for key in parsed.keys:
        if other.find(key) is None:
            found.setdefault(neighbour, []).append(key)
        else:
            neighbour = key
    return found


def _is_bad(parsed: ParsedFile, key: str) -> bool:
    number = parsed.find(key)
    return number is not None and find_fault(parsed, number) is not None


# ---- two records of a key ----


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
    """Return the policy's choice about two records."""
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


def _by_policy(policy: Policy, *, fail: Reason = Reason.POLICY_FAIL) -> Choice:
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
    """Return the sort key of a record, whatever its spelling."""
    time = record.cost_us or 0.0
    return record.cost_us is None, time, canonical_text(record.strategy), _meaning(record)


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
    """True if both records are there and say the same, however they are spelled."""
    if a is None or b is None or a.strategy != b.strategy:  # equal may still be 1 and 1.0
        return False
    return _meaning(a) == _meaning(b)


def _members(record: Record) -> JsonValue:
    """Return the members of a record by name; absent ones are left out."""
    members: dict[str, JsonValue] = {
        "workload": record.workload,
        "strategy": record.strategy,
        "extra": record.extra,
        "alternatives": [*map(_facts, record.alternatives)],
    }
    more = {"cost_us": record.cost_us, "origin": record.origin}
    return {**members, **{name: value for name, value in more.items() if value is not None}}


def _meaning(record: Record) -> str:
    return canonical_text([*map(_facts, record.answers)])


def _facts(answer: Alternative) -> list[JsonValue]:
    return [answer.workload, answer.strategy, answer.extra, answer.cost_us, answer.origin]


# ---- a person ----


def _apply_verdict(verdict: PersonalVerdict, key: KeyVersions, choice: Choice) -> Choice:
    """Return the choice of a person, or `choice` where that is no other one.

    Raises:
        HistoryError: it is about other records than these.
        UsageError: it asks for what is not there.
    """
    for source in Source:
        if sha256_of(key.raw(source)) != verdict.sha256.get(source):
            raise stale_verdict(key.key, f"another record in {source}")
    action = verdict.action
    if action is None or (action is choice.action and not choice.conflict):
        return choice
    if choice.reason is Reason.QUARANTINE:
        raise UsageError(
            "key is under quarantine",
            where=key.key,
            got=action,
            expected=choice.action,
            hint=f"aoebank quarantine rm {key.key}",
        )
    _demand_possible(action, key)
    return Choice(action=action, reason=Reason.PERSON, note=f"instead of {choice.reason}")


def _demand_possible(action: Action, key: KeyVersions) -> None:
    problem = ""
    if action is Action.TAKE_BASE and key.base is None:
        problem = "the base has no such record"
    if action is Action.KEEP_BOTH:
        if not key.files.any().format.keeps_alternatives:
            problem = "this format keeps one answer per key"
        elif key.ours is None or key.theirs is None:
            problem = "only one side has such a record"
    if problem:
        raise UsageError(problem, where=key.key, got=action, expected="another action")


def stale_verdict(key: str, got: str) -> HistoryError:
    """Return the error of a verdict about something else than what is merged."""
    return HistoryError(
        "decision does not fit the sides any more",
        where=key,
        got=got,
        expected="the records it was made about",
        hint="save the decisions again: --decisions",
    )


# ---- records that share a key ----


def _tell_repeated(choice: Choice, key: KeyVersions, inputs: Inputs) -> Choice:
    """Return a choice that says which records of its key are left out, if any are."""
    if key.key not in inputs.repeated:
        return choice
    notes = [choice.note] if choice.note else []
    for source, numbers in inputs.repeated[key.key].items():
        own = _describe(key.files.of(source), key.of(source))
        others = ", ".join(_describe(key.files.of(source), number) for number in numbers)
        notes.append(f"{source} has the key {len(numbers) + 1} times: {own} counts, not {others}")
    is_clean = choice.reason in CLEAN and not choice.conflict
    reason = Reason.DUPLICATE if is_clean else choice.reason
    return replace(choice, reason=reason, note="; ".join(notes))


def _describe(parsed: ParsedFile | None, number: int | None) -> str:
    """Return time and line of a record, for a note."""
    assert parsed is not None
    assert number is not None
    cost_us = None
    with suppress(RecordError):
        cost_us = parsed.format.record(parsed, number).cost_us
    line, _ = parsed.lines.position(parsed.starts[number])
    return f"line {line}" if cost_us is None else f"{cost_us:g} us in line {line}"
