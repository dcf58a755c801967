"""What must hold of every command on every input; the judge is a reader of its own."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from pathlib import Path

from aoebank import AoebankError, BankFormatError, Report, emit
from aoebank.diffing.report import DiffReport
from aoebank.diffing.run import diff
from aoebank.diffing.textconv import textconv
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.registry import format_of
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import MergeRules, Policy, Three
from aoebank.merging.file import FileMerge
from aoebank.merging.merge_bytes import is_of_lines, merge_ancestors, merge_bytes
from aoebank.merging.versions import MergeContext
from aoebank.model.codes import FixClass
from aoebank.reading.ls import ListReport, list_bank
from aoebank.reading.show import ShowReport, show
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.validation.fix import plan_fixes
from aoebank.validation.report import ValidateReport
from aoebank.validation.run import validate
from support.fuzz.inputs import FuzzInput
from support.fuzz.on_disk import check_on_disk
from support.fuzz.reader import (
    FindError,
    NotReadableError,
    canonical,
    read_pairs,
    read_values,
)

_POLICIES = (*Policy,)
_UNTIMED = (Policy.FAIL, Policy.OURS, Policy.THEIRS, Policy.UNION)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A file two ways: as the product parses it, and as the other reader does."""

    parsed: ParsedFile
    # What the record in use of each key answers; keys as the product has them.
    used: Mapping[str, str] = field(default_factory=dict)
    is_sound: bool = True  # Whether each record in use can be read


def check_input(tried: FuzzInput, scratch: Path) -> None:
    """Run every command on an input.

    Args:
        scratch: A folder of this run, for what needs a file.

    Raises:
        FindError: an answer is wrong. Any error but ours is a find too.
    """
    path = scratch / tried.name
    path.write_bytes(tried.theirs)
    turn = tried.number // 4 % 4  # what costs most goes in turns
    result = ValidateReport(result=validate([path]), has_notes=True)
    if turn == 0:
        _on_event(result)
    _check_fixed(path, tried)
    if is_of_lines(path):
        _check_lines(tried, path)
        return
    if turn < 2:
        _check_told(tried)
    views = {name: _view(data, path) for name, data in _versions(tried).items()}
    _check_diff("ours", "theirs", tried, views)
    if turn == 2:
        _check_diff("theirs", "theirs", tried, views)
        _check_diff("theirs", "base", tried, views)
    three = Three(base=tried.base, ours=tried.ours, theirs=tried.theirs)
    if tried.number % 50 == 0:
        check_on_disk(tried, scratch)
    _check_merge(three, tried, path, views)
    if turn < 2:
        _check_merge(replace(three, base=None), tried, path, views)
    else:
        _view(merge_ancestors(three, path) or b"", path)  # what git goes on with


def _versions(tried: FuzzInput) -> dict[str, bytes]:
    return {"base": tried.base, "ours": tried.ours, "theirs": tried.theirs}


def demand(holds: bool, what: str) -> None:
    """Raise `FindError` unless something holds."""
    if not holds:
        raise FindError(what)


# --- what a file says -----------------------------------------------------------------------


@lru_cache(maxsize=64)
def _view(data: bytes, path: Path) -> _View | None:
    """Return a file both ways, None where the product says that its readers reject it."""
    parsed = format_of(path, data).parse(data, path)
    if find_error(parsed) is not None:
        return None
    try:
        pairs = read_pairs(parsed.format.name, data)
    except NotReadableError as error:
        raise FindError(f"a file nobody can read has no error: {error}") from error
    demand(len(pairs) == len(parsed), f"{len(parsed)} records, and {len(pairs)} for json")
    keys: dict[str, str] = {}
    for (identity, _), key in zip(pairs, parsed.keys, strict=True):
        demand(keys.setdefault(identity, key) == key, f"two keys for one identity: {identity}")
    order = range(len(parsed))
    used = {
        parsed.keys[number]: pairs[number][1]
        for number in (reversed(order) if parsed.format.first_wins else order)
    }
    return _View(parsed=parsed, used=used, is_sound=_count_sound(parsed) == len(parsed))


def _count_sound(parsed: ParsedFile) -> int:
    return sum(1 for _ in parsed.iter_records())


# --- commands that tell ---------------------------------------------------------------------


def _check_told(tried: FuzzInput) -> None:
    side = _side("theirs", tried)
    listed = ListReport(result=list_bank(side))
    _on_event(listed) if tried.number % 8 == 0 else listed.document()  # a table takes a third
    _on_event(ShowReport(result=show([], [side])))
    parsed = side.load(tried.name)
    assert parsed is not None
    text = textconv(parsed)
    demand(text.encode("utf-8").isascii() or bool(text), "textconv writes text")


def _on_event(report: Report) -> None:
    """Write a report both ways; the document must be one, and all of it UTF-8."""
    _written(report, as_json=False)
    json.loads(_written(report, as_json=True))


def _written(report: Report, *, as_json: bool) -> bytes:
    buffer = BytesIO()
    stream = TextIOWrapper(buffer, encoding="utf-8", errors="strict")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        emit(report, as_json=as_json)
    stream.flush()
    return buffer.getvalue()


def _side(version: str, tried: FuzzInput) -> StoredSide:
    data = {tried.name: _versions(tried)[version]}
    return StoredSide(
        label=version,
        kind=SideKind.FILE,
        is_tree=False,
        place=version,
        contents={tried.name: tried.name},
        read=data.__getitem__,
    )


# --- diff -----------------------------------------------------------------------------------


