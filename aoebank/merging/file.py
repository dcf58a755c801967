"""The merge of one file: the same way for the command, for git's driver and for what checks it.

    read and check the versions -> decide key by key -> carry the edits out

Reading is below in this file, `decide_key` decides about one key, and `Edits` collects what is to
be done to one version, and does it. Side-cars and quarantines are merged as lines (`lines.py`).

Of several records of one key in one file, the one that counts:

    some kept out or with an error, others sound               a sound one
    two comparable times, the gap beyond the noise band        the fastest
    anything else                                              the one readers use
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aoebank.errors import BankFormatError, RecordError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.names import BankName
from aoebank.formats.plausibility import find_time_problem
from aoebank.formats.protocol import Format, ParsedFile, find_error, raise_if_broken
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.formats.text.checks import is_blank
from aoebank.merging.context import Exclusions, Measurements, MergeContext
from aoebank.merging.decide import decide_key, stale_verdict
from aoebank.merging.decisions import (
    Action,
    Choice,
    FilePlan,
    MergeRules,
    Policy,
    Reason,
    Source,
    Three,
)
from aoebank.merging.edits import Edits, FileMerge
from aoebank.merging.lines import is_of_lines, merge_lines
from aoebank.merging.versions import OTHER_TARGET_HINT, Inputs, Versions
from aoebank.model.record import Record
from aoebank.model.timing import are_comparable, is_beyond, noise_band

_BROKEN_HINT = "mend that side first: aoebank validate names everything that is wrong"
_TARGET = ("soc_version", "core_num", "core_type", "op_type")
_ANCESTORS = MergeContext(rules=MergeRules(policy=Policy.FAIL), takes_base=True)
_ALWAYS_SAID = (Reason.QUARANTINE, Reason.BUILT_IN_FASTER, Reason.CONTAINS, Reason.PERSON)
_NO_NEWS = (Reason.SAME, Reason.OURS_CHANGED)


def merge_ancestors(versions: Three[bytes | None], path: Path) -> bytes | None:
    """Return the merge of two bases of a merge that has several, for no one but that merge.

    What the two answer differently gets the record of their own base, or none: then the merge
    they are the base of sees that both sides changed it, and tells the conflict. For the same
    reason a version that is broken makes the older base the result.
    """
    try:
        return merge_bytes(versions, path, _ANCESTORS).data
    except BankFormatError:
        return versions.base


def merge_bytes(versions: Three[bytes | None], path: Path, context: MergeContext) -> FileMerge:
    """Return the merge of a file as git hands it out: a bank, a side-car or a quarantine.

    Args:
        versions: None where a side has none; the base may be empty then.
        path: Where the file will lie.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    if is_of_lines(path):
        return FileMerge(plan=FilePlan(name=path.as_posix()), data=merge_lines(versions, path))
    parsed = parse_versions(versions, path)
    return merge_file(parsed, path.as_posix(), context)


def merge_file(versions: Versions, name: str, context: MergeContext) -> FileMerge:
    """Return the merge of a bank file; keys nobody could decide keep the record of ours.

    Whatever conflicts there are, the result is a valid bank. Each record is one of the inputs byte
    for byte; of one with the alternatives of both sides that holds for each alternative.

    Args:
        versions: With a base, one that is not there was deleted.
        name: In the result; tells the target.

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
        versions = Versions(base=untouched, ours=untouched, theirs=untouched)
        context = replace(context, verdicts={})
    inputs = read_inputs(versions, name, context)
    edits = Edits(name=name, inputs=inputs)
    verdicts = dict(context.verdicts)
    same = 0
    for key, who in inputs.iter_keys(is_two_way=context.is_two_way):
        if isinstance(key, str):  # nobody changed it, and nothing keeps it out
            same += 1
            if context.tells_reasons:
                edits.reasons[key] = Reason.SAME
            continue
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
    if context.exclusions.built_in is not None:
        _drop_slower(edits, context.exclusions)
        if context.tells_reasons:
            edits.reasons |= {key: said.reason for key, said in edits.decisions.items()}
    if verdicts:
        raise stale_verdict(next(iter(verdicts)), f"nothing to decide in {name}")
    return edits.finish()


def _is_said(choice: Choice, context: MergeContext) -> bool:
    """Return whether a decision is told as a value, not only counted."""
    is_news = context.verbose and choice.reason not in _NO_NEWS
    return choice.conflict or choice.reason in _ALWAYS_SAID or is_news


def _drop_slower(edits: Edits, exclusions: Exclusions) -> None:
    """Take out what the built-in bank does better; conflicts stay as they are."""
    slower = {
        source: exclusions.find_slower(parsed)
        for source in (Source.OURS, Source.THEIRS)
        if (parsed := edits.inputs.versions.of(source)) is not None
    }
    if not any(slower.values()):
        return
    for key, pick in [*edits.iter_output()]:
        note = slower.get(pick.source, {}).get(pick.number)
        said = edits.decisions.get(key.key)
        if note is not None and pick.raw is None and not (said and said.conflict):
            edits.counts[Reason.BUILT_IN_FASTER] += 1
            edits.give(key, Action.REMOVE)
            choice = Choice(action=Action.REMOVE, reason=Reason.BUILT_IN_FASTER, note=note)
            edits.say(key, choice)


# ---- read the versions ----


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


def find_untouched(versions: Versions) -> ParsedFile | None:
    """Return the file of the side that is the result whatever else is broken; None if both count.

    Where both sides have the same bytes, or only one side changed them, nothing is chosen
    among records. So a file that is broken everywhere stops no merge, and one that a side mended
    comes in. But a broken file never takes the place of a whole one.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    if ours is None or theirs is None or not any(map(_is_broken, (base, ours, theirs))):
        return None
    if ours.data == theirs.data:
        return ours
    for changed, kept in ((ours, theirs), (theirs, ours)):
        is_unchanged = base is not None and base.data == kept.data
        if is_unchanged and (not _is_broken(changed) or _is_broken(kept)):
            return changed
    return None


