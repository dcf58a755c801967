"""Every bank file format, and which one a file has."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

from aoebank.formats.aiter.format import AiterFormat
from aoebank.formats.aiter_triton.format import AiterTritonFormat
from aoebank.formats.akg.format import AkgFormat
from aoebank.formats.cube.format import CubeFormat
from aoebank.formats.flashinfer.format import FlashInferFormat
from aoebank.formats.gradient.format import GradientFormat
from aoebank.formats.graph.format import GraphFormat
from aoebank.formats.kernel_tuner.format import KernelTunerFormat
from aoebank.formats.metaschedule.format import MetaScheduleFormat
from aoebank.formats.names import BankName, plain_soc
from aoebank.formats.protocol import Format
from aoebank.formats.runtime_kb.format import RuntimeKbFormat
from aoebank.formats.t4.format import T4Format
from aoebank.formats.tunable_op.format import TunableOpFormat
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.formats.vector.format import VectorFormat
from aoebank.formats.vllm.format import VllmFormat

HEAD_BYTES = 4096
_SNIFFED_SUFFIX = ".json"

_UNIFIED = UnifiedFormat()

# asked in this order, the narrower names first
FORMATS: tuple[Format, ...] = (
    RuntimeKbFormat(),
    VectorFormat(),
    CubeFormat(),
    GradientFormat(),
    GraphFormat(),
    VllmFormat(),
    AiterTritonFormat(),
    AkgFormat(),
    FlashInferFormat(),
    MetaScheduleFormat(),
    TunableOpFormat(),
    KernelTunerFormat(),
    T4Format(),
    AiterFormat(),
    _UNIFIED,
)


def bank_globs(names: Collection[str] = ()) -> tuple[str, ...]:
    """Return the patterns that take in the name of every bank file, each once.

    Args:
        names: Only of these formats; all without any.
    """
    wanted = (known for known in FORMATS if not names or known.name in names)
    return tuple(dict.fromkeys(glob for known in wanted for glob in known.globs))


def bank_suffixes() -> tuple[str, ...]:
    """Return the ends of the names of bank files, each once."""
    return tuple(dict.fromkeys(Path(glob).suffix for glob in bank_globs()))


def bank_folders() -> tuple[str, ...]:
    """Return the folders that hold bank files below the one of a soc_version, each once."""
    return tuple(dict.fromkeys(known.folder for known in FORMATS if known.folder))


def get_format(name: str) -> Format:
    """Return the format of a name.

    Raises:
        ValueError: there is none.
    """
    for known in FORMATS:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in FORMATS)
    raise ValueError(f"format must be one of {names}, not {name!r}")


def target_word(names: Iterable[str]) -> str:
    """Return the word that formats of these names have for a target; CANN's if they differ."""
    words = {get_format(name).target_word for name in names}
    return words.pop() if len(words) == 1 else Format.target_word


def parse_name(path: Path) -> tuple[Format, BankName] | None:
    """Return the format that the name of a file says, and the target; None if it says none."""
    return _parse_name(FORMATS, path.name)


@lru_cache(maxsize=4096)
def _parse_name(formats: tuple[Format, ...], name: str) -> tuple[Format, BankName] | None:
    # a merge of a tree asks for the format of each name a dozen times
    for known in formats:
        parts = known.parse_name(name)
        if parts is not None:
            return known, parts
    return None


def find_format(path: Path, head: bytes | None = None) -> Format | None:
    """Return the format of a file by its name, else by its first bytes, else None."""
    named = parse_name(path)
    if named is not None:
        return named[0]
    if head is None:
        return None
    return next((known for known in FORMATS if known.recognizes_content(head)), None)


def find_loose_targets(names: Iterable[str]) -> frozenset[str]:
    """Return the soc_versions of bank files that are not in a folder of that name."""
    found = set()
    for path in map(Path, names):
        named = parse_name(path)
        if named is not None and named[0].is_of_one_target:
            continue  # such a tree has as many targets as it likes, and folders for none
        soc = plain_soc(named[1].soc_version or "") if named is not None else ""
        if soc and soc not in map(plain_soc, path.parts[:-1]):
            found.add(soc)
    return frozenset(found)


def may_be_bank(path: Path) -> bool:
    """True if a file under a name that tells nothing is to be looked into.

    Readers find files by their names. A bank under another name is one that was put aside, and
    looked for in JSON only: a tree may hold sources by the thousand.
    """
    return path.name.endswith(_SNIFFED_SUFFIX)


def format_of(path: Path, data: bytes = b"") -> Format:
    """Return the format of a file: by its name, else by its first bytes, else the unified one.

    Args:
        data: The file, or as much of its start as is at hand.
    """
    return find_format(path, data[:HEAD_BYTES]) or _UNIFIED
