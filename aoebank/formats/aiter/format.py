"""Tables of aiter: lists of tuned products and MoE layers, and of those still to tune.

The device is in each row (`gfx`, `cu_num`), not in the name of the file, and part of every key: the
look-up asks with it. Rows of a list to tune have no device and no answer.

Source: aiter 0.1.7, base_tuner.py, tuned_gemm.py and configs/, checked against its 28 lists.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import FieldEdit, Format, ParsedFile
from aoebank.formats.text import json_text, table
from aoebank.formats.text.checks import is_blank
from aoebank.formats.text.problem import Problem, RecordText, blank_line
from aoebank.formats.text.record import cost_us, record_text, stored
from aoebank.formats.text.scan import FileScan, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

TARGET = ("gfx", "cu_num")
SIZES = ("B", "M", "N", "K", "token", "model_dim", "inter_dim", "expert", "topk")
# what a look-up asks with, in the order of a key
WORKLOAD = (
    *SIZES,
    *("act_type", "dtype", "outdtype", "q_dtype_a", "q_dtype_w", "q_type", "bias", "scaleAB"),
    *("use_g1u1", "doweight_stage1", "bpreshuffle"),
)
STRATEGY = (
    *("libtype", "solidx", "kernelId", "splitK", "block_m", "ksplit", "run_1stage"),
    *("kernelName", "kernelName1", "kernelName2"),
)
TIME = "us"
FIGURES = ("us1", "err1", "us2", "err2", "tflops", "bw", "errRatio")
_ERROR = "errRatio"
_ERROR_SPELLINGS = (_ERROR, "err_ratio", "err")
_INTEGERS = frozenset({*SIZES, "cu_num", "solidx", "kernelId", "splitK", "block_m", "ksplit"})
_NUMBERS = frozenset({TIME, "us1", "us2", "tflops", "bw", *_ERROR_SPELLINGS})
_FLAGS = frozenset({"use_g1u1", "doweight_stage1", "run_1stage", "bias", "scaleAB", "bpreshuffle"})
_TEXTS: Mapping[str, str] = {
    "gfx": "gfx",
    "act_type": "ActivationType.",
    "q_type": "QuantType.",
    **dict.fromkeys(("dtype", "outdtype", "q_dtype_a", "q_dtype_w"), "torch."),
}
_NAMES = frozenset({"kernelName", "kernelName1", "kernelName2", "libtype"})
_FLAG_WORDS = ("0", "1", "True", "False", "")
_PLAIN_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,17})?", re.ASCII)
_HEADS = frozenset({"M", "token"})  # one of them is in every header
_NO_NUMBER = ("", "nan", "inf", "-inf", "NaN")
_FILE_NAME = re.compile(
    r"(?P<op>(?:[^/]*_)?(?:un)?tuned(?:_batched)?_(?:gemm|fmoe)(?:_bf16)?)[^/]*\.csv", re.ASCII
)
_KEY_TARGET = re.compile(r"(?:gfx=[^,]*,)?(?:cu_num=[^,]*,)?")
_TARGET = re.compile(r"(?P<gfx>gfx[^-]+)?-?(?:cu(?P<cu>.+))?")
_MARKERS = (b"<<<<<<< ", b"=======", b"||||||| ", b">>>>>>> ")


class AiterFormat(Format):
    """Reads and writes `*tuned_gemm*.csv` and `*tuned_fmoe*.csv`."""

    name = "aiter"
    empty = b"cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    globs = ("*tuned*_gemm*.csv", "*tuned*_fmoe*.csv")
    name_pattern = "<operator>_[un]tuned[_batched]_<gemm|fmoe>[_<model>].csv"
    first_wins = True  # the reader drops equal rows behind the first; other ones end it
    keeps_times = True
    has_target_in_rows = True
    edits_fields = True
    target_word = "target"

    def parse_name(self, name: str) -> BankName | None:
        """Return the operator from a file name, the model behind it left out."""
        match = _FILE_NAME.fullmatch(name)
        return BankName(soc_version=None, op_type=match["op"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a list for all models."""
        return f"{target.op_type or '<op_type>'}.csv"

    def recognizes_content(self, head: bytes) -> bool:
        """True if the first line names the columns of a workload."""
        columns = table.read_columns(head)
        return {"M", "N", "K"} <= {*columns} or {"token", "model_dim", "expert"} <= {*columns}

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the rows; one that does not fit its header is no record."""
        scan = start_scan(data, path)
        columns = table.read_columns(data)
        layout = _layout(columns)
        if not is_blank(data):
            _check_header(scan, columns)
        if layout.key:
            _scan_rows(scan, columns, layout.key)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position."""
        text = record_text(parsed, number)
        values = _values(parsed, text)
        facts = stored(parsed, number, text)
        facts["soc_version"] = target_of(values)
        record = Record(
            **facts,
            op_type=parsed.name.op_type if parsed.name else None,
            workload={name: values[name] for name in WORKLOAD if name in values},
            strategy={name: values[name] for name in STRATEGY if name in values},
            cost_us=cost_us(values.get(TIME)),
            extra=_extra(values),
        )
        return with_raw(record, parsed.raw(number))

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the device of each row, without reading it."""
        known: dict[str, str | None] = {}
        for key in parsed.keys:
            match = _KEY_TARGET.match(key)
            told = match[0] if match else ""
            if told not in known:
                pairs = (part.partition("=") for part in told.split(",") if part)
                known[told] = target_of({name: value for name, _, value in pairs if value})
            yield known[told]

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield values in a wrong column, times that are none, blanks in keys, repeated rows."""
        columns = table.read_columns(parsed.data)
        is_tuned, layout = TIME in columns, _layout(columns)
        for number in range(len(parsed)):
            fields = table.split_row(parsed.text(number))
            if layout.is_sound(fields) and parsed.find(parsed.keys[number]) == number:
                continue  # nearly all rows of nearly all tables
            text = record_text(parsed, number)
            problems = [
                *_field_problems(columns, fields, parsed.keys[number]),
                *(_time_problems(columns, fields) if is_tuned else ()),
                *_identity_problems(parsed, number),
            ]
            for place, problem in problems:
                yield table.finding_at(text, place, problem)

    def header(self, parsed: ParsedFile) -> str:
        """Return the names of the columns: rows under other ones are no rows of this file."""
        return ",".join(table.read_columns(parsed.data))

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the key of a workload with its device."""
        yield text.strip()
        if isinstance(value, Mapping):
            yield key_of(value)

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a row with fields of its strategy set; a table loses no column."""
        columns = table.read_columns(parsed.data)
        fields = table.split_row(parsed.text(number))
        values: dict[str, JsonValue] = {**edit.assign, **dict.fromkeys(edit.unset)}
        for name, value in values.items():
            if name not in columns or name in (*TARGET, *WORKLOAD):
                raise BankFormatError(
                    "the table has no such column of a strategy",
                    path=parsed.path,
                    got=name,
                    expected=", ".join(column for column in columns if column in STRATEGY),
                )
            try:
                fields[columns.index(name)] = table.write_field(value)
            except ValueError as error:
                raise BankFormatError(
                    "column holds no such value",
                    path=parsed.path,
                    got=f"{name}={json_text.dumps(value)[:40]}",
                    expected="a number, or a text that does not read as one",
                ) from error
        return table.join_row(fields).encode("utf-8")

    def respell_key(self, parsed: ParsedFile, number: int) -> bytes:
        """Return a row without blanks around its fields."""
        fields = table.split_row(parsed.text(number))
        return table.join_row(field.strip() for field in fields).encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched rows byte for byte.

        Raises:
            BankFormatError: a record has a column the file has not: it would lose it.
        """
        new = [record for record in changes.values() if record is not None]
        if not len(parsed) and new and parsed.data == self.empty:
            # a file that was never written gets the columns of what is written into it
            data = ",".join(_columns_of(new)).encode("ascii") + b"\n"
            parsed = self.parse(data, parsed.path)
        columns = table.read_columns(parsed.data)
        fitting = {key: _without_foreign_bytes(columns, record) for key, record in changes.items()}
        return splice(parsed, fitting, partial(_render, columns, parsed.path))


def key_of(values: Mapping[str, JsonValue]) -> str:
    """Return the key of a row: the columns a look-up asks with, the device among them.

    >>> key_of({"M": 16, "N": 512, "K": 7168, "cu_num": 80, "us": 3.5})
    'cu_num=80,M=16,N=512,K=7168'
    """
    return ",".join(
        f"{name}={table.write_field(values[name])}"
        for name in (*TARGET, *WORKLOAD)
        if name in values
    )


def target_of(values: Mapping[str, JsonValue]) -> str | None:
    """Return the device of a row, as in `gfx942-cu80`; None where it names none."""
    gfx, units = values.get("gfx"), values.get("cu_num")
    parts = [str(gfx)] * (gfx is not None) + [f"cu{units}"] * (units is not None)
    return "-".join(parts) or None


# ---- reading ----


class _Layout:
    """Places of the columns of a key."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        has_sizes = {"M", "N", "K"} <= {*columns} or {"token", "model_dim"} <= {*columns}
        wanted = [(name, columns.index(name)) for name in (*TARGET, *WORKLOAD) if name in columns]
        self.key = tuple(wanted) if has_sizes else ()
        self._integers = self._places(columns, _INTEGERS)
        self._numbers = self._places(columns, _NUMBERS)
        self._flags = self._places(columns, _FLAGS)
        self._names = self._places(columns, _NAMES)
        self._texts = [
            (columns.index(name), start) for name, start in _TEXTS.items() if name in columns
        ]
        self._time = columns.index(TIME) if TIME in columns else -1

    @staticmethod
    def _places(columns: tuple[str, ...], names: frozenset[str]) -> list[int]:
        return [place for place, name in enumerate(columns) if name in names]

    def is_sound(self, fields: list[str]) -> bool:
        """True if each field is what its column holds, in the usual spelling; fast."""
        for place in self._integers:
            if not fields[place].isdecimal():
                return False
        for place in self._numbers:
            if not _PLAIN_NUMBER.fullmatch(fields[place]):
                return False
        for place in self._names:
            if not fields[place][:1].isalpha() and fields[place][:1] != "_":
                return False
        for place in self._flags:
            if fields[place] not in _FLAG_WORDS:
                return False
        for place, start in self._texts:
            if not fields[place].startswith(start) or fields[place][-1:].isspace():
                return False
        return self._time < 0 or float(fields[self._time]) > 0


