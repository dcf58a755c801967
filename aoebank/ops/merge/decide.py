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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from aoebank.formats.plausibility import read_neighbours
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.provenance import ProvenanceLog
from aoebank.model.record import Record
from aoebank.ops.merge.choose import Choice, Measurements, TwoAnswers, choose, is_same, prefer_best
from aoebank.ops.merge.draft import Draft, find_frame
from aoebank.ops.merge.guards import (
    BadRecords,
    Exclusions,
    demand_mergeable,
    find_untouched,
)
from aoebank.ops.merge.plan import SOURCE_OF, Action, FilePlan, Reason, Source
from aoebank.ops.merge.policy import Incumbent, MergeRules, Policy
from aoebank.ops.merge.verdicts import PersonalVerdict, apply_verdict, stale_verdict
from aoebank.ops.merge.versions import Changed, KeyVersions, Versions, find_repeated_keys

_CHOSEN = {Policy.OURS: Action.KEEP_OURS, Policy.THEIRS: Action.TAKE_THEIRS}
_ALWAYS_SAID = (Reason.QUARANTINE, Reason.BUILT_IN_FASTER, Reason.CONTAINS, Reason.PERSON)
_NO_NEWS = (Reason.SAME, Reason.OURS_CHANGED)
_Reasons = Mapping[int, str]  # why records stay out, by their position


def _no_log() -> ProvenanceLog:
    return ProvenanceLog(entries=(), findings=())


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContext:
    """What decides about the keys of one file, besides the records themselves.

    Attributes:
        is_two_way: There is no base at all: an absent record was never there.
        exclusions: Records that stay out.
        verdicts: What a person decided, by key.
        times_of_ours: How ours was measured; asked only if two times are compared.
        verbose: Whether every decision becomes a value; else conflicts do, and what keeps a
            record out, and the rest is counted.
        tells_reasons: Whether the plan has the reason of each key, for merges of several steps.
    """

    rules: MergeRules = field(default_factory=MergeRules)
    is_two_way: bool = False
    exclusions: Exclusions = field(default_factory=Exclusions)
    verdicts: Mapping[str, PersonalVerdict] = field(default_factory=dict)
    times_of_ours: Measurements = field(default_factory=lambda: Measurements(_no_log))
    times_of_theirs: Measurements = field(default_factory=lambda: Measurements(_no_log))
    verbose: bool = False
    tells_reasons: bool = False


def decide_file(versions: Versions, name: str, context: MergeContext) -> FilePlan:
    """Return what becomes of a bank file.

    Args:
        versions: One that is not there was deleted, with a base.
        name: In the result.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
        HistoryError: a person decided about other records.
    """
    untouched = find_untouched(versions)
    if untouched is not None:
        return _take_whole(versions, untouched, name, context)
    demand_mergeable(versions, name, may_differ_in_soc=context.rules.may_differ_in_soc)
    ours_bad, theirs_bad = map(
        context.exclusions.find_quarantined, (versions.ours, versions.theirs)
    )
    versions = count_each_key_once(versions, context)
    repeated = find_repeated_keys(versions)
    reasons: dict[str, Reason] = {}
    draft = Draft(name=name, versions=versions, frame=find_frame(versions), repeated=repeated)
    is_plain = not (ours_bad or theirs_bad)
    verdicts = dict(context.verdicts)
    bad_records = BadRecords(versions=versions)
    same = 0
    for key, base, ours, theirs, who in versions.iter_compared(is_two_way=context.is_two_way):
        is_repeated = key in repeated.numbers
        if who is Changed.NOBODY and is_plain and not is_repeated:
            same += 1
            if context.tells_reasons:
                reasons[key] = Reason.SAME
            continue
        found = KeyVersions(key=key, base=base, ours=ours, theirs=theirs, files=versions)
        choice = None if is_plain else _keep_out(found, who, ours_bad, theirs_bad)
        choice = choice or _demand_sound(found, _decide(found, who, context), bad_records)
        if key in verdicts:
            choice = apply_verdict(verdicts.pop(key), found, choice)
        choice = repeated.explain(choice, found) if is_repeated else choice
        draft.counts[choice.reason] += 1
        reasons |= {key: choice.reason} if context.tells_reasons else {}
        draft.give(found, choice.action)
        is_news = context.verbose and choice.reason not in _NO_NEWS
        if choice.conflict or choice.reason in _ALWAYS_SAID or is_news or is_repeated:
            draft.say(found, choice)
    draft.counts[Reason.SAME] += same
    if context.exclusions.built_in is not None:
        _drop_slower(draft, context.exclusions)
        if context.tells_reasons:
            reasons |= {key: found.reason for key, found in draft.decisions.items()}
    if verdicts:
        raise stale_verdict(next(iter(verdicts)), f"nothing to decide in {name}")
    return replace(draft.plan(), reasons=reasons)


