"""Results of PyTorch's TunableOp: validators, then a matrix product per line.

Validators name the versions and the device; they are of the whole file, and its reader takes no
file with another one. So results of two devices are never one file.

Source: torch/cuda/tunable.py of PyTorch 2.14.0, and its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import FieldEdit, Format, ParsedFile
from aoebank.formats.text import json_text, table
from aoebank.formats.text.problem import Problem, blank_line
from aoebank.formats.text.record import US_PER_MS, cost_us, record_text, stored, us_of_ms
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

VALIDATOR = "Validator"
VALIDATORS = "validators"
TIME = "time_ms"
DEVICE = "GCN_ARCH_NAME"
_FILE_NAME = re.compile(r"tunableop_(?P<kind>results|untuned)[0-9A-Za-z_.-]*\.csv", re.ASCII)
_CONTENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:Validator,[A-Z_]+,|[A-Za-z]*GemmTunableOp_)")
_OPERATOR = re.compile(r"[A-Za-z]\w*", re.ASCII)
_PARAMS = re.compile(r"[A-Za-z]+(?:_\w+)+", re.ASCII)
_SIZES = re.compile(r"[nt]{2}_(\d{1,9})_(\d{1,9})_(\d{1,9})(?:_|$)", re.ASCII)
_MARKERS = (b"<<<<<<< ", b"=======", b"||||||| ", b">>>>>>> ")
_RESTORE = "restore the line from git, or remove it"

_Found = tuple[int, Problem]


class TunableOpFormat(Format):
    """Reads and writes `tunableop_results*.csv` and `tunableop_untuned*.csv`."""

    name = "tunable_op"
    empty = b"Validator,PT_VERSION,unknown\n"
    content = _CONTENT  # A validator or a product starts the file
    globs = ("tunableop_results*.csv", "tunableop_untuned*.csv")
    name_pattern = "tunableop_<results|untuned><device number>.csv"
    first_wins = True  # its reader keeps what it has
    keeps_times = True
    has_target_in_rows = True
    edits_fields = True
    target_word = "target"

    def parse_name(self, name: str) -> BankName | None:
        """Return a name without a target: the number in it says which device of a host it was."""
        return BankName(soc_version=None) if _FILE_NAME.fullmatch(name) else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name PyTorch gives results of its first device."""
        return "tunableop_results0.csv"

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the results; validators are kept and are no records."""
        scan = start_scan(data, path)
        fewest = 0
        for start, end in table.iter_rows(data):
            line = data[start:end]
            if not line.strip():
                scan.report(blank_line(), start, end)
                continue
            if data.startswith(_MARKERS, start):
                continue
            fields = line.decode("utf-8", errors="replace").split(",")
            fewest = fewest or (2 if len(fields) == 2 else 3)  # of a list to tune, or of results
            problem = _line_problem(fields, fewest, is_behind=bool(scan.keys))
            if problem is not None:
                scan.report(problem, start, end)
            elif fields[0] != VALIDATOR:
                scan.add(f"{fields[0].strip()},{fields[1].strip()}", start, end)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; a time is in milliseconds in the file."""
        text = record_text(parsed, number)
        fields = text.text.split(",")
        validators = _validators(parsed)
        time = table.read_field(fields[3]) if len(fields) > 3 else None
        extra: dict[str, JsonValue] = {TIME: time} if time not in (None, "") else {}
        if len(fields) > 4:
            extra["more"] = fields[4:]
        facts = stored(parsed, number, text)
        facts["soc_version"] = validators.get(DEVICE)
        record = Record(
            **facts,
            op_type=fields[0].strip(),
            workload=_workload(fields[1].strip()),
            strategy={"solution": fields[2].strip()} if len(fields) > 2 else {},
            cost_us=us_of_ms(time),
            extra={**extra, VALIDATORS: dict(validators)} if validators else extra,
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operator of each record, without reading it."""
        return (key.partition(",")[0] for key in parsed.keys)

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the device of the validators for each record."""
        return repeat(_validators(parsed).get(DEVICE), len(parsed))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield times that are none, blanks in keys, results that come twice or of no device."""
        if len(parsed) and DEVICE not in _validators(parsed) and _is_tuned(parsed, 0):
            problem = Problem(
                code="AB315",
                tokens=(),
                message="no validator names the device: results count for any",
                expected=f"{VALIDATOR},{DEVICE},...",
                hint="add the validator of the device they were tuned on",
            )
            yield table.finding_at(record_text(parsed, 0), 0, problem)
        for number in range(len(parsed)):
            text = record_text(parsed, number)
            for place, problem in (
                *_field_problems(text.text.split(","), parsed.keys[number]),
                *_identity_problems(parsed, number),
            ):
                yield table.finding_at(text, place, problem)

    def header(self, parsed: ParsedFile) -> str:
        """Return the validators, which have to be equal in files that are merged."""
        return " ".join(f"{name}={value}" for name, value in sorted(_validators(parsed).items()))

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the key of the parameters of an operator."""
        yield text.strip()
        if isinstance(value, Mapping) and op_type:
            yield f"{op_type},{value.get('params')}"

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a line with another solution; it has no other field of a strategy."""
        fields = parsed.text(number).split(",")
        if edit.unset or {*edit.assign} != {"solution"} or len(fields) < 3:
            raise BankFormatError(
                "a result has one field of a strategy", path=parsed.path, expected="solution"
            )
        fields[2] = _plain_field(edit.assign["solution"], parsed.path)
        return ",".join(fields).encode("utf-8")

    def respell_key(self, parsed: ParsedFile, number: int) -> bytes:
        """Return a line without blanks around its fields."""
        return ",".join(map(str.strip, parsed.text(number).split(","))).encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched lines byte for byte.

        Raises:
            BankFormatError: a record was made under other validators: it would lose them.
        """
        new = [record for record in changes.values() if record is not None]
        if not len(parsed) and new and parsed.data == self.empty:
            told = next((told for record in new if (told := _told_by(record))), None)
            # a file that was never written gets the validators of what comes into it
            lines = [f"{VALIDATOR},{name},{value}\n" for name, value in (told or {}).items()]
            parsed = self.parse("".join(lines).encode("utf-8"), parsed.path)
        own = _validators(parsed)
        for record in new:
            if _told_by(record) not in ({}, own):
                raise BankFormatError(
                    f"record {record.key} was made under other validators",
                    path=parsed.path,
                    got=dumps_validators(_told_by(record)),
                    expected=dumps_validators(own),
                )
        return splice(parsed, changes, partial(_render, parsed.path))


def dumps_validators(validators: Mapping[str, str]) -> str:
    """Return validators as one text, for messages."""
    return json_text.dumps(dict(validators))[:200]


# ---- reading ----


def _line_problem(fields: list[str], fewest: int, *, is_behind: bool) -> Problem | None:
    """Return why a line is neither a validator nor a result of so many fields."""
    if fields[0] == VALIDATOR and is_behind:
        return Problem(
            code="AB221",
            tokens=(),
            message="validator stands behind results: two files were put together",
            got=",".join(fields)[:40],
            hint="remove the line; two tables were put together",
        )
    if len(fields) >= fewest:
        is_named = fields[0] == VALIDATOR or (
            _OPERATOR.fullmatch(fields[0].strip()) and _PARAMS.fullmatch(fields[1].strip())
        )
        return None if is_named else _no_key(fields)
    return Problem(
        code="AB219",
        tokens=(),
        message="line has fewer fields than a result",
        got=str(len(fields)),
        expected=f"{fewest} or more",
        hint=_RESTORE,
    )


def _no_key(fields: list[str]) -> Problem:
    return Problem(
        code="AB313",
        tokens=(),
        message="no operator and parameters of a product: nothing asks for them",
        got=",".join(fields[:2])[:60],
        expected="GemmTunableOp_..,nt_..",
        hint=_RESTORE,
    )


def _validators(parsed: ParsedFile) -> Mapping[str, str]:
    end = parsed.starts[0] if len(parsed) else len(parsed.data)
    return _read_validators(parsed.data[:end])


@lru_cache(maxsize=64)
def _read_validators(head: bytes) -> Mapping[str, str]:
    rows = (head[start:end].decode("utf-8", "replace") for start, end in table.iter_rows(head))
    parts = (row.split(",", 2) for row in rows)
    return {part[1]: part[2] for part in parts if part[0] == VALIDATOR and len(part) == 3}


def _workload(params: str) -> dict[str, JsonValue]:
    sizes = _SIZES.match(params)
    found = zip("MNK", map(int, sizes.groups()), strict=True) if sizes else ()
    return {"params": params, **dict(found)}


def _is_tuned(parsed: ParsedFile, number: int) -> bool:
    return parsed.raw(number).count(b",") > 1


# ---- writing ----


def _told_by(record: Record) -> Mapping[str, str]:
    told = record.extra.get(VALIDATORS)
    return {name: str(told[name]) for name in told} if isinstance(told, Mapping) else {}


def _plain_field(value: JsonValue, path: Path) -> str:
    """Return the text of a field; this format has no quotes."""
    text = value if isinstance(value, str) else json_text.dumps(value)
    if "," in text or "\n" in text or text != text.strip():
        raise BankFormatError("no field holds such a value", path=path, got=text[:40])
    return text


def _render(path: Path, record: Record) -> bytes:
    workload, strategy = record.workload, record.strategy
    if not (isinstance(workload, Mapping) and isinstance(strategy, Mapping)):
        raise BankFormatError(f"record {record.key} is no result", path=path)
    lost = [name for name in strategy if name != "solution"]
    lost += [name for name in record.extra if name not in (TIME, VALIDATORS, "more")]
    if lost:
        raise BankFormatError(
            f"record {record.key} cannot be written without loss", path=path, got=", ".join(lost)
        )
    values: list[JsonValue] = [record.op_type or record.key.partition(",")[0]]
    values.append(workload.get("params", record.key.partition(",")[2]))
    if "solution" in strategy:
        values.append(strategy["solution"])
    time = record.extra.get(TIME)
    if record.cost_us is not None and us_of_ms(time) != record.cost_us:
        time = record.cost_us / US_PER_MS
    if time is not None:
        values.append(time)
    more = record.extra.get("more")
    values += more if isinstance(more, list | tuple) else ()
    return ",".join(_plain_field(value, path) for value in values).encode("utf-8")


# ---- checking ----


def _field_problems(fields: list[str], key: str) -> Iterator[_Found]:
    if f"{fields[0]},{fields[1]}" != key:
        problem = Problem(
            code="AB314",
            tokens=(),
            message="fields of the key have blanks around them",
            got=f"{fields[0]},{fields[1]}"[:60],
            expected=key,
            hint="aoebank validate --fix --fix-class key FILE; its reader compares text",
        )
        yield 0, problem
    if len(fields) < 4:
        return
    field = fields[3].strip()
    value = table.read_field(field)
    place = len(",".join(fields[:3])) + 1
    if field and isinstance(value, str) and field.lower().lstrip("-") not in ("nan", "inf"):
        problem = Problem(
            code="AB220",
            tokens=(),
            message="time is no number: the line slipped by a field",
            got=field[:40],
            expected="milliseconds",
            hint=_RESTORE,
        )
        yield place, problem
    elif field and cost_us(value) is None:
        problem = Problem(
            code="AB402",
            tokens=(),
            message="measured time is not positive and finite",
            got=field[:40],
            expected="milliseconds > 0",
            hint="tune the workload again",
        )
        yield place, problem


def _identity_problems(parsed: ParsedFile, number: int) -> Iterator[_Found]:
    used = parsed.find(parsed.keys[number])
    if used is None or used == number:
        return
    one, other = (parsed.format.record(parsed, place) for place in (number, used))
    same = canonical_text([one.strategy, one.cost_us]) == canonical_text(
        [other.strategy, other.cost_us]
    )
    line, _ = parsed.lines.position(parsed.starts[used])
    problem = Problem(
        code="AB305" if same else "AB306",
        tokens=(),
        message="same product as another line" + ("" if same else " with another answer"),
        got=f"line {line}",
        expected="each product once",
        hint="remove this line" if same else "remove the slower one: the reader takes the first",
    )
    yield 0, problem
