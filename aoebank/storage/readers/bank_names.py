"""File names the readers look for, and the soc_versions they take for related.

Source: names of the files CANN 8.1.RC1 and ops-nn 9.0 install; its Python readers.
"""

from __future__ import annotations

import re

from aoebank.model.file_name import RUNTIME_SUFFIX, UNIFIED_SUFFIX, find_bank_file_name
from aoebank.model.resolution import Query

# soc_version -> those whose banks the static readers go on to, in order. Only the ones that
# are known for certain; a reader may know more.
SOC_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "Ascend310B2": ("Ascend310B1",),
    "Ascend310B3": ("Ascend310B1",),
    "Ascend310B4": ("Ascend310B1",),
    "Ascend910B1": ("Ascend910B2",),
    "Ascend910B2": ("Ascend910B1",),
    "Ascend910B2C": ("Ascend910B2", "Ascend910B1"),
    "Ascend910B3": ("Ascend910B4", "Ascend910B5"),
    "Ascend910_9391": ("Ascend910B1", "Ascend910B2"),
}

# start of the soc_version -> folder of the built-in cube and vector banks, first match counts
_SHORT_SOCS = (
    ("Ascend910B", "Ascend910B"),
    ("Ascend910_93", "Ascend910B"),
    ("Ascend910", "ascend910"),
    ("Ascend310P", "Ascend310P"),
)

_CUBE = re.compile(
    r"(?:AIC_(?P<core>\d+)_L1_SIZE_\d+(?:_L2_FUSION)?_)?repository_(?P<rest>.+)\.json"
)
_VECTOR = re.compile(
    r"(?:dynamic_|static_)?(?P<soc>.+)_(?:AiCore|VectorCore)_(?P<core>\d+)_v\d+(?:_\d+)*\.json"
)
_GRAPH = re.compile(r"(?P<soc>.+)_(?:l2cache|l2fusion|l1fusion)\.json")
_GRADIENT_SUFFIX = "_gradient_fusion.json"


def short_soc(soc_version: str) -> str:
    """Return the folder the built-in cube and vector banks of a soc_version are in.

    >>> short_soc("Ascend910_9391")
    'Ascend910B'
    """
    shorts = (short for start, short in _SHORT_SOCS if soc_version.startswith(start))
    return next(shorts, soc_version)


def graph_soc(soc_version: str) -> str:
    """Return a soc_version as the names of subgraph banks spell it.

    >>> graph_soc("Ascend910B4-1")
    'ascend910b4_1'
    """
    return soc_version.lower().replace("-", "_")


def matches_unified(name: str, query: Query) -> bool:
    """Return whether a static operator bank has this name."""
    return _matches_operator_file(name, query, UNIFIED_SUFFIX)


def matches_runtime(name: str, query: Query) -> bool:
    """Return whether a runtime bank has this name; the C++ reader knows only AiCore."""
    return _matches_operator_file(name, query, RUNTIME_SUFFIX) and "_AiCore_" in name


def matches_cube(name: str, query: Query) -> bool:
    """Return whether a cube bank has this name; old names hold no core number."""
    found = _CUBE.fullmatch(name)
    if found is None:
        return False
    soc = (query.soc_version or "").lower()
    return (
        found["rest"].lower().startswith(f"{soc}_" if soc else "")
        and (query.op_type is None or found["rest"].endswith(f"_{query.op_type}"))
        and (found["core"] is None or query.core_num in (None, int(found["core"])))
    )


def matches_vector(name: str, query: Query) -> bool:
    """Return whether a vector bank has this name; one file holds all operators."""
    found = _VECTOR.fullmatch(name)
    return found is not None and (
        query.soc_version in (None, found["soc"]) and query.core_num in (None, int(found["core"]))
    )


def matches_graph(name: str, query: Query) -> bool:
    """Return whether a subgraph bank has this name."""
    found = _GRAPH.fullmatch(name)
    soc = query.soc_version
    return found is not None and (soc is None or found["soc"] == graph_soc(soc))


def matches_gradient(name: str, query: Query) -> bool:
    """Return whether a gradient bank has this name."""
    start = name.removesuffix(_GRADIENT_SUFFIX)
    return start not in ("", name) and query.soc_version in (None, start)


def unified_name(query: Query) -> str:
    """Return the name of a static operator bank."""
    return f"{_operator_start(query)}{UNIFIED_SUFFIX}"


def runtime_name(query: Query) -> str:
    """Return the name of a runtime bank."""
    return f"{_operator_start(query)}{RUNTIME_SUFFIX}"


def cube_name(query: Query) -> str:
    """Return the newer name of a cube bank."""
    core, soc, op = _parts(query)
    return f"AIC_{core}_L1_SIZE_<KiB>_repository_{soc}_{op}.json"


def vector_name(query: Query) -> str:
    """Return the name of a vector bank."""
    core, soc, _ = _parts(query)
    return f"{soc}_AiCore_{core}_v001_<time>.json"


def graph_name(query: Query) -> str:
    """Return the name of a built-in subgraph bank; names of custom ones are not known."""
    soc = "<soc_version>" if query.soc_version is None else graph_soc(query.soc_version)
    return f"{soc}_l2cache.json"


def gradient_name(query: Query) -> str:
    """Return the name of a gradient bank."""
    return f"{_parts(query)[1]}{_GRADIENT_SUFFIX}"


def _matches_operator_file(name: str, query: Query, suffix: str) -> bool:
    parts = find_bank_file_name(name)
    return parts is not None and (
        parts.suffix == suffix
        and query.soc_version in (None, parts.soc_version)
        and query.core_num in (None, parts.core_num)
        and query.op_type in (None, parts.op_type)
    )


def _operator_start(query: Query) -> str:
    core, soc, op = _parts(query)
    return f"{soc}_{core}_AiCore_{op}"


def _parts(query: Query) -> tuple[str, str, str]:
    core = "<core_num>" if query.core_num is None else str(query.core_num)
    return core, query.soc_version or "<soc_version>", query.op_type or "<op_type>"