def count_each_key_once(versions: Versions, context: MergeContext) -> Versions:
    """Return the versions, of each the record that counts where it has a key several times."""
    ours_times, theirs_times = context.times_of_ours, context.times_of_theirs

    def prefer(parsed: ParsedFile | None, times: Measurements) -> ParsedFile | None:
        if parsed is None:
            return None
        kept_out = context.exclusions.find_quarantined
        return prefer_best(parsed, times=times, rules=context.rules, kept_out=kept_out)

    return Versions(
        base=prefer(versions.base, ours_times),
        ours=prefer(versions.ours, ours_times),
        theirs=prefer(versions.theirs, theirs_times),
    )


def _take_whole(versions: Versions, source: Source, name: str, context: MergeContext) -> FilePlan:
    """Return the plan that takes the file of one side; what is to stay out of it stays out."""
    parsed = versions.of(source)
    assert parsed is not None
    if find_error(parsed) is not None:
        return FilePlan(name=name, format=parsed.format.name, frame=source)
    same = Versions(base=parsed, ours=parsed, theirs=parsed)
    plan = decide_file(same, name, replace(context, verdicts={}))
    return replace(plan, frame=source)


def _keep_out(
    key: KeyVersions, who: Changed, ours_bad: _Reasons, theirs_bad: _Reasons
) -> Choice | None:
    """Return the choice where one of the records, or both, is to stay out."""
    ours_note = None if key.ours is None else ours_bad.get(key.ours)
    theirs_note = None if key.theirs is None else theirs_bad.get(key.theirs)
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
    """Return who changed what a key says, where all bytes differ."""
    ours, theirs = key.record(Source.OURS), key.record(Source.THEIRS)
    if is_same(ours, theirs):
        return Changed.NOBODY
    base = key.record(Source.BASE)
    if is_same(theirs, base):
        return Changed.OURS
    return Changed.THEIRS if is_same(ours, base) else Changed.BOTH


def _decide_contested(key: KeyVersions, context: MergeContext) -> Choice:
    """Return what the policy says about two changes."""
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


def _read_neighbours(key: KeyVersions, side: Action) -> Sequence[Record]:
    parsed, number = key.files.of(SOURCE_OF[side]), key.of(SOURCE_OF[side])
    assert parsed is not None
    assert number is not None
    return read_neighbours(parsed, number)


def _demand_sound(key: KeyVersions, choice: Choice, bad_records: BadRecords) -> Choice:
    """Return a choice, or a conflict where it would give the key to a bad record."""
    if choice.conflict or choice.reason is Reason.SAME:
        return choice
    objection = bad_records.find_objection(key, choice.action)
    return _conflict(Reason.UNREADABLE, objection) if objection else choice


def _conflict(reason: Reason, note: str = "") -> Choice:
    return Choice(action=Action.KEEP_OURS, reason=reason, conflict=True, note=note)


def _drop_slower(draft: Draft, exclusions: Exclusions) -> None:
    """Take out what the built-in bank does better; conflicts stay as they are."""
    slower = {
        source: exclusions.find_slower(parsed)
        for source in (Source.OURS, Source.THEIRS)
        if (parsed := draft.versions.of(source)) is not None
    }
    if not any(slower.values()):
        return
    for key, pick in [*draft.iter_output()]:
        note = slower.get(pick.source, {}).get(pick.number)
        said = draft.decisions.get(key.key)
        if note is not None and pick.raw is None and not (said and said.conflict):
            draft.counts[Reason.BUILT_IN_FASTER] += 1
            draft.give(key, Action.REMOVE)
            choice = Choice(action=Action.REMOVE, reason=Reason.BUILT_IN_FASTER, note=note)
            draft.say(key, choice)