_layout = lru_cache(maxsize=64)(_Layout)


def _check_header(scan: FileScan, columns: tuple[str, ...]) -> None:
    start, end = next(
        ((start, end) for start, end in table.iter_rows(scan.data) if start < end), (0, 0)
    )
    if not _layout(columns).key:
        problem = Problem(
            code="AB205",
            tokens=(),
            message="header line names no columns of a workload",
            got=", ".join(columns)[:80],
            expected="M, N, K or token, model_dim",
        )
        scan.report(problem, start, end)
        return
    for name in sorted({name for name in columns if columns.count(name) > 1}):
        problem = Problem(
            code="AB109",
            tokens=(),
            message="column name appears twice in the header line",
            got=name,
        )
        scan.report(problem, start, end)
    if TIME in columns and not {*TARGET} & {*columns}:
        problem = Problem(
            code="AB315",
            tokens=(),
            message="tuned rows name no device: they count for any",
            got=", ".join(columns)[:80],
            expected="cu_num",
            hint="add the column of the device the rows were tuned on",
        )
        scan.report(problem, start, end)


def _scan_rows(scan: FileScan, columns: tuple[str, ...], key: tuple[tuple[str, int], ...]) -> None:
    data, number = scan.data, len(columns)
    header = table.header_line(data)
    for start, end in table.iter_rows(data, table.start_of_rows(data)):
        line = data[start:end]
        if not line.strip():
            scan.report(blank_line(), start, end)
            continue
        if data.startswith(_MARKERS, start):
            continue
        try:
            fields = table.split_row(line.decode("utf-8", errors="replace"))
        except ValueError:
            scan.report(_ragged("quoted field does not end in its line", "", ""), start, end)
            continue
        if line == header or (_HEADS & {*fields} and _layout(tuple(fields)).key):
            is_same = line == header
            problem = Problem(
                code="AB221",
                tokens=(),
                message="header line comes again" if is_same else "header line of another table",
                got=None if is_same else line.decode("utf-8", errors="replace")[:80],
                hint="remove the line; two tables were put together"
                if is_same
                else "give the rows behind it a file of their own",
            )
            scan.report(problem, start, end)
        elif len(fields) != number:
            problem = _ragged(
                "row has another number of columns than the header", f"{len(fields)}", f"{number}"
            )
            # the first field too many, or the last one there is
            text = line.decode("utf-8", errors="replace")
            place = table.column_of(text, min(number, len(fields) - 1))
            scan.report(problem, start + len(text[:place].encode("utf-8")), end)
        else:
            scan.add(
                ",".join([f"{name}={table.strip_field(fields[place])}" for name, place in key]),
                start,
                end,
            )


