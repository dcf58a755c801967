"""Inputs of the fuzzer: small bank files and what hardware, editors, tools and people do to them.

An input is made from its number alone, so a find is run again by its number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aoebank.formats.provenance import SUFFIX
from support import sample_bank_files as samples

_X86 = samples.ROOT / "sample_banks" / "x86-64-icelake" / "unified_bank"
ELEMENTWISE = _X86 / "x86-64-icelake_2_AiCore_elementwise.json"
SIDE_CAR = _X86 / f"{ELEMENTWISE.name}{SUFFIX}"
_MOST_LINES = 4  # of a sample: short inputs are many inputs
_MOST_BYTES = 4000
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[\[\]{}:,]')
_NUMBER = re.compile(rb"(?<![\w\"])-?\d[\d.eE+-]*")
_STRING = re.compile(rb'"(?:[^"\\\n]|\\.)*"')

JUNK = (
    *(b"", b"{}", b"[]", b"null", b"0", b'""', b'"\\ud800"', b"1e999", b"-0", b"\xff"),
    *(b"\xef\xbb\xbf", b"\r\n", b"\r", b"\n\n", b" ", b"\t", b"\0", b",", b":", b"[[[[", b"}"),
    *(b"<<<<<<< x\n", b"=======\n", b">>>>>>> y\n", b'"a":1,"a":2', b"NaN", b"-Infinity"),
)
NUMBERS = (
    *(b"0", b"-0", b"-1", b"1.0", b"1e0", b"1E+2", b"0.1e1", b"1e999", b"-1e-999", b"4294967296"),
    *(b"18446744073709551616", b"-9223372036854775809", b"9" * 40, b"1" + b"0" * 5000, b"01"),
    *(b"0." + b"3" * 400, b"true", b"null", b'"1"', b"[1]", b"{}"),
)
TEXTS = (
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\\u001b[2J"', b'"\\u202e"'),
    *('"é"'.encode(), '"e\u0301"'.encode(), '"😀"'.encode(), b'"\\ud83d\\ude00"', b'""', b'" "'),
    *(
        b'"a/b~c"',
        b'"' + b"x" * 3000 + b'"',
        b'"\\/"',
        b'"/"',
        b'"\xed\xa0\x80"',
        '"\u017f"'.encode(),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzInput:
    """Three versions of one file; any of them may be as it was."""

    number: int
    name: str  # File name, which tells the format
    whole: bytes  # The file nobody touched
    base: bytes
    ours: bytes
    theirs: bytes


@cache
def sample_files() -> tuple[tuple[str, bytes], ...]:
    """Return names and first records of the samples of every format, and of a side-car."""
    paths = (*samples.ALL, ELEMENTWISE, SIDE_CAR)
    return tuple((path.name, _shortened(path)) for path in paths)


def make_input(number: int) -> FuzzInput:
    """Return the input of a number: two of three versions mutated, or all."""
    dice = random.Random(number)
    name, whole = dice.choice(sample_files())
    base = mutate(whole, dice) if dice.random() < 0.3 else whole
    ours = mutate(base, dice) if dice.random() < 0.6 else base
    theirs = mutate(base if dice.random() < 0.9 else whole, dice)
    return FuzzInput(number=number, name=name, whole=whole, base=base, ours=ours, theirs=theirs)


def mutate(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with one to three places hit, as the mutations below do it."""
    for _ in range(dice.randint(1, 3)):
        data = dice.choice(MUTATIONS)(data, dice)
    return data


def _shortened(path: Path) -> bytes:
    """Return a sample with its first records only, still whole for its reader."""
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if len(data) <= _MOST_BYTES or len(lines) <= _MOST_LINES:
        return data
    if lines[0].strip() not in (b"{", b"["):
        return b"".join(lines[:_MOST_LINES])
    kept = lines[: _MOST_LINES + 1]
    return b"".join(kept).rstrip().removesuffix(b",") + b"\n" + lines[-1]


