"""Decide, key by key, what a merge is to do; nothing is written here.

With a base, o is ours, t theirs, b base, - is absent:

    o == t                      ours, both changed it the same way or nobody did
    t == b                      ours: only we changed, added or removed it
    o == b                      theirs: only they did
    o, t and b all differ       the policy; - against a change is a conflict unless the
                                policy is ours or theirs

Without one a key only one side has was added there, and one that differs is for the policy.
"Equal" is by bytes first and by meaning where bytes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.provenance import ProvenanceLog
from aoebank.formats.unified.union import unite
from aoebank.model.record import Record
from aoebank.ops.merge.choose import Choice, Rivals, choose, is_same
from aoebank.ops.merge.compatibility import demand_alike
from aoebank.ops.merge.draft import Draft
from aoebank.ops.merge.exclusions import Outsiders
from aoebank.ops.merge.measured import Measurements
from aoebank.ops.merge.plan import Action, FilePlan, Pick, Reason, Source
from aoebank.ops.merge.policy import Incumbent, MergeRules, Policy
from aoebank.ops.merge.verdicts import Verdicts
from aoebank.ops.merge.versions import Changed, Places, Versions

_NO_LOG = ProvenanceLog(entries=(), findings=())
_CHOSEN = {Policy.OURS: Action.KEEP_OURS, Policy.THEIRS: Action.TAKE_THEIRS}
_ALWAYS = (Reason.QUARANTINE, Reason.BUILT_IN_FASTER, Reason.PERSON)
_SOURCES = {
    Action.KEEP_OURS: Source.OURS,
    Action.TAKE_THEIRS: Source.THEIRS,
    Action.TAKE_BASE: Source.BASE,
}


def decide_file(
    name: str,
    *,
    base: ParsedFile | None,
    ours: ParsedFile | None,
    theirs: ParsedFile | None,
    rules: MergeRules,
    is_two_way: bool = False,
    log_of_ours: Callable[[], ProvenanceLog] = lambda: _NO_LOG,
    log_of_theirs: Callable[[], ProvenanceLog] = lambda: _NO_LOG,
    outsiders: Outsiders | None = None,
    verdicts: Verdicts | None = None,
    says_all: bool = False,
) -> FilePlan:
    """Return what becomes of the bank file `name`.

    Args:
        name: In the result.
        base: None if the base has no such file; so for the others, whose absence then means
            that they deleted it.
        is_two_way: There is no base at all: an absent record was never there.
        log_of_ours: Gives the side-car of ours; asked only if two times are compared.
        outsiders: Records that stay out.
        verdicts: What a person decided.
        says_all: Whether every decision becomes a value; else conflicts do, and what keeps a
            record out, and the rest is counted.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
        HistoryError: verdicts were about other records.
    """
    versions = Versions(base=base, ours=ours, theirs=theirs)
    for each in (base, ours, theirs):
        if each is not None:
            raise_if_broken(each)
    demand_alike(name, versions, may_differ_in_soc=rules.may_differ_in_soc)
    merge = _FileMerge(
        draft=Draft(name, versions),
        rules=rules,
        is_two_way=is_two_way,
        times_of_ours=Measurements(log_of_ours),
        times_of_theirs=Measurements(log_of_theirs),
        says_all=says_all,
        verdicts=verdicts or Verdicts(),
        outsiders=outsiders or Outsiders(),
    )
    return merge.run()


@dataclass(slots=True)
class _FileMerge:
    """One pass over the keys of a file."""

    draft: Draft
    rules: MergeRules
    is_two_way: bool
    times_of_ours: Measurements
    times_of_theirs: Measurements
    says_all: bool
    verdicts: Verdicts
    outsiders: Outsiders
    _frame: Source = field(default=Source.OURS, init=False)
    _open: set[str] = field(default_factory=set, init=False)
    _bad: Mapping[Source, Mapping[int, str]] = field(default_factory=dict, init=False)

    def run(self) -> FilePlan:
        versions = self.draft.versions
        frame = self.draft.frame
        if frame is not None:
            self._frame = frame
            self._bad = {
                source: self.outsiders.find_quarantined(parsed)
                for source in (Source.OURS, Source.THEIRS)
                if (parsed := versions.of(source)) is not None
            }
            same = 0
            is_plain = not any(self._bad.values())
            for key, base, ours, theirs, who in versions.iter_compared(is_two_way=self.is_two_way):
                if who is Changed.NOBODY and is_plain:
                    same += 1
                else:
                    places = Places(key=key, base=base, ours=ours, theirs=theirs)
                    self._settle(places, who)
            self.draft.counts[Reason.SAME] += same
            self._drop_slower()
        self.verdicts.demand_all_used(self.draft.name)
        return self.draft.plan()

    def _settle(self, places: Places, who: Changed) -> None:
        choice = self._quarantined(places, who)
        if choice is None:
            choice = self._foregone(who) or self._clean(places, who) or self._contested(places)
        choice = self.verdicts.find(self.draft.versions, places, choice) or choice
        self.draft.counts[choice.reason] += 1
        self.draft.settle(self._frame, places, self._pick(places, choice))
        if choice.conflict:
            self._open.add(places.key)
        if choice.conflict or choice.reason in _ALWAYS or (self.says_all and _is_news(choice)):
            self.draft.say(
                places, choice.action, choice.reason, conflict=choice.conflict, note=choice.note
            )
        self.draft.versions.forget()

    def _quarantined(self, places: Places, who: Changed) -> Choice | None:
        """Return the choice where one of the records, or both, is to stay out."""
        if not self._bad:
            return None
        ours_bad = self._bad.get(Source.OURS, {}).get(-1 if places.ours is None else places.ours)
        theirs_bad = self._bad.get(Source.THEIRS, {}).get(
            -1 if places.theirs is None else places.theirs
        )
        if ours_bad is None and theirs_bad is None:
            return None
        if places.ours is None and who in (Changed.OURS, Changed.NOBODY):
            return None  # it is out already
        note = ours_bad or theirs_bad or ""
        if places.ours is not None and ours_bad is None:
            action = Action.KEEP_OURS
        elif places.theirs is not None and theirs_bad is None:
            action = Action.TAKE_THEIRS
        else:
            action = Action.REMOVE
        return Choice(action=action, reason=Reason.QUARANTINE, note=note)

    def _foregone(self, who: Changed) -> Choice | None:
        """Return the choice where nothing in the records can change it: they are not read."""
        if who is not Changed.BOTH or not self.is_two_way or self.rules.overrides:
            return None
        action = _CHOSEN.get(self.rules.policy)
        return None if action is None else Choice(action=action, reason=Reason.POLICY)

    def _clean(self, places: Places, who: Changed) -> Choice | None:
        if who is Changed.BOTH:
            return self._clean_by_meaning(places)
        if who is Changed.NOBODY:
            return Choice(action=Action.KEEP_OURS, reason=Reason.SAME)
        if who is Changed.OURS:
            return Choice(action=Action.KEEP_OURS, reason=Reason.OURS_CHANGED)
        return _taken(places)

    def _clean_by_meaning(self, places: Places) -> Choice | None:
        """Return the choice where records that differ in bytes say the same."""
        ours, theirs = self._record(Source.OURS, places), self._record(Source.THEIRS, places)
        if ours is not None and theirs is not None and is_same(ours, theirs):
            return Choice(action=Action.KEEP_OURS, reason=Reason.SAME)
        base = self._record(Source.BASE, places)
        if base is None:
            return None
        if theirs is not None and is_same(theirs, base):
            return Choice(action=Action.KEEP_OURS, reason=Reason.OURS_CHANGED)
        if ours is not None and is_same(ours, base):
            return _taken(places)
        return None

    def _contested(self, places: Places) -> Choice:
        ours, theirs = self._record(Source.OURS, places), self._record(Source.THEIRS, places)
        known = ours or theirs
        name = self.draft.versions.any().name
        policy = self.rules.policy_for(
            soc_version=name.soc_version if name else None,
            key=places.key,
            op_type=(known.op_type if known else None) or (name.op_type if name else None),
        )
        if policy in _CHOSEN:
            return Choice(action=_CHOSEN[policy], reason=Reason.POLICY)
        if places.ours is None or places.theirs is None:
            return _conflict(Reason.DELETED_AND_CHANGED)
        if ours is None or theirs is None:
            return _conflict(Reason.UNREADABLE)
        return self._between(ours, theirs, places, policy)

    def _between(self, ours: Record, theirs: Record, places: Places, policy: Policy) -> Choice:
        has_incumbent = self.is_two_way and self.rules.incumbent is Incumbent.OURS
        rivals = Rivals(
            ours=ours,
            theirs=theirs,
            base=self._record(Source.BASE, places),
            incumbent=Action.KEEP_OURS if has_incumbent else None,
            measured_ours=lambda: self.times_of_ours.find(ours),
            measured_theirs=lambda: self.times_of_theirs.find(theirs),
        )
        choice = choose(rivals, policy, self.rules)
        if choice.action is Action.KEEP_BOTH and ours.format != "unified":
            return _conflict(Reason.NO_ROOM)
        return choice

    def _pick(self, places: Places, choice: Choice) -> Pick | None:
        if choice.action is Action.REMOVE:
            return None
        if choice.action is Action.KEEP_BOTH:
            assert places.ours is not None
            assert places.theirs is not None
            raw = self.draft.versions.raw
            both = unite(raw(Source.OURS, places.ours), raw(Source.THEIRS, places.theirs))
            return Pick(Source.OURS, places.ours, both)
        return places.pick(_SOURCES[choice.action])

    def _record(self, source: Source, places: Places) -> Record | None:
        return self.draft.versions.record(source, places.of(source))

    def _drop_slower(self) -> None:
        """Take out what the built-in bank does better; conflicts stay as they are."""
        slower = {
            source: self.outsiders.find_slower(parsed)
            for source in (Source.OURS, Source.THEIRS)
            if (parsed := self.draft.versions.of(source)) is not None
        }
        if not any(slower.values()):
            return
        for places, pick in [*self.draft.iter_output(self._frame)]:
            note = slower.get(pick.source, {}).get(pick.number)
            if note is not None and pick.raw is None and places.key not in self._open:
                self.draft.counts[Reason.BUILT_IN_FASTER] += 1
                self.draft.settle(self._frame, places, None)
                self.draft.say(places, Action.REMOVE, Reason.BUILT_IN_FASTER, note=note)


def _is_news(choice: Choice) -> bool:
    return choice.reason not in (Reason.SAME, Reason.OURS_CHANGED)


def _taken(places: Places) -> Choice:
    if places.theirs is None:
        return Choice(action=Action.REMOVE, reason=Reason.THEIRS_REMOVED)
    added = places.ours is None
    reason = Reason.THEIRS_ADDED if added else Reason.THEIRS_CHANGED
    return Choice(action=Action.TAKE_THEIRS, reason=reason)


def _conflict(reason: Reason) -> Choice:
    return Choice(action=Action.KEEP_OURS, reason=reason, conflict=True)