def _ragged(message: str, got: str, expected: str) -> Problem:
    return Problem(
        code="AB219",
        tokens=(),
        message=message,
        got=got or None,
        expected=expected or None,
        hint="restore the line from git, or remove it",
    )


def _values(parsed: ParsedFile, text: RecordText) -> dict[str, JsonValue]:
    columns = table.read_columns(parsed.data)
    fields = zip(columns, table.split_row(text.text), strict=True)
    values = ((name, table.read_field(field)) for name, field in fields)
    return {name: value for name, value in values if value != ""}


def _extra(values: Mapping[str, JsonValue]) -> JsonObject:
    known = {*TARGET, *WORKLOAD, *STRATEGY}
    extra = {name: value for name, value in values.items() if name not in known}
    if cost_us(extra.get(TIME)) is not None:
        del extra[TIME]
    for spelled in _ERROR_SPELLINGS[1:]:
        if spelled in extra and _ERROR not in extra:
            extra[_ERROR] = extra.pop(spelled)
    return extra


# ---- writing ----


def _row_of(record: Record) -> dict[str, JsonValue]:
    """Return the fields of a record by their columns."""
    values: dict[str, JsonValue] = {}
    target = _TARGET.fullmatch(record.soc_version or "")
    if target is not None:
        units = target["cu"]
        values |= {"gfx": target["gfx"], "cu_num": table.read_field(units) if units else None}
    for part in (record.workload, record.strategy, record.extra):
        if not isinstance(part, Mapping):
            raise ValueError("workload and strategy of a row have members")
        values |= part
    if record.cost_us is not None:
        values[TIME] = record.cost_us
    return {name: value for name, value in values.items() if value is not None}