def _spot(data: bytes, dice: random.Random) -> tuple[int, int]:
    start = dice.randrange(len(data) + 1)
    return start, min(len(data), start + dice.choice((0, 1, 1, 2, 5, 20, 200)))


def _flip(data: bytes, dice: random.Random) -> bytes:
    start, end = _spot(data, dice)
    flipped = bytes(byte ^ 1 << dice.randrange(8) for byte in data[start : start + 3])
    return data[:start] + flipped + data[min(end, start + 3) :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    start, end = _spot(data, dice)
    return data[:start] + data[end:]


def _truncate(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _double(data: bytes, dice: random.Random) -> bytes:
    start, end = _spot(data, dice)
    return data[:end] + data[start:]


def _junk(data: bytes, dice: random.Random) -> bytes:
    start, end = _spot(data, dice)
    return data[:start] + dice.choice(JUNK) + data[dice.choice((start, end)) :]


def _replace(pattern: re.Pattern[bytes], data: bytes, dice: random.Random, new: bytes) -> bytes:
    found = [*pattern.finditer(data)]
    if not found:
        return data + new
    match = dice.choice(found)
    return data[: match.start()] + new + data[match.end() :]


def _number(data: bytes, dice: random.Random) -> bytes:
    return _replace(_NUMBER, data, dice, dice.choice(NUMBERS))


def _near_number(data: bytes, dice: random.Random) -> bytes:
    """A number that stays one: what a person or a tool changes."""
    return _replace(_NUMBER, data, dice, b"%d" % dice.randrange(1, 99))


def _text(data: bytes, dice: random.Random) -> bytes:
    return _replace(_STRING, data, dice, dice.choice(TEXTS))


def _nest(data: bytes, dice: random.Random) -> bytes:
    depth = dice.choice((3, 60, 99, 100, 101, 1500))
    opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return _replace(_NUMBER, data, dice, opening * depth + b"1" + closing * depth)


def _swap_tokens(data: bytes, dice: random.Random) -> bytes:
    found = [*_TOKEN.finditer(data)]
    if len(found) < 2:
        return data
    first, second = sorted(dice.sample(found, 2), key=lambda match: match.start())
    return (
        data[: first.start()]
        + second[0]
        + data[first.end() : second.start()]
        + first[0]
        + data[second.end() :]
    )


def _copy_token(data: bytes, dice: random.Random) -> bytes:
    """A token over another one of its kind: names that come twice, keys that clash."""
    found = [*_STRING.finditer(data)]
    return _replace(_STRING, data, dice, dice.choice(found)[0]) if found else data


def _double_line(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        lines.insert(dice.randrange(len(lines) + 1), dice.choice(lines))
    return b"".join(lines)


def _move_line(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        line = lines.pop(dice.randrange(len(lines)))
        lines.insert(dice.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _drop_line(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        del lines[dice.randrange(len(lines))]
    return b"".join(lines)


def _line_ends(data: bytes, dice: random.Random) -> bytes:
    ends = dice.choice((b"\r\n", b"\r", b"\n\n", b" \n", b"\n\xef\xbb\xbf", b"\xe2\x80\xa8"))
    return data.replace(b"\n", ends, dice.choice((1, 2, -1)))


def _mark(data: bytes, dice: random.Random) -> bytes:
    return dice.choice((b"\xef\xbb\xbf", b"\xef\xbb\xbf" * 2, b"\xff\xfe", b" \n", b"\0")) + data


def _space(data: bytes, dice: random.Random) -> bytes:
    token = dice.choice((b":", b",", b"[", b"{"))
    return data.replace(token, token + dice.choice((b" ", b"\t", b"")), dice.choice((1, -1)))


Mutation = Callable[[bytes, random.Random], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _cut, _truncate, _double, _junk, _number, _near_number, _near_number, _text, _nest),
    *(_swap_tokens, _copy_token, _double_line, _move_line, _drop_line, _line_ends, _mark, _space),
)
