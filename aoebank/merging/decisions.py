"""Values of a merge: policies, actions, reasons, decisions, and the plan of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Generic, TypeVar

from aoebank.errors import UsageError
from aoebank.model.json_value import JsonValue
from aoebank.model.timing import NOISE_RATIO, Times
from aoebank.parameters.context import parse_ratio

_T = TypeVar("_T")


class Source(StrEnum):
    """One of the three versions of a three-way merge."""

    BASE = "base"
    OURS = "ours"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Three(Generic[_T]):
    """One thing of each of the three versions."""

    base: _T
    ours: _T
    theirs: _T

    def of(self, source: Source) -> _T:
        """Return the member of one version."""
        if source is Source.OURS:
            return self.ours
        return self.theirs if source is Source.THEIRS else self.base


class Action(StrEnum):
    """The record a key gets; a person may choose another action in a saved decision."""

    KEEP_OURS = "keep-ours"
    TAKE_THEIRS = "take-theirs"
    TAKE_BASE = "take-base"
    KEEP_BOTH = "keep-both"
    REMOVE = "remove"


SOURCE_OF = {  # the version whose record an action takes as it is
    Action.KEEP_OURS: Source.OURS,
    Action.TAKE_THEIRS: Source.THEIRS,
    Action.TAKE_BASE: Source.BASE,
}
ACTION_OF = {source: action for action, source in SOURCE_OF.items()}


class Reason(StrEnum):
    """Reason of a decision: first of clean ones, then of policies, then of conflicts."""

    SAME = "same"
    OURS_CHANGED = "ours-changed"
    THEIRS_ADDED = "theirs-added"
    THEIRS_CHANGED = "theirs-changed"
    THEIRS_REMOVED = "theirs-removed"
    DUPLICATE = "duplicate"
    FASTER = "faster"
    INSIDE_NOISE = "inside-noise"
    SAME_STRATEGY = "same-strategy"
    CONTAINS = "contains-other"
    OWN_TARGET = "own-target"
    POLICY = "policy"
    BOTH_KEPT = "both-kept"
    QUARANTINE = "quarantine"
    BUILT_IN_FASTER = "built-in-faster"
    PERSON = "person"
    DELETED_AND_CHANGED = "deleted-and-changed"
    NO_TIMES = "no-times"
    IMPLAUSIBLE = "implausible-time"
    OTHER_MACHINE = "other-machine"
    OTHER_TARGET = "other-target"
    NO_ROOM = "no-room-for-both"
    POLICY_FAIL = "policy-fail"
    UNREADABLE = "unreadable"


CLEAN = (
    Reason.SAME,
    Reason.OURS_CHANGED,
    Reason.THEIRS_ADDED,
    Reason.THEIRS_CHANGED,
    Reason.THEIRS_REMOVED,
)


REASON_WORDS = {
    Reason.SAME: "the same on both sides",
    Reason.OURS_CHANGED: "added or changed in ours only",
    Reason.THEIRS_ADDED: "added by theirs",
    Reason.THEIRS_CHANGED: "changed in theirs only",
    Reason.THEIRS_REMOVED: "removed by theirs",
    Reason.DUPLICATE: "several times on one side, one record stays",
    Reason.FASTER: "decided by time",
    Reason.INSIDE_NOISE: "inside the noise band",
    Reason.SAME_STRATEGY: "same strategy",
    Reason.CONTAINS: "one side's edit contains the other's",
    Reason.OWN_TARGET: "measured for the target of the result, the other for another one",
    Reason.POLICY: "decided by policy",
    Reason.BOTH_KEPT: "both kept",
    Reason.QUARANTINE: "kept out by the quarantine",
    Reason.BUILT_IN_FASTER: "dropped, the built-in bank is faster",
    Reason.PERSON: "decided by a person",
    Reason.DELETED_AND_CHANGED: "conflict: removed on one side, changed on the other",
    Reason.NO_TIMES: "conflict: two strategies, no two times",
    Reason.IMPLAUSIBLE: "conflict: two strategies, a time nobody can have measured",
    Reason.OTHER_MACHINE: "conflict: times from different machines",
    Reason.OTHER_TARGET: "conflict: times for different targets",
    Reason.NO_ROOM: "conflict: the format keeps one answer per key",
    Reason.POLICY_FAIL: "conflict: two answers",
    Reason.UNREADABLE: "conflict: a record has an error",
}


class Policy(StrEnum):
    """Rule for a key that both sides changed in different ways."""

    KEEP_BEST = "keep-best"
    OURS = "ours"
    THEIRS = "theirs"
    UNION = "union"
    FAIL = "fail"


ONE_SIDED = (Policy.OURS, Policy.THEIRS)


class Incumbent(StrEnum):
    """Side that wins a two-way merge inside the noise band."""

    OURS = "ours"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A policy for some records only; a pattern left out matches all."""

    policy: Policy
    soc_version: str | None = None  # Shell pattern, as are the other two
    op_type: str | None = None
    key: str | None = None

    def matches(self, *, soc_version: str | None, op_type: str | None, key: str) -> bool:
        """True if every pattern given fits; an unknown value fits no pattern."""
        pairs = (
            (self.soc_version, soc_version),
            (self.op_type, op_type),
            (self.key, key),
        )
        return all(
            pattern is None or (text is not None and fnmatchcase(text, pattern))
            for pattern, text in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """Rules for keys that both sides changed in different ways."""

    policy: Policy = Policy.KEEP_BEST
    untimed: Policy = Policy.FAIL  # For `keep-best` where there are no two comparable times
    # A gap up to this share of the smaller time is noise; 0.03 is 3 %.
    noise_ratio: float = NOISE_RATIO
    times: Times = Times.ALIKE
    # Of a two-way merge; with a base the incumbent is what the base says.
    incumbent: Incumbent = Incumbent.OURS
    overrides: tuple[Override, ...] = ()  # The last one that matches a record counts
    # Whether the side whose edit contains that of the other one is taken, where it would be a
    # conflict else.
    takes_containing: bool = True
    # Whether a file one side moved is merged with what the other side calls as before.
    follows_renames: bool = True
    may_differ_in_soc: bool = False  # Whether sides for other targets are merged all the same
    may_be_unrelated: bool = False  # Whether a base that shares no record with a side is taken

    def __post_init__(self) -> None:
        if self.untimed is Policy.KEEP_BEST:
            raise ValueError("without times there is no best: untimed cannot be keep-best")
        if not 0 <= self.noise_ratio < 100:
            raise ValueError(f"noise_ratio must be 0 or more, not {self.noise_ratio}")

    @property
    def is_one_sided(self) -> bool:
        """True if the records of one side win whatever is in them."""
        return not self.overrides and self.policy in ONE_SIDED

    def policy_for(self, *, soc_version: str | None, op_type: str | None, key: str) -> Policy:
        """Return the policy for a record."""
        for override in reversed(self.overrides):
            if override.matches(soc_version=soc_version, op_type=op_type, key=key):
                return override.policy
        return self.policy


class Changed(StrEnum):
    """Side that changed a key."""

    NOBODY = "nobody"
    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Action for a key with its reason, before a person has chosen."""

    action: Action
    reason: Reason
    conflict: bool = False
    note: str = ""


def conflict_of(reason: Reason, note: str = "") -> Choice:
    """Return the choice to leave a key for a person; ours stays in the result until then."""
    return Choice(action=Action.KEEP_OURS, reason=reason, conflict=True, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecord:
    """The record a version has for a key, as a decision keeps it."""

    raw: bytes  # Its bytes
    sha256: str  # Of these bytes
    cost_us: float | None = None  # Its time, None if it has none or cannot be read
    strategy: JsonValue = None  # None if it cannot be read
    words: tuple[str, ...] = ()  # The strategy in words, see `RecordWords`


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDuplicate:
    """A record that is left out, since another one of its side has its key and counts."""

    side: Source
    record: KeptRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Action for one key, its reason and its records; a version without the key has none."""

    file: str  # Name of the bank file in the result
    key: str
    action: Action
    reason: Reason
    # Nobody decided yet; the result has what `action` says until somebody does.
    conflict: bool = False
    soc_version: str | None = None
    op_type: str | None = None
    workload: str = ""  # What the record is about, in one short line; of conflicts that can be read
    base: KeptRecord | None = None
    ours: KeptRecord | None = None
    theirs: KeptRecord | None = None
    left_out: tuple[KeptDuplicate, ...] = ()
    note: str = ""  # More about the reason, for people

    @property
    def cost_ours_us(self) -> float | None:
        return self.ours.cost_us if self.ours else None

    @property
    def cost_theirs_us(self) -> float | None:
        return self.theirs.cost_us if self.theirs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalVerdict:
    """One decision as a person left it."""

    action: Action | None  # None for a conflict that is still open
    sha256: Mapping[Source, str]  # Of the record of each version that has one


Verdicts = Mapping[str, Mapping[str, Mapping[str, PersonalVerdict]]]
"""By side, file and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMoves:
    """Counts of records that differ between the result and ours."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    def plus(self, other: RecordMoves) -> RecordMoves:
        """Return the sum of both."""
        return RecordMoves(
            added=self.added + other.added,
            changed=self.changed + other.changed,
            removed=self.removed + other.removed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """Decisions about the keys of one file."""

    name: str
    format: str | None = None
    decisions: tuple[Decision, ...] = ()  # One per key that needs saying
    # How many keys were decided for which reason, clean ones included.
    counts: Mapping[Reason, int] = field(default_factory=dict)
    # Why, by key; empty unless asked for.
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    # Records that do not count, because another one of their side has their key.
    hidden: Mapping[Source, int] = field(default_factory=dict)
    moves: RecordMoves = field(default_factory=RecordMoves)  # What changes for who has our file

    @property
    def conflicts(self) -> tuple[Decision, ...]:
        """Return the decisions nobody made yet."""
        return tuple(decision for decision in self.decisions if decision.conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatedness:
    """Relation of the base and a side, in one file or in all: records, and a key in common."""

    base_has_records: bool = False
    side_has_records: bool = False
    share_a_key: bool = False

    @property
    def are_strangers(self) -> bool:
        """True if base and side have records, and no key in common."""
        return self.base_has_records and self.side_has_records and not self.share_a_key

    def __or__(self, other: Relatedness) -> Relatedness:
        return Relatedness(
            base_has_records=self.base_has_records or other.base_has_records,
            side_has_records=self.side_has_records or other.side_has_records,
            share_a_key=self.share_a_key or other.share_a_key,
        )


_FIELDS = {"soc": "soc_version", "op": "op_type", "key": "key"}


def parse_override(text: str) -> Override:
    """Return the override a person wrote, as in `op=MatMulV3:theirs`.

    Several patterns may be given: `soc=Ascend910B*,op=MatMulV3:ours`.

    Raises:
        UsageError: it is none.
    """
    patterns_text, colon, policy = text.rpartition(":")
    patterns: dict[str, str] = {}
    for part in patterns_text.split(","):
        name, equals, pattern = part.partition("=")
        if not (equals and pattern and name in _FIELDS and _FIELDS[name] not in patterns):
            raise _bad_override(text)
        patterns[_FIELDS[name]] = pattern
    if not colon or policy not in tuple(Policy):
        raise _bad_override(text)
    return Override(policy=Policy(policy), **patterns)


def _bad_override(text: str) -> UsageError:
    return UsageError(
        "is no override",
        where=text,
        expected="soc=PATTERN, op=PATTERN or key=PATTERN, then :" + "|".join(Policy),
        hint="--override op=MatMulV3:theirs",
    )


# ---- rules from the settings of git ----

SECTION = "aoebank.merge"


def rules_of_settings(settings: Iterable[tuple[str, str]]) -> MergeRules:
    """Return the rules that settings of a repository and its user name.

    Args:
        settings: Name and value of each setting of `SECTION`.

    Raises:
        UsageError: a setting has no meaning; names the setting.
    """
    rules = MergeRules()
    overrides: list[Override] = []
    for key, value in settings:
        name = key.removeprefix(f"{SECTION}.")
        if name == "override":
            overrides.append(_checked(key, value, parse_override))
        elif name in _SETTINGS:
            member, parse = _SETTINGS[name]
            rules = replace(rules, **{member: _checked(key, value, parse)})
        else:
            raise UsageError(
                "unknown setting",
                where=f"git config {key}",
                expected=", ".join((*_SETTINGS, "override")),
            )
    return replace(rules, overrides=tuple(overrides))


def parse_policy(text: str) -> Policy:
    """Return the policy a person wrote.

    Raises:
        UsageError: it is none.
    """
    try:
        return Policy(text)
    except ValueError as error:
        raise UsageError("is no policy", where=text, expected=", ".join(Policy)) from error


def parse_untimed(text: str) -> Policy:
    """Return the policy for records without times a person wrote.

    Raises:
        UsageError: it is none, or needs times.
    """
    policy = parse_policy(text)
    if policy is Policy.KEEP_BEST:
        raise UsageError("without times there is no best", where=text, expected="another policy")
    return policy


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise UsageError("is neither true nor false", where=text, expected="true or false")
    return _SWITCH[text.lower()]


_SWITCH = {  # as git reads them
    **dict.fromkeys(("", "true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "policy": ("policy", parse_policy),
    "untimed": ("untimed", parse_untimed),
    "noise": ("noise_ratio", partial(parse_ratio, option="--noise")),
    "containment": ("takes_containing", _parse_switch),
}


def _checked(key: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except UsageError as error:
        error.where = f"git config {key}"
        error.got = value
        raise