def _is_broken(parsed: ParsedFile | None) -> bool:
    return parsed is not None and find_error(parsed) is not None


def read_inputs(versions: Versions, name: str, context: MergeContext) -> Inputs:
    """Return versions ready for decisions.

    Args:
        versions: As they are.
        name: Of the file in the result; it tells readers what the file is for.
        context: What decides which records count.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    _demand_mergeable(versions, name, may_differ_in_soc=context.rules.may_differ_in_soc)
    find_quarantined = context.exclusions.find_quarantined
    once = Versions(
        base=_prefer_best(versions.base, context.times_of_ours, context),
        ours=_prefer_best(versions.ours, context.times_of_ours, context),
        theirs=_prefer_best(versions.theirs, context.times_of_theirs, context),
    )
    return Inputs(
        versions=once,
        repeated=_find_repeated_keys(once),
        frame=_find_frame(once),
        ours_out=find_quarantined(versions.ours),
        theirs_out=find_quarantined(versions.theirs),
    )


def _demand_mergeable(versions: Versions, name: str, *, may_differ_in_soc: bool) -> None:
    """Raise `BankFormatError` unless the versions are whole, of one format and for one target."""
    for source in Source:
        parsed = versions.of(source)
        # a base without bytes has no record to lose: each side added its own
        if parsed is not None and not (source is Source.BASE and is_blank(parsed.data)):
            raise_if_broken(parsed)
    there = (versions.ours, versions.theirs, versions.base)
    found = [parsed for parsed in there if parsed is not None and not is_blank(parsed.data)]
    known = find_format(Path(name)) if found else None
    if known is not None:
        target = known.parse_name(Path(name).name)
        _demand_same_kind(known, target, found[0], may_differ_in_soc=may_differ_in_soc)
    for other in found[1:]:
        one = found[0]
        _demand_same_kind(one.format, one.name, other, may_differ_in_soc=may_differ_in_soc)
    _demand_one_header(versions)


def _demand_same_kind(
    known: Format, target: BankName | None, b: ParsedFile, *, may_differ_in_soc: bool
) -> None:
    if known.name != b.format.name:
        raise BankFormatError(
            "banks of different formats cannot be merged",
            path=b.path,
            got=b.format.name,
            expected=known.name,
        )
    for member in _TARGET:
        one, other = getattr(target, member, None), getattr(b.name, member, None)
        if None in (one, other) or one == other:
            continue
        if may_differ_in_soc and member != "op_type":
            continue
        raise BankFormatError(
            f"bank file is for another {member}",
            path=b.path,
            got=other,
            expected=one,
            hint="" if member == "op_type" else OTHER_TARGET_HINT,
        )


def _demand_one_header(versions: Versions) -> None:
    """Raise if two version lines would have to become one."""
    ours, theirs, base = versions.ours, versions.theirs, versions.base
    if ours is None or theirs is None or not (len(ours) and len(theirs)):
        return
    one, other = ours.format.header(ours), theirs.format.header(theirs)
    is_one_sided = base is not None and base.data in (ours.data, theirs.data)
    if one != other and not is_one_sided:
        raise BankFormatError(
            "version line differs",
            path=theirs.path,
            got=other,
            expected=one,
            hint="bring both to one version first",
        )


# ---- each key once ----


def _prefer_best(
    parsed: ParsedFile | None, times: Measurements, context: MergeContext
) -> ParsedFile | None:
    """Return a file whose `find` gives the record that counts for each key.

    Args:
        times: How the times of the file were measured.
    """
    repeated = {} if parsed is None or parsed.format.joins_equal_keys else parsed.repeated()
    if parsed is None or not repeated:
        return parsed
    bad = context.exclusions.find_quarantined(parsed)
    preferred = {}
    for key, numbers in repeated.items():
        used, sound = _sound(parsed, numbers, bad)
        preferred[key] = _fastest(parsed, used, sound, times, context.rules)
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


def _find_repeated_keys(versions: Versions) -> dict[str, dict[Source, Sequence[int]]]:
    """Return the records of both sides that do not count."""
    found: dict[str, dict[Source, Sequence[int]]] = {}
    for source in (Source.OURS, Source.THEIRS):
        parsed = versions.of(source)
        if parsed is not None and not parsed.format.joins_equal_keys:
            for key, numbers in versions.hidden(source).items():
                found.setdefault(key, {})[source] = numbers
    return found


def _find_frame(versions: Versions) -> Source | None:
    """Return whose file the edits are made to; None if no version has the file.

    It is ours; theirs where ours is the base or is no longer there, so that a file only they
    changed comes out as they wrote it.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    if theirs is None:
        return None if ours is None else Source.OURS
    is_unchanged = ours is None or (base is not None and ours.data == base.data)
    return Source.THEIRS if is_unchanged else Source.OURS
