"""The merge of one bank file: decide key by key, and apply the decisions to one version.

`merge_file` is the merge; trees (`run.py`), git's driver and the check of a merge call it. Its
versions are read and checked in `versions.py`.

With a base, o is ours, t theirs, b base, - is absent:

    o == t                      ours, both changed it the same way or nobody did
    t == b                      ours: only we changed, added or removed it
    o == b                      theirs: only they did
    o, t and b all differ       the policy; - against a change is a conflict unless the
                                policy is ours or theirs; two records: `key_versions.py`

Without a base, a key only one side has was added there, and one that differs is for the policy.
"Equal" is by bytes first and by meaning where bytes differ. Whatever comes out of this, a record
with an error does not get the key of one without: that is a conflict too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter

from aoebank.errors import HistoryError, RecordError, UsageError, shell_word
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text.splice import splice_raw
from aoebank.formats.words import words_of, workload_line
from aoebank.merging.decisions import (
    CLEAN,
    SOURCE_OF,
    Action,
    Changed,
    Choice,
    Decision,
    FilePlan,
    KeptDuplicate,
    KeptRecord,
    PersonalVerdict,
    Reason,
    RecordMoves,
    Source,
    conflict_of,
)
from aoebank.merging.key_versions import KeyVersions, changed_in_meaning, decide_contested
from aoebank.merging.versions import Inputs, MergeContext, Versions, find_untouched, read_inputs
from aoebank.model.digest import sha256_of

_ALWAYS_SAID = (Reason.QUARANTINE, Reason.BUILT_IN_FASTER, Reason.CONTAINS, Reason.PERSON)
_NO_NEWS = (Reason.SAME, Reason.OURS_CHANGED)
_USED = {  # the versions whose record an action takes, or whose removal
    Action.KEEP_BOTH: (Source.OURS, Source.THEIRS),
    Action.REMOVE: (Source.THEIRS,),
    **{action: (source,) for action, source in SOURCE_OF.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMerge:
    """Merge of one file."""

    plan: FilePlan  # What was decided; without decisions for files of lines
    data: bytes | None  # The merged file; None if there is to be none


def merge_file(versions: Versions, name: str, context: MergeContext) -> FileMerge:
    """Return the merge of a bank file; keys nobody could decide keep the record of ours.

    Whatever conflicts there are, the result is a valid bank. Each record is one of the inputs byte
    for byte; of one with the alternatives of both sides that holds for each alternative.

    Args:
        versions: With a base, one that is not there was deleted.
        name: In the result, for decisions and messages; `versions.named` has the target.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
        HistoryError: a person decided about other records than these.
    """
    untouched = find_untouched(versions)
    if untouched is not None:
        if find_error(untouched) is not None:
            plan = FilePlan(name=name, format=untouched.format.name)
            return FileMerge(plan=plan, data=untouched.data)
        # it is the result, but for records that are to stay out
        versions = replace(versions, base=untouched, ours=untouched, theirs=untouched)
        context = replace(context, verdicts={})
    inputs = read_inputs(versions, context)
    edits = Edits(name=name, inputs=inputs)
    verdicts = dict(context.verdicts)
    same = 0
    versions, repeated = inputs.versions, inputs.repeated
    is_plain = not (inputs.ours_out or inputs.theirs_out)
    compared = versions.iter_compared(is_two_way=context.is_two_way)
    for name_of_key, base, ours, theirs, who in compared:
        if who is Changed.NOBODY and is_plain and name_of_key not in repeated:
            same += 1
            if context.tells_reasons:
                edits.reasons[name_of_key] = Reason.SAME
            continue
        key = KeyVersions(key=name_of_key, base=base, ours=ours, theirs=theirs, files=versions)
        choice = decide_key(key, who, inputs, context)
        verdicts.pop(key.key, None)
        edits.counts[choice.reason] += 1
        if context.tells_reasons:
            edits.reasons[key.key] = choice.reason
        is_for_base = choice.conflict and context.takes_base
        edits.give(key, Action.TAKE_BASE if is_for_base else choice.action)
        if _is_said(choice, context) or key.key in inputs.repeated:
            edits.say(key, choice)
    edits.counts[Reason.SAME] += same
    if inputs.slower:
        _drop_slower(edits)
        if context.tells_reasons:
            edits.reasons |= {key: said.reason for key, said in edits.decisions.items()}
    # a verdict that met no key was made about another merge
    if verdicts:
        raise stale_verdict(next(iter(verdicts)), f"nothing to decide in {name}")
    return edits.finish()


def _is_said(choice: Choice, context: MergeContext) -> bool:
    """True if a decision is told as a value, not only counted."""
    is_news = context.verbose and choice.reason not in _NO_NEWS
    is_odd = choice.reason is Reason.THEIRS_ADDED and bool(choice.note)
    return choice.conflict or choice.reason in _ALWAYS_SAID or is_odd or is_news


def _drop_slower(edits: Edits) -> None:
    """Take out what the built-in bank does better; conflicts stay as they are."""
    slower = edits.inputs.slower
    if not any(slower.values()):
        return
    # a list first: taking a record out changes the output that is walked
    for key, pick in [*edits.iter_output()]:
        note = slower.get(pick.source, {}).get(pick.number)
        said = edits.decisions.get(key.key)
        # a record united of both sides has more answers than the one the built-in bank beats
        if note is not None and pick.raw is None and not (said and said.conflict):
            edits.counts[Reason.BUILT_IN_FASTER] += 1
            edits.give(key, Action.REMOVE)
            choice = Choice(action=Action.REMOVE, reason=Reason.BUILT_IN_FASTER, note=note)
            edits.say(key, choice)


# ---- decide ----


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
    # quarantine comes first: no policy brings a known-bad record back
    choice = _keep_out(key, who, inputs) or _decide(key, who, context)
    if not choice.conflict and choice.reason not in (Reason.SAME, Reason.QUARANTINE):
        objection = _find_objection(key, choice.action, inputs)
        choice = conflict_of(Reason.UNREADABLE, objection) if objection else choice
        fault = key.fault(Source.THEIRS) if choice.reason is Reason.THEIRS_ADDED else None
        if fault is not None:  # nothing better is lost, but it is said
            choice = replace(choice, note=f"{Source.THEIRS}: {fault.problem}")
    # a person overrules policies and objections, but no quarantine
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
    # under a policy for one side neither meaning nor times count: the records are not read
    if who is Changed.BOTH and not (context.is_two_way and context.rules.is_one_sided):
        who = changed_in_meaning(key)
    if who is Changed.BOTH:
        return decide_contested(key, context)
    action, reason = Action.KEEP_OURS, Reason.SAME
    if who is Changed.OURS:
        reason = Reason.OURS_CHANGED
    elif who is Changed.THEIRS and key.theirs is None:
        action, reason = Action.REMOVE, Reason.THEIRS_REMOVED
    elif who is Changed.THEIRS:
        action = Action.TAKE_THEIRS
        reason = Reason.THEIRS_ADDED if key.ours is None else Reason.THEIRS_CHANGED
    return Choice(action=action, reason=reason)


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


# ---- a person ----


def _apply_verdict(verdict: PersonalVerdict, key: KeyVersions, choice: Choice) -> Choice:
    """Return the choice of a person, or `choice` where that is no other one.

    Raises:
        HistoryError: it is about other records than these.
        UsageError: it asks for what is not there.
    """
    # the choice was about bytes: any other record needs another look
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
            hint=f"aoebank quarantine rm {shell_word(key.key)}",
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


# ---- carry the edits out ----


@dataclass(frozen=True, slots=True)
class _Pick:
    """The record a key gets: the one at a position of a version, or bytes made of two."""

    source: Source
    number: int
    raw: bytes | None = None  # A record with the alternatives of both sides; None for all others


@dataclass(slots=True, kw_only=True)
class Edits:
    """The edits of one version, the frame; a key nobody mentions keeps what the frame has."""

    name: str
    inputs: Inputs
    counts: Counter[Reason] = field(default_factory=Counter)
    decisions: dict[str, Decision] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)
    _replaced: dict[int, _Pick] = field(default_factory=dict)
    _removed: set[int] = field(default_factory=set)
    _added: dict[int, _Pick] = field(default_factory=dict)
    _last: list[_Pick] = field(default_factory=list)

    def give(self, key: KeyVersions, action: Action) -> None:
        """Give a key the record an action says, or none, in the place of what it had."""
        pick = None
        if action is Action.KEEP_BOTH:
            pick = _united(key)
        elif action is not Action.REMOVE:
            source = SOURCE_OF[action]
            number = key.of(source)
            pick = None if number is None else _Pick(source, number)
        # a later step may decide again (built-in bank): forget what was planned before
        own = key.ours if self.inputs.frame is Source.OURS else key.theirs
        if own is not None:
            self._replaced.pop(own, None)
            self._removed.discard(own)
        elif key.theirs is not None:
            self._added.pop(key.theirs, None)
        if pick is None:
            if own is not None:
                self._removed.add(own)
        elif pick.source is not self.inputs.frame or pick.raw is not None:
            self._put(key, own, pick)

    def _put(self, key: KeyVersions, own: int | None, pick: _Pick) -> None:
        """Bring a record into the frame, where `own` is the place of the key."""
        if own is not None:
            self._replaced[own] = pick
        elif self.inputs.frame is Source.OURS and key.theirs is not None:
            self._added[key.theirs] = pick
        else:
            self._last.append(pick)

    def say(self, key: KeyVersions, choice: Choice) -> None:
        """Keep the decision about a key, in the place of an earlier one."""
        records = (key.record(source) for source in (Source.OURS, Source.THEIRS, Source.BASE))
        record = next((record for record in records if record is not None), None)
        name = self.inputs.versions.any().name
        self.decisions[key.key] = Decision(
            file=self.name,
            key=key.key,
            action=choice.action,
            reason=choice.reason,
            conflict=choice.conflict,
            soc_version=(name.soc_version if name else None)
            or (record.soc_version if record else None),
            op_type=record.op_type if record else name.op_type if name else None,
            workload=workload_line(record) if record and choice.conflict else "",
            note=choice.note,
            base=_keep_of(key, Source.BASE, has_words=choice.conflict),
            ours=_keep_of(key, Source.OURS, has_words=choice.conflict),
            theirs=_keep_of(key, Source.THEIRS, has_words=choice.conflict),
            left_out=tuple(_left_out(key, self.inputs)),
        )

    def iter_output(self) -> Iterator[tuple[KeyVersions, _Pick]]:
        """Yield the record of each key that gets one."""
        for key, base, ours, theirs in self.inputs.versions.iter_places():
            own = ours if self.inputs.frame is Source.OURS else theirs
            pick = self._added.get(theirs) if theirs is not None else None
            if self.inputs.frame is not None and own is not None and own not in self._removed:
                pick = self._replaced.get(own) or _Pick(self.inputs.frame, own)
            if pick is not None:
                found = KeyVersions(
                    key=key, base=base, ours=ours, theirs=theirs, files=self.inputs.versions
                )
                yield found, pick

    def finish(self) -> FileMerge:
        """Return the plan, and the file with the edits."""
        versions, frame = self.inputs.versions, self.inputs.frame
        parsed = versions.of(frame) if frame else None
        if frame is None or parsed is None:
            known = versions.base.format.name if versions.base else None
            plan = FilePlan(name=self.name, format=known, reasons=self.reasons)
            return FileMerge(plan=plan, data=None)
        # hidden records of a key go with the one that counts, or an old answer would come back
        hidden = {source: versions.hidden(source) for source in Source}
        for key, numbers in hidden[frame].items():
            place = parsed.find(key)
            is_joined = parsed.format.joins_equal_keys
            if not is_joined or place in self._removed or place in self._replaced:
                self._removed.update(numbers)
        left = len(parsed) - len(self._removed) + len(self._added) + len(self._last)
        # a file that one side deleted stays deleted if no record of it is left
        was_deleted = versions.base is not None and None in (versions.ours, versions.theirs)
        plan = FilePlan(
            name=self.name,
            format=parsed.format.name,
            decisions=tuple(self.decisions.values()),
            counts=self.counts,
            reasons=self.reasons,
            hidden={
                source: sum(map(len, keys.values())) for source, keys in hidden.items() if keys
            },
            moves=self._moves(parsed, left),
        )
        return FileMerge(plan=plan, data=self._edited(parsed) if left or not was_deleted else None)

    def _edited(self, frame: ParsedFile) -> bytes:
        if not (self._replaced or self._removed or self._added or self._last):
            return frame.data
        return splice_raw(
            frame,
            replaced={number: self._raw(pick) for number, pick in self._replaced.items()},
            removed=frozenset(self._removed),
            added=[(after, self._raw(pick)) for after, pick in self._anchored(frame)],
        )

    def _raw(self, pick: _Pick) -> bytes:
        parsed = self.inputs.versions.of(pick.source)
        assert parsed is not None
        return parsed.raw(pick.number) if pick.raw is None else pick.raw

    def _moves(self, frame: ParsedFile, left: int) -> RecordMoves:
        """Return the changes for a reader of our file; the frame may be another text.

        Args:
            left: Records of the result.
        """
        ours = self.inputs.versions.ours
        if ours is None or not len(ours):
            return RecordMoves(added=left)
        taken_out = {frame.keys[number] for number in self._removed}
        gone = sum(ours.find(key) is not None for key in taken_out)
        if self.inputs.frame is Source.OURS:
            added = len(self._added) + len(self._last)
            return RecordMoves(added=added, changed=len(self._replaced), removed=gone)
        return RecordMoves(  # ours is the base: what theirs did is done, but for what rules say
            added=self.counts[Reason.THEIRS_ADDED],
            changed=self.counts[Reason.THEIRS_CHANGED],
            removed=self.counts[Reason.THEIRS_REMOVED] + gone,
        )

    def _anchored(self, frame: ParsedFile) -> Iterator[tuple[int, _Pick]]:
        """Yield the new records, each with the position of the record of the frame it follows."""
        if self._added:
            yield from sorted(self._neighbours(frame), key=itemgetter(0))
        end = self._kept_before(len(frame))
        for pick in self._last:
            yield end, pick

    def _neighbours(self, frame: ParsedFile) -> Iterator[tuple[int, _Pick]]:
        # workloads of a model stand together: a new record follows the neighbour it has in theirs
        theirs = self.inputs.versions.theirs
        assert theirs is not None
        leading: list[_Pick] = []
        after: int | None = None
        for number, key in enumerate(theirs.keys):
            pick = self._added.get(number)
            if pick is not None:
                if after is None:
                    leading.append(pick)
                else:
                    yield after, pick
                continue
            place = frame.find(key)
            if place is None or place in self._removed:
                continue
            if after is None:
                before = self._kept_before(place)
                yield from ((before, first) for first in leading)
                leading.clear()
            after = place
        end = self._kept_before(len(frame))
        yield from ((end, first) for first in leading)

    def _kept_before(self, number: int) -> int:
        """Return the last position before this one whose record stays; -1 for the start."""
        for place in range(number - 1, -1, -1):
            if place not in self._removed:
                return place
        return -1


def _united(key: KeyVersions) -> _Pick:
    """Return the record with the answers of both sides."""
    ours, theirs = key.raw(Source.OURS), key.raw(Source.THEIRS)
    assert ours is not None
    assert theirs is not None
    assert key.ours is not None
    return _Pick(Source.OURS, key.ours, key.files.any().format.unite(ours, theirs))


def _keep_of(key: KeyVersions, source: Source, *, has_words: bool) -> KeptRecord | None:
    parsed, number = key.files.of(source), key.of(source)
    return None if parsed is None or number is None else _keep(parsed, number, has_words=has_words)


def _left_out(key: KeyVersions, inputs: Inputs) -> Iterator[KeptDuplicate]:
    """Yield the records of a key that do not count."""
    for source, numbers in inputs.repeated.get(key.key, {}).items():
        parsed = key.files.of(source)
        assert parsed is not None
        for number in numbers:
            yield KeptDuplicate(side=source, record=_keep(parsed, number))


def _keep(parsed: ParsedFile, number: int, *, has_words: bool = False) -> KeptRecord:
    """Return the record at a position as a decision keeps it."""
    record = None
    with suppress(RecordError):
        record = parsed.format.record(parsed, number)
    raw = parsed.raw(number)
    return KeptRecord(
        raw=raw,
        sha256=sha256_of(raw),
        cost_us=record.cost_us if record else None,
        strategy=record.strategy if record else None,
        words=words_of(record).strategy if record and has_words else (),
    )
