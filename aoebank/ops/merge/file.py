"""The merge of one file: the same way for the command, for git's driver and for what checks it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.formats.text.checks import is_blank
from aoebank.formats.text.splice import splice_raw
from aoebank.ops.merge.decide import MergeContext, count_each_key_once, decide_file
from aoebank.ops.merge.lines import is_of_lines, merge_lines
from aoebank.ops.merge.plan import Added, FilePlan, Pick, Source, Three
from aoebank.ops.merge.policy import MergeRules, Policy
from aoebank.ops.merge.versions import Versions

_BROKEN_HINT = "mend that side first: aoebank validate names everything that is wrong"
_FAIL = MergeContext(rules=MergeRules(policy=Policy.FAIL))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMerge:
    """What becomes of one file.

    Attributes:
        plan: What was decided; without decisions for files of lines.
        data: The merged file; None if there is to be none.
    """

    plan: FilePlan
    data: bytes | None


def merge_file(versions: Versions, name: str, context: MergeContext) -> FileMerge:
    """Return the merge of a bank file; keys nobody could decide keep the record of ours.

    Args:
        versions: With a base, one that is not there was deleted.
        name: In the result; tells the target.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
        HistoryError: a person decided about other records than these.
    """
    plan = decide_file(versions, name, context)
    return FileMerge(plan=plan, data=apply_plan(plan, versions))


def merge_bytes(versions: Three[bytes | None], path: Path, context: MergeContext) -> FileMerge:
    """Return the merge of a file as git hands it out: a bank, a side-car or a quarantine.

    Args:
        versions: None where a side has none; the base may be empty then.
        path: Where the file will lie.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    name = path.as_posix()
    if is_of_lines(path):
        return FileMerge(plan=FilePlan(name=name), data=merge_lines(versions, path))
    return merge_file(parse_versions(versions, path), name, context)


def merge_ancestors(versions: Three[bytes | None], path: Path) -> bytes | None:
    """Return the merge of two bases of a merge that has several, for no one but that merge.

    What the two answer differently gets the record of their own base, or none: then the merge
    they are the base of sees that both sides changed it. For the same reason a version that
    is broken makes the older base the result.
    """
    try:
        if is_of_lines(path):
            return merge_lines(versions, path)
        parsed = count_each_key_once(parse_versions(versions, path), _FAIL)
        plan = decide_file(parsed, path.as_posix(), _FAIL)
    except BankFormatError:
        return versions.base
    return apply_plan(_take_base(plan, parsed), parsed)


def apply_plan(plan: FilePlan, versions: Versions) -> bytes | None:
    """Return the merged file, or None if there is to be none.

    Whatever conflicts there are, it is a valid bank: their keys have what ours has. Each record
    is one of the inputs byte for byte; of one with the alternatives of both sides that holds
    for each alternative.

    Args:
        plan: Made from these very versions.
    """
    frame = versions.of(plan.frame) if plan.frame else None
    if frame is None or plan.is_gone:
        return None
    if not (plan.replaced or plan.removed or plan.added):
        return frame.data

    def raw(pick: Pick) -> bytes:
        parsed = versions.of(pick.source)
        assert parsed is not None
        return parsed.raw(pick.number) if pick.raw is None else pick.raw

    return splice_raw(
        frame,
        replaced={number: raw(pick) for number, pick in plan.replaced.items()},
        removed=plan.removed,
        added=[(record.after, raw(record.pick)) for record in plan.added],
    )


def parse_versions(versions: Three[bytes | None], path: Path) -> Versions:
    """Return the versions as files with records.

    Raises:
        BankFormatError: one is broken; the message tells which.
    """
    base = versions.base  # git's word for none is an empty one
    parsed = Versions(
        base=None if base is None or is_blank(base) else parse_version(base, path),
        ours=parse_version(versions.ours, path),
        theirs=parse_version(versions.theirs, path),
    )
    for source in Source:
        version = parsed.of(source)
        try:
            if version is not None:
                raise_if_broken(version)
        except BankFormatError as error:
            error.where = f"{source} of {error.where}"
            error.hint = _BROKEN_HINT
            raise
    return parsed


def parse_version(data: bytes | None, path: Path) -> ParsedFile | None:
    """Return a version as a file; one without bytes is a file too, and broken.

    Raises:
        BankFormatError: neither its name nor its first bytes are those of a bank.
    """
    if data is None:
        return None
    known = find_format(path, data[:HEAD_BYTES])
    if known is None:
        raise BankFormatError(
            "is no bank file",
            path=path,
            hint="git check-attr -a names the attribute that sent it here",
        )
    return known.parse(data, path)


def _take_base(plan: FilePlan, versions: Versions) -> FilePlan:
    """Return a plan whose conflicts end in the record of the base."""
    frame = versions.of(plan.frame) if plan.frame else None
    if frame is None:
        return plan
    replaced, removed = dict(plan.replaced), set(plan.removed)
    open_keys = {decision.key for decision in plan.conflicts}
    brought = []
    for decision in plan.conflicts:
        place = frame.find(decision.key)
        number = versions.base.find(decision.key) if versions.base else None
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

    added = [
        Added(after=kept(record.after), pick=record.pick)
        for record in plan.added
        if _key_of(record.pick, versions) not in open_keys
    ]
    added += [Added(after=kept(len(frame) - 1), pick=pick) for pick in brought]
    return replace(plan, replaced=replaced, removed=frozenset(removed), added=tuple(added))


def _key_of(pick: Pick, versions: Versions) -> str:
    parsed = versions.of(pick.source)
    assert parsed is not None
    return parsed.keys[pick.number]