def _without_foreign_bytes(columns: tuple[str, ...], record: Record | None) -> Record | None:
    """Return a record without the bytes of a table that has other columns."""
    if record is None or record.raw is None:
        return record
    fields = table.split_row(record.raw.decode("utf-8", errors="replace"))
    values = dict(zip(columns, map(table.read_field, fields), strict=False))
    row = {**_row_of(record)}
    spelled = {
        _ERROR if name in _ERROR_SPELLINGS else name for name in values if values[name] != ""
    }
    is_own = (
        len(fields) == len(columns)
        and spelled == {*row}
        and all(
            row[_ERROR if name in _ERROR_SPELLINGS else name] == value
            for name, value in values.items()
            if value != ""
        )
    )
    return record if is_own else replace(record)


def _columns_of(records: Collection[Record]) -> tuple[str, ...]:
    rows = [_row_of(record) for record in records]
    known = (*TARGET, *WORKLOAD, *STRATEGY, TIME, *FIGURES)
    found = dict.fromkeys(name for row in rows for name in row)
    return (*(name for name in known if name in found), *(n for n in found if n not in known))


def _render(columns: tuple[str, ...], path: Path, record: Record) -> bytes:
    values = _row_of(record)
    spelled = next((name for name in _ERROR_SPELLINGS if name in columns), None)
    if spelled is not None and _ERROR in values:
        values[spelled] = values.pop(_ERROR)
    try:
        return table.fill_row(columns, values).encode("utf-8")
    except ValueError as error:
        raise BankFormatError(
            f"record {record.key} cannot be written without loss: {error}", path=path
        ) from error


