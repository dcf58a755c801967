"""Merge three versions of one file, as git hands them out: a bank, a side-car, a quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.provenance import SUFFIX, ProvenanceLog
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.model.quarantine import Quarantine
from aoebank.ops.merge.apply import apply_file
from aoebank.ops.merge.decide import decide_file
from aoebank.ops.merge.exclusions import Outsiders
from aoebank.ops.merge.lines import merge_side_cars
from aoebank.ops.merge.plan import Added, FilePlan, Pick, Source
from aoebank.ops.merge.policy import MergeRules, Policy
from aoebank.ops.merge.quarantine import merge_quarantines
from aoebank.ops.merge.versions import Versions
from aoebank.storage.quarantine import FILE, FOLDER

_BROKEN_HINT = "mend that side first: aoebank validate names everything that is wrong"


def no_log() -> ProvenanceLog:
    """Return the side-car of a version that has none."""
    return ProvenanceLog(entries=(), findings=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RawVersions:
    """The bytes of three versions of a file; None where a side has none."""

    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decides besides the records themselves.

    Attributes:
        quarantine: Records that have to stay out.
        today: What quarantine entries that end are compared with.
        log_ours: Gives the side-car of ours; asked only if times are to be compared.
        says_all: Whether the plan is to tell all decisions, not only those for people.
    """

    rules: MergeRules
    quarantine: Quarantine
    today: date
    log_ours: Callable[[], ProvenanceLog] = no_log
    log_theirs: Callable[[], ProvenanceLog] = no_log
    says_all: bool = False


_NEUTRAL = Surroundings(
    rules=MergeRules(policy=Policy.FAIL), quarantine=Quarantine(), today=date.min
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The merged file; None where it goes.

    Attributes:
        plan: What was decided; None where nothing was to be decided, in files of lines.
    """

    data: bytes | None
    plan: FilePlan | None = None


def is_side_car(path: Path) -> bool:
    """Return whether a path is one of a side-car."""
    return path.name.endswith(SUFFIX)


def is_quarantine(path: Path) -> bool:
    """Return whether a path is one of a quarantine."""
    return path.parts[-2:] == (FOLDER, FILE)


def merge_versions(versions: RawVersions, path: Path, surroundings: Surroundings) -> Merged:
    """Return the merge; keys nobody could decide keep the record of ours.

    Args:
        path: Where the file will lie; its name tells the target.

    Raises:
        BankFormatError: a version is broken, or they are not of one format.
    """
    if is_side_car(path):
        return Merged(data=merge_side_cars(*_lines(versions)))
    if is_quarantine(path):
        return Merged(data=merge_quarantines(*_lines(versions), path))
    parsed = parse_versions(versions, path)
    plan = _decide(parsed, path, surroundings)
    return Merged(data=_apply(plan, parsed), plan=plan)


def merge_ancestors(versions: RawVersions, path: Path) -> Merged:
    """Return the merge of two bases of a merge that has several, for no one but that merge.

    What the two answer differently gets the record of their own base, or none: then the merge
    they are the base of sees that both sides changed it. For the same reason a version that
    is broken makes the older base the result.
    """
    try:
        if is_side_car(path) or is_quarantine(path):
            return merge_versions(versions, path, _NEUTRAL)
        parsed = parse_versions(versions, path)
        plan = _decide(parsed, path, _NEUTRAL)
    except BankFormatError:
        return Merged(data=versions.base)
    frame = parsed.of(plan.frame) if plan.frame else None
    plan = _take_base(plan, frame=frame, base=parsed.base)
    return Merged(data=_apply(plan, parsed), plan=plan)


def parse_versions(versions: RawVersions, path: Path) -> Versions:
    """Return the versions as files with records.

    Raises:
        BankFormatError: one is broken; the message tells which.
    """
    data = {Source.BASE: versions.base, Source.OURS: versions.ours, Source.THEIRS: versions.theirs}
    parsed = {source: parse_version(data[source], path) for source in Source}
    for source, each in parsed.items():
        try:
            if each is not None:
                raise_if_broken(each)
        except BankFormatError as error:
            error.where = f"{source} of {error.where}"
            error.hint = _BROKEN_HINT
            raise
    return Versions(
        base=parsed[Source.BASE], ours=parsed[Source.OURS], theirs=parsed[Source.THEIRS]
    )


def parse_version(data: bytes | None, path: Path) -> ParsedFile | None:
    """Return a version as a file; an empty one is how git says that there is none.

    Raises:
        BankFormatError: neither its name nor its first bytes are those of a bank.
    """
    if data is None or not data.strip():
        return None
    known = find_format(path, data[:HEAD_BYTES])
    if known is None:
        raise BankFormatError(
            "is no bank file",
            path=path,
            hint="git check-attr -a names the attribute that sent it here",
        )
    return known.parse(data, path)


def _decide(parsed: Versions, path: Path, surroundings: Surroundings) -> FilePlan:
    return decide_file(
        path.as_posix(),
        base=parsed.base,
        ours=parsed.ours,
        theirs=parsed.theirs,
        rules=surroundings.rules,
        log_of_ours=surroundings.log_ours,
        log_of_theirs=surroundings.log_theirs,
        says_all=surroundings.says_all,
        outsiders=Outsiders(quarantines=(surroundings.quarantine,), today=surroundings.today),
    )


def _apply(plan: FilePlan, parsed: Versions) -> bytes | None:
    return apply_file(plan, base=parsed.base, ours=parsed.ours, theirs=parsed.theirs)


def _take_base(plan: FilePlan, *, frame: ParsedFile | None, base: ParsedFile | None) -> FilePlan:
    """Return a plan whose conflicts end in the record of the base."""
    if frame is None:
        return plan
    replaced, removed = dict(plan.replaced), set(plan.removed)
    brought = []
    for decision in plan.conflicts:
        place = frame.find(decision.key)
        number = base.find(decision.key) if base else None
        if place is None:
            brought += [] if number is None else [Pick(Source.BASE, number)]
            continue
        replaced.pop(place, None)
        removed.discard(place)
        if number is None:
            removed.add(place)
        else:
            replaced[place] = Pick(Source.BASE, number)

    def kept(place: int) -> int:
        while place in removed:
            place -= 1
        return place

    added = [Added(after=kept(each.after), pick=each.pick) for each in plan.added]
    added += [Added(after=kept(len(frame) - 1), pick=pick) for pick in brought]
    return replace(plan, replaced=replaced, removed=frozenset(removed), added=tuple(added))


def _lines(versions: RawVersions) -> tuple[bytes, bytes, bytes]:
    return versions.base or b"", versions.ours or b"", versions.theirs or b""
