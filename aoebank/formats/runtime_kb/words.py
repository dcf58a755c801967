"""Keys of runtime banks in words: products of matrices, and convolutions with their gradients.

A key struct names every field, most of them 0 or 1. What its operator is, is told by the names
it has; fields that no word is made of are told by name behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from aoebank.formats.text.member_words import TellingMembers, joined, member_text, value_text
from aoebank.model.json_value import JsonValue

NameOf: TypeAlias = Callable[[str, JsonValue], str]
"""Name of a number by its member, as in `FLOAT16`; empty for a plain one."""
_MATRICES = frozenset({"m", "k", "n", "a_dtype", "b_dtype", "out_dtype"})
_MATRIX_BATCHES = ("1", "2", "3", "4")
# Names of the same things in the key structs of convolutions: `{dhw}` is d, h or w, `{DHW}` is D,
# H or W.
_CONVOLUTIONS = (
    {
        "kernel": "bShape{DHW}",
        "cin": "bShapeC",
        "cout": "bShapeN",
        "batch": "aShapeN",
        "image": "aShape{DHW}",
        "result": "cShape{DHW}",
        "stride": "stride{DHW}",
        "dilation": "dilation{DHW}",
        "dtypes": "aDtype bDtype cDtype biasDtype",
        "formats": "aFormat bFormat cFormat",
        "hf32": "hf32Flag",
        "bias": "biasFlag",
    },
    {
        "kernel": "kernel_{dhw}",
        "cin": "dedx_cin",
        "cout": "dedy_cout",
        "batch": "batch_n",
        "image": "dedx_{dhw}",
        "result": "dedy_{dhw}",
        "stride": "stride_{dhw}",
        "dilation": "dilation_{dhw}",
        "dtypes": "",
        "hf32": "hf32_flag",
        "bias": "",
        "formats": "filterFormat outBackpropFormat yFormat",
    },
    {
        "kernel": "k{dhw}",
        "cin": "ci",
        "cout": "co",
        "batch": "batch",
        "image": "{dhw}i",
        "result": "dout ho wo",
        "stride": "stride_{dhw}",
        "dilation": "dilation_{dhw}",
        "dtypes": "a_dtype b_dtype c_dtype",
        "hf32": "hf32Flag",
        "bias": "",
        "formats": "fmapFormat dedyFormat filterFormat",
    },
)
_AXES = "DHW"


def key_words(op_type: str, workload: Mapping[str, JsonValue], name_of: NameOf) -> str:
    """Return a key in words; empty for an operator whose fields nobody has described.

    >>> key = {"m": 32, "k": 4096, "n": 128, "a_dtype": 0, "b_dtype": 0, "out_dtype": 0}
    >>> flags = {"trans_b_flag": True, "m_align_flag": False, "k_align_flag": True}
    >>> key_words("MatMulV3", {**key, **flags}, lambda name, value: "FLOAT")
    'MatMulV3 32x4096 by 4096x128 FLOAT, B transposed, m not aligned'
    """
    told = _Telling(workload, name_of)
    if workload.keys() >= _MATRICES:
        words = [f"{op_type} {_matrices(told)}", *_matrix_flags(told)]
    else:
        names = next((names for names in _CONVOLUTIONS if _has(workload, names)), None)
        if names is None:
            return ""
        words = [f"{op_type} {_convolution(told, names)}", *_tensors(told, names)]
    return ", ".join([*words, *told.others()])


def member_words(workload: Mapping[str, JsonValue], name_of: NameOf) -> str:
    """Return the members that are neither 0 nor 1, and all data types."""
    types = {name: value for name, value in workload.items() if "dtype" in name.lower()}
    told = {**types, **dict(TellingMembers(workload).rest())}
    return " ".join(_named(name, told[name], name_of) for name in workload if name in told)


def _named(name: str, value: JsonValue, name_of: NameOf) -> str:
    meaning = name_of(name, value)
    return f"{member_text(name, value)}{f'({meaning})' if meaning else ''}"


class _Telling(TellingMembers):
    """Members of a key, with the names of their numbers."""

    def __init__(self, workload: Mapping[str, JsonValue], name_of: NameOf) -> None:
        super().__init__(workload)
        self._name_of = name_of

    def name(self, member: str) -> str:
        """Return the name of a member that is an enum, the number itself where it has none."""
        value = self.take(member)
        return "" if value is None else self._name_of(member, value) or value_text(value)

    def names(self, *members: str) -> list[str]:
        """Return the names of members, those that are there."""
        return [found for member in members if (found := self.name(member))]

    def others(self) -> Iterator[str]:
        """Yield the members no word was made of."""
        return (_named(name, value, self._name_of) for name, value in self.rest())


def _has(workload: Mapping[str, JsonValue], names: Mapping[str, str]) -> bool:
    wanted = [names["cin"], names["cout"], names["batch"], *_along(names["kernel"])[1:]]
    return all(name in workload for name in wanted)


def _along(pattern: str) -> list[str]:
    """Return the members a pattern means, one for each axis."""
    if "{" not in pattern:
        return pattern.split()
    return [pattern.format(DHW=axis, dhw=axis.lower()) for axis in _AXES]


def _matrices(told: _Telling) -> str:
    batches = [[told.take(f"batch_{side}{number}") for number in _MATRIX_BATCHES] for side in "ab"]
    left, right = ([one for one in batch if one not in (None, 1)] for batch in batches)
    m, k, n = (told.take(name) for name in ("m", "k", "n"))
    a, b, out = (told.name(f"{part}_dtype") for part in ("a", "b", "out"))
    dtypes = a if a == b == out else f"{a} by {b} -> {out}"
    return f"{joined([*left, m, k])} by {joined([*right, k, n])} {dtypes}"


def _matrix_flags(told: _Telling) -> Iterator[str]:
    for side in ("a", "b", "out"):
        if (layout := told.name(f"{side}_format")) not in ("", "ND"):
            yield f"{side.upper() if len(side) == 1 else 'result'} {layout}"
    for side in "ab":
        if told.take(f"trans_{side}_flag"):
            yield f"{side.upper()} transposed"
    # what is not aligned was rounded up: the record is one for all shapes up to this
    if ragged := [name for name in "mkn" if told.take(f"{name}_align_flag") is False]:
        yield f"{' and '.join(ragged)} not aligned"
    if told.take("bias_flag"):
        yield "bias"


def _convolution(told: _Telling, names: Mapping[str, str]) -> str:
    """Return the geometry: kernel, channels, groups, steps."""
    kernel = told.extents(*_along(names["kernel"]))
    cin, cout = (value_text(told.take(names[name])) for name in ("cin", "cout"))
    words = [kernel, f"{cin}->{cout}"]
    if (groups := told.take("groups")) not in (None, 1):
        words.append(f"in {value_text(groups)} groups")
    for name in ("stride", "dilation"):
        steps = [told.take(member) for member in _along(names[name])]
        if any(step not in (None, 1) for step in steps):
            words.append(f"{name} {joined([one for one in steps if one is not None])}")
    return " ".join(words)


def _tensors(told: _Telling, names: Mapping[str, str]) -> Iterator[str]:
    image, result = (told.extents(*_along(names[name])) for name in ("image", "result"))
    dtypes = dict.fromkeys(told.names(*names["dtypes"].split()))
    formats = dict.fromkeys(told.names(*names["formats"].split()))
    parts = [f"batch {value_text(told.take(names['batch']))} of {image} -> {result}"]
    yield " ".join([*parts, "/".join(dtypes), "/".join(formats)]).strip()
    if told.take(names["bias"]):
        yield "bias"
    if told.take(names["hf32"]):
        yield "hf32"
