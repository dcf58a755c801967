"""Repositories of AKG: a JSON object, a member per kernel, in it one per shapes, then per types.

A kernel is a compute trait: the number of its inputs, its operators, each with the distances to the
results it reads, and its outputs. The compiler looks shapes and types up in it, and takes the
attributes of `metadata` where these have none. The name of the file tells the process: AI cores of
Ascend, CUDA or CPU.

Source: akg/composite/build_module.py of MindSpore 2.10.0, checked against its three repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import value_place
from aoebank.formats.text.member_format import MemberFormat
from aoebank.formats.text.problem import Problem, repeated, wrong_type
from aoebank.formats.text.record import member_text, stored
from aoebank.formats.text.splice import set_member, splice
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

AICORE = "aicore"
METADATA = "metadata"
ATTRIBUTES = "attrs"
ANY_SHAPE = "any_shape"  # what the look-up of batched products asks for on GPUs and CPUs
STRUCTURE = Structure(schema="akg/1.json", record=("additionalProperties",), depth=3)
_FILE_NAME = re.compile(r"repository(?:_(?P<process>cuda|cpu))?\.json", re.ASCII)
_TRAIT = re.compile(
    r"(?P<inputs>\d+)\.(?P<operators>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.\d+", re.ASCII
)
# `V2` belongs to a name, the digits behind it are distances; products end in their transpositions
_OPERATOR = re.compile(r"([A-Za-z_]\w*?(?:V[23])?)\d*(?:_[01]_[01])?", re.ASCII)
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[0-9]{1,4}\.[A-Za-z_][\w.]*"[ \t]*:[ \t\r\n]*\{)',
    re.MULTILINE | re.ASCII,
)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"[0-9]{1,4}\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.[0-9]+"\s*:\s*\{'
)
_REMOVE = "remove it, or name it as the look-up does"


class AkgFormat(MemberFormat):
    """Reads and writes `repository.json`, `repository_cuda.json` and `repository_cpu.json`."""

    name = "akg"
    empty = b"{\n}\n"
    content = _CONTENT  # An object starts with a kernel
    key_start = _KEY_START
    globs = ("repository.json", "repository_*.json")
    name_pattern = "repository[_<cuda|cpu>].json"
    indent = b"    "
    is_of_one_target = True
    target_word = "target"
    keeps_alternatives = True  # for other shapes

    def parse_name(self, name: str) -> BankName | None:
        """Return the process as the target."""
        match = _FILE_NAME.fullmatch(name)
        return BankName(soc_version=match["process"] or AICORE) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of the repository of a process."""
        process = target.soc_version or "<soc_version>"
        return "repository.json" if process == AICORE else f"repository_{process}.json"

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: its strategy has all shapes of the kernel."""
        text = member_text(parsed, number)
        value = json_text.loads(text.text[text.value :])
        for problem in structure_problems(value):
            raise text.error(problem)
        key = parsed.keys[number]
        trait = _TRAIT.fullmatch(key)
        workload: dict[str, JsonValue] = {"compute": key}
        if trait is not None:
            workload |= {
                "operators": [*_operators(key)],
                "inputs": json_text.loads(trait["inputs"]),
            }
        record = Record(
            **stored(parsed, number, text),
            op_type=_op_type(key),
            workload=workload,
            strategy=value,
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operators of each kernel, without reading it."""
        return map(_op_type, parsed.keys)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield the problems of each kernel, and kernels, shapes and types nothing asks for."""
        for number, key in enumerate(parsed.keys):
            text = member_text(parsed, number)
            value = json_text.scan(text.text, text.value)[0]
            problems = [*STRUCTURE.problems(value, structure_problems(value))]
            if not problems and isinstance(value, Mapping):
                problems += _key_problems(key, value)
            if parsed.find(key) != number:
                problems.append(repeated("kernel", key[:60]))
            for problem in problems:
                yield text.finding(problem)
            yield from text.duplicates(value)

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the compute trait of a workload."""
        yield text.strip()
        compute = value.get("compute") if isinstance(value, Mapping) else value
        if isinstance(compute, str):
            yield compute

    def workload_words(self, record: Record) -> str:
        """Return the operators of a kernel, `ZerosLike + Select, inputs: 2`."""
        trait = _TRAIT.fullmatch(record.key)
        if trait is None:
            return ""
        return f"{' + '.join(_operators(record.key))}, inputs: {trait['inputs']}"

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the number of shapes a kernel is tuned for, then each shape with its answer."""
        assert isinstance(record.strategy, Mapping)
        shapes = [name for name in record.strategy if name != METADATA]
        general = [METADATA] if METADATA in record.strategy else []
        others = ", attributes for the others" if general else ""
        yield f"shapes: {len(shapes)}{others}"
        for name in (*general, *shapes):
            answer = record.strategy[name]
            for types, found in answer.items() if isinstance(answer, Mapping) else ():
                yield f"{name} {types}: {json_text.dumps_compact(found)}"

    def complements(self, base: bytes | None, ours: bytes, theirs: bytes) -> bool:
        """True if two kernels have answers for other shapes, and none went since the base."""
        one, two = _answers(ours), _answers(theirs)
        if one is None or two is None:
            return False
        before = {} if base is None else _answers(base)
        is_all_there = before is not None and before.keys() <= one.keys() & two.keys()
        # `==` takes 1, 1.0 and true for one value, and the change of a side would be lost
        return is_all_there and all(
            canonical_text(one[place]) == canonical_text(two[place])
            for place in one.keys() & two.keys()
        )

    def unite(self, ours: bytes, theirs: bytes) -> bytes:
        """Return a kernel with the shapes of both; where both have an answer, with ours."""
        text, other = ours.decode("utf-8"), theirs.decode("utf-8")
        place = value_place(text)
        for name, start, end in _members(other, value_place(other)):
            own = {mine: begin for mine, begin, _ in _members(text, place)}
            if name not in own:
                text = set_member(text, place, name, other[start:end])
                continue
            for types, first, last in _members(other, start):
                if types not in {mine for mine, _, _ in _members(text, own[name])}:
                    text = set_member(text, own[name], types, other[first:last])
        return text.encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched kernels byte for byte."""
        return splice(parsed, changes, _render)


