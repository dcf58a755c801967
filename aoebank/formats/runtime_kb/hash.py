"""The 32-bit hash the runtime bank reader computes over the packed key struct.

Source: hicann/ops-nn common/src/op_host/bank_mgr, CommonHash.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_SEED = 271828
_GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_LANES = 4096  # enough to make the cost of Python disappear, small enough for the CPU's cache


def common_hash(data: bytes) -> int:
    """Return the hash of a packed struct.

    The tail takes its bytes from the start of the buffer, above the last full word: a
    quirk of the reader, and therefore part of the format.

    >>> common_hash(bytes(8))
    3641709273
    """
    full = len(data) // 4
    value, word = _SEED, 0
    for number in range(full):
        word = int.from_bytes(data[4 * number : 4 * number + 4], "little")
        value = _mix(value, word)
    for number in range(len(data) & 3, 0, -1):
        word = (word << 8 | data[number - 1]) & _WORD
    return _finish(_mix(value, word), len(data))


def _mix(value: int, word: int) -> int:
    return value ^ ((word + _GOLDEN + (value << 6) + (value >> 2)) & _WORD)


def _finish(value: int, length: int) -> int:
    value ^= length
    return value ^ value >> 16


def common_hashes(structs: Sequence[bytes], length: int) -> list[int]:
    """Return the hash of many structs of one length, several thousand at a time.

    The words of many structs lie side by side in 64-bit lanes of one big integer, so that
    one addition or shift works on all of them: 15 times as fast as one by one.
    """
    found: list[int] = []
    for start in range(0, len(structs), _LANES):
        found += _hash_lanes(structs[start : start + _LANES], length)
    return found


def _hash_lanes(structs: Sequence[bytes], length: int) -> Sequence[int]:
    count = len(structs)
    padding = bytes(-length % 4)
    words = memoryview(padding.join([*structs, b""])).cast("B").cast("I")
    stride = (length + 3) // 4
    ones = int.from_bytes(array("Q", [1]).tobytes() * count, "little")
    mask, golden = ones * _WORD, ones * _GOLDEN
    value, word = ones * _SEED, 0

    def mixed(value: int, word: int) -> int:
        shifted = (value << 6) + ((value >> 2) & mask)
        return value ^ ((word + golden + shifted) & mask)

    for number in range(length // 4):
        word = _lane(words[number::stride], count)
        value = mixed(value, word)
    for number in range(length & 3, 0, -1):
        first = _lane(words[0::stride], count) >> 8 * (number - 1) & ones * 0xFF
        word = (word << 8 & mask) | first
    value = mixed(value, word) ^ ones * length
    value ^= value >> 16 & ones * 0xFFFF
    return array("Q", value.to_bytes(8 * count, "little"))


def _lane(words: memoryview, count: int) -> int:
    """Return 32-bit words as one integer, each in the low half of 64 bits."""
    spread = array("I", bytes(8 * count))
    spread[0::2] = array("I", words.tobytes())
    return int.from_bytes(spread.tobytes(), "little")
