"""Members of workloads in words, and workloads that CANN's tuners describe by shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aoebank.formats.text.json_text import dumps_compact
from aoebank.model.json_value import JsonValue

_TENSORS = ("A", "B", "C")
_NAMES_OF_A_RUN = ("kernel_name", "test_case", "op_name", "platform")
"""Members of a shape that say where it came from; readers do not look them up."""
_WORDS_OF_JSON = ("true", "false", "null")


class TellingMembers:
    """Members of a workload that are told one by one; `rest` has those nobody asked for.

    Most members of such a workload are 0 or 1, and mean that something is not used.
    """

    def __init__(self, workload: Mapping[str, JsonValue]) -> None:
        self._left = dict(workload)

    def take(self, name: str) -> JsonValue:
        """Return a member, None if it is not there."""
        return self._left.pop(name, None)

    def extents(self, *names: str) -> str:
        """Return the numbers of these members as the shape `3x3`; those that are not there go."""
        found = (self.take(name) for name in names)
        return joined([one for one in found if one is not None])

    def rest(self) -> Iterator[tuple[str, JsonValue]]:
        """Yield the members left over that say something."""
        for name, value in self._left.items():
            if name not in _NAMES_OF_A_RUN and value not in (None, 0, 1, ""):
                yield name, value


def joined(extents: Sequence[JsonValue]) -> str:
    """Return a shape in words.

    >>> joined([1, 64, 56, 56])
    '1x64x56x56'
    """
    return "x".join(map(value_text, extents))


def value_text(value: JsonValue) -> str:
    """Return a number or a word as it is, anything else as JSON.

    >>> value_text("float16"), value_text("true"), value_text(True)
    ('float16', '"true"', 'true')
    """
    is_word = isinstance(value, str) and value.isidentifier() and value.isascii()
    is_word = is_word and value not in _WORDS_OF_JSON
    return str(value) if type(value) is int or is_word else dumps_compact(value)


def member_text(name: str, value: JsonValue) -> str:
    """Return a member with its name.

    >>> member_text("shape", [1, 3]), member_text("op type", "Softmax")
    ('shape=[1,3]', '"op type"=Softmax')
    """
    is_plain = name.isidentifier() and name.isascii()
    return f"{name if is_plain else dumps_compact(name)}={value_text(value)}"


def shape_words(workload: JsonValue) -> str:
    """Return the operator and its tensors; empty for a workload that is told otherwise.

    >>> matmul = {"op_type": "matmul", "A_shape": [1, 16], "B_shape": [16, 64]}
    >>> shape_words(matmul | {"A_dtype": "float16", "bias_flag": True, "kernel_name": "m_0"})
    'matmul 1x16 float16 by 16x64'
    """
    if not isinstance(workload, Mapping) or not isinstance(workload.get("op_type"), str):
        return ""
    left, right = workload.get("A_shape"), workload.get("B_shape")
    if not isinstance(left, list) or not isinstance(right, list):
        return ""
    members = TellingMembers(workload)
    op_type = value_text(members.take("op_type"))
    tensors = []
    for name in _TENSORS:
        shape, dtype = members.take(f"{name}_shape"), members.take(f"{name}_dtype")
        if isinstance(shape, list):
            tensors.append(
                joined(shape) if dtype is None else f"{joined(shape)} {value_text(dtype)}"
            )
    a, b, *result = tensors
    made = f" -> {result[0]}" if result else ""
    rest = (f", {member_text(name, value)}" for name, value in members.rest())
    return f"{op_type} {a} by {b}{made}{''.join(rest)}"