def structure_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why the look-up fails on a kernel: it asks objects, three levels deep."""
    if not isinstance(value, Mapping):
        yield replace(
            wrong_type(value, ("kernel",), "an object"), tokens=(), message="kernel is no object"
        )
        return
    for name, answers in value.items():
        if not isinstance(answers, Mapping):
            yield wrong_type(answers, (name,), "an object")
            continue
        for types, answer in answers.items():
            if not isinstance(answer, Mapping) and (name != METADATA or types == ATTRIBUTES):
                yield wrong_type(answer, (name, types), "an object")


# ---- kernels ----


def _operators(key: str) -> Iterator[str]:
    """Yield the operators of a compute trait.

    >>> [*_operators("2.MatMul12_1_0.StridedSliceV21.Conv2D1.3")]
    ['MatMul', 'StridedSliceV2', 'Conv2D']
    """
    for part in key.split(".")[1:-1]:
        match = _OPERATOR.fullmatch(part)
        yield match[1] if match else part


def _op_type(key: str) -> str | None:
    return "_".join(_operators(key)) if _TRAIT.fullmatch(key) else None


def _members(text: str, place: int) -> list[tuple[str, int, int]]:
    """Return name, start and end of the value of each member of the object at a place."""
    return [
        (name, value, json_text.scan(text, value)[1])
        for name, _, value in json_text.iter_members(text, place)
    ]


def _answers(raw: bytes) -> dict[tuple[str, str], JsonValue] | None:
    """Return the answers of a kernel by shapes and types; None if it cannot be read."""
    try:
        text = raw.decode("utf-8")
        value = json_text.loads(text[value_place(text) :])
    except (UnicodeDecodeError, json_text.JsonTextError):
        return None
    if next(structure_problems(value), None) is not None or not isinstance(value, Mapping):
        return None
    return {
        (name, types): answer
        for name, answers in value.items()
        if isinstance(answers, Mapping)
        for types, answer in answers.items()
    }


def _render(record: Record) -> bytes:
    body = json_text.dumps_indented(record.strategy, "    ", 1)
    return f"{json_text.dumps(record.key)}: {body}".encode()


# ---- checking ----


def _key_problems(key: str, value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    if _TRAIT.fullmatch(key) is None:
        yield _never_found(
            (), "kernel is under no compute trait", key, "<inputs>.<operators>.<out>"
        )
        return
    for name, answers in value.items():
        assert isinstance(answers, Mapping)
        if name == METADATA:
            for member in answers:
                if member != ATTRIBUTES:
                    yield Problem(
                        code="AB211",
                        tokens=(name, member),
                        message="attribute stands outside attrs: no look-up asks for it",
                        got=json_text.dumps(member)[:40],
                        expected=ATTRIBUTES,
                        hint="move it into attrs",
                    )
        elif _is_repeating(name):
            yield _never_found(
                (name,), "shape stands twice in a row where the look-up has a hyphen", name, "-"
            )
        else:
            for types in answers:
                yield from _type_problems(name, types)


def _type_problems(shapes: str, types: str) -> Iterator[Problem]:
    if _is_repeating(types):
        what = "type stands twice in a row where the look-up has a hyphen"
        yield _never_found((shapes, types), what, types, "-")
    elif shapes != ANY_SHAPE and _count(shapes) != _count(types):
        what = "shapes and types are of different numbers of tensors"
        yield _never_found((shapes, types), what, types, f"as many as {shapes}")


def _count(trait: str) -> int:
    """Return the number of tensors: a hyphen stands for one like the one before it."""
    return sum(1 + len(part) - len(part.rstrip("-")) for part in trait.split("."))


def _is_repeating(trait: str) -> bool:
    return any(one.rstrip("-") == two.rstrip("-") for one, two in pairwise(trait.split(".")))


def _never_found(tokens: tuple[str, ...], what: str, got: str, expected: str) -> Problem:
    return Problem(
        code="AB313", tokens=tokens, message=what, got=got[:60], expected=expected, hint=_REMOVE
    )