# ---- checking ----


_Found = tuple[int, Problem]


def _field_problems(columns: tuple[str, ...], fields: list[str], key: str) -> Iterator[_Found]:
    """Yield fields that cannot belong under their column, and blanks in those of the key."""
    has_blanks = False
    for number, (name, field) in enumerate(zip(columns, fields, strict=True)):
        plain = field.strip()
        if plain != field and (name in WORKLOAD or name in TARGET):
            has_blanks = True
        expected = _misfit(name, plain)
        if expected:
            problem = Problem(
                code="AB220",
                tokens=(),
                message=f"value of column {name} belongs under another one",
                got=plain[:40],
                expected=expected,
                hint="restore the line from git, or remove it",
            )
            yield table.column_of(",".join(fields), number), problem
    if has_blanks:
        problem = Problem(
            code="AB314",
            tokens=(),
            message="fields of the key have blanks around them",
            got=",".join(fields)[:40],
            expected=key,
            hint="aoebank validate --fix --fix-class key FILE; a look-up by text misses the row",
        )
        yield 0, problem


def _misfit(name: str, field: str) -> str:
    """Return the kind of value its column expects of a field; empty if the field is one."""
    if name in _INTEGERS:
        return "" if field in _NO_NUMBER or field.lstrip("-").isdecimal() else "an integer"
    if name in _NUMBERS:
        is_number = field in _NO_NUMBER or not isinstance(table.read_field(field), str)
        return "" if is_number or field.endswith("%") else "a number"
    if name in _FLAGS:
        return "" if field in _FLAG_WORDS else "0, 1, True or False"
    if name in _TEXTS:
        start = _TEXTS[name]
        return "" if not field or field.startswith(start) else f"{start}.."
    if name in _NAMES:
        is_number = bool(field) and not isinstance(table.read_field(field), str)
        return "a name" if is_number else ""
    return ""


def _time_problems(columns: tuple[str, ...], fields: list[str]) -> Iterator[_Found]:
    number = columns.index(TIME)
    field = fields[number].strip()
    value = table.read_field(field)
    if field and cost_us(value) is None and (not isinstance(value, str) or field in _NO_NUMBER):
        problem = Problem(
            code="AB402",
            tokens=(),
            message="measured time is not positive and finite",
            got=field,
            expected="microseconds > 0",
            hint="tune the workload again",
        )
        yield table.column_of(",".join(fields), number), problem
    elif not field:
        problem = Problem(
            code="AB401",
            tokens=(),
            message="no measured time: merges that compare times pass over it",
            got="an empty field",
        )
        yield 0, problem


def _identity_problems(parsed: ParsedFile, number: int) -> Iterator[_Found]:
    used = parsed.find(parsed.keys[number])
    if used is None or used == number:
        return
    records = [parsed.format.record(parsed, place) for place in (number, used)]
    one, other = (canonical_text([record.strategy, record.cost_us]) for record in records)
    same = one == other
    line, _ = parsed.lines.position(parsed.starts[used])
    problem = Problem(
        code="AB305" if same else "AB306",
        tokens=(),
        message="same workload as another row" + ("" if same else " with another answer"),
        got=f"line {line}",
        expected="each workload once for a device",
        hint="remove this line"
        if same
        else "remove the slower one: the reader ends at such a table",
    )
    yield 0, problem