def _check_diff(a: str, b: str, tried: FuzzInput, views: Mapping[str, _View | None]) -> None:
    """A diff is empty if and only if the records in use say the same."""
    try:
        result = diff(_side(a, tried), _side(b, tried))
    except AoebankError:
        demand(a != b, "a file cannot be compared with itself")
        return
    if tried.number % 4 == 0:
        _on_event(DiffReport(result=result))
    left, right = views[a], views[b]
    if left is None or right is None or not (left.is_sound and right.is_sound):
        return
    changed = {key for key in {*left.used, *right.used} if _differs(key, left, right)}
    told = {change.key for change in result.changes}
    demand(told == changed, f"diff {a} {b}: {sorted(told ^ changed)[:3]}")


def _differs(key: str, left: _View, right: _View) -> bool:
    return left.used.get(key) != right.used.get(key)


# --- merge ----------------------------------------------------------------------------------


def _check_merge(
    versions: Three[bytes | None],
    tried: FuzzInput,
    path: Path,
    views: Mapping[str, _View | None],
) -> None:
    """Merge with a policy of the input's number; without a base two-way."""
    number, is_two_way = tried.number, versions.base is None
    rules = MergeRules(
        policy=_POLICIES[number % len(_POLICIES)],
        untimed=_UNTIMED[number // 8 % len(_UNTIMED)],
        takes_containing=number % 3 > 0,
        may_be_unrelated=True,
        may_differ_in_soc=True,
    )
    try:
        merge = merge_bytes(versions, path, MergeContext(rules=rules, is_two_way=is_two_way))
    except AoebankError:
        return
    base = None if is_two_way or is_blank(tried.base) else views["base"]
    _check_merged(merge, path, base, views, rules, is_two_way=is_two_way)


def _check_merged(
    merge: FileMerge,
    path: Path,
    base: _View | None,
    views: Mapping[str, _View | None],
    rules: MergeRules,
    *,
    is_two_way: bool,
) -> None:
    ours, theirs = views["ours"], views["theirs"]
    if ours is None or theirs is None:
        return  # taken whole, as the other side did not touch it
    assert merge.data is not None
    out = _view(merge.data, path)
    demand(out is not None, "the merge of readable files has an error")
    assert out is not None
    left_open = {decision.key for decision in merge.plan.conflicts}
    for key in {*ours.used, *theirs.used, *(base.used if base else ())}:
        mine, other = ours.used.get(key), theirs.used.get(key)
        wanted = {mine, other}
        if key in left_open:
            wanted = {mine}
        elif is_two_way:
            wanted = {mine or other, other or mine}
        else:
            old = base.used.get(key) if base else None
            if mine == old:
                wanted = {other}
            elif other == old:
                wanted = {mine}
        has_both = Policy.UNION in (rules.policy, rules.untimed)
        if key in left_open or len(wanted) == 1 or not has_both:
            what = f"merge of {key}, {'two' if is_two_way else 'three'}-way, {rules.policy}"
            demand(out.used.get(key) in wanted, what)
    demand({*out.used} <= {*ours.used, *theirs.used}, "merge invents a key")


def _check_lines(tried: FuzzInput, path: Path) -> None:
    three = Three(base=tried.base, ours=tried.ours, theirs=tried.theirs)
    try:
        merged = merge_bytes(three, path, MergeContext()).data or b""
    except BankFormatError:
        return
    base, ours, theirs, out = map(_line_set, (tried.base, tried.ours, tried.theirs, merged))
    wanted = (ours | theirs) - (base - (ours & theirs))
    demand(out == wanted, "merge of a side-car")


def _line_set(data: bytes) -> set[bytes]:
    """Return the lines, without marks and blanks at their ends."""
    lines = (re.sub(rb"^(?:\xef\xbb\xbf|[ \t\r])+", b"", line) for line in data.split(b"\n"))
    return {text for line in lines if (text := line.rstrip(b" \t\r"))}


# --- fix ------------------------------------------------------------------------------------


def _check_fixed(path: Path, tried: FuzzInput) -> None:
    """A fix keeps what readers see, and a second one finds nothing to do."""
    classes = None if tried.number % 2 else tuple(FixClass)
    fixed = next(plan_fixes([path], classes=classes), None)
    if fixed is None:
        return
    path.write_bytes(fixed.after)
    again = next(plan_fixes([path], classes=classes), None)
    demand(again is None, "a second fix changes something")
    if {*fixed.classes} <= {FixClass.BOM, FixClass.CRLF, FixClass.BLANK}:
        demand(_plain(fixed.before) == _plain(fixed.after), "a fix changed values")
    elif not is_of_lines(path):
        before, after = (_answers(data, path) for data in (fixed.before, fixed.after))
        demand(before in (None, after), "a fix changed answers")


def _plain(data: bytes) -> object:
    """Return the values of a file, or its text without white space where there are none."""
    try:
        return read_values(data)
    except NotReadableError:
        return b"".join(data.replace(b"\xef\xbb\xbf", b"").split())


def _answers(data: bytes, path: Path) -> object:
    """Return all a file answers, whatever its keys are and in whatever order."""
    name = format_of(path, data).name
    try:
        values = [json.loads(text) for _, text in read_pairs(name, data)]
    except NotReadableError:
        return None
    if name == "runtime_kb":
        for value in values:
            value.pop("id", None)
    if name == "unified":
        # -1 is how its writer says that there is no time
        values = [sorted(canonical({"cost_time": -1, **one}) for one in value) for value in values]
    return sorted(map(canonical, values))
