"""Every bank file format, and which one a file has."""

from __future__ import annotations

from pathlib import Path

from aoebank.formats.cube.format import CubeFormat
from aoebank.formats.gradient.format import GradientFormat
from aoebank.formats.graph.format import GraphFormat
from aoebank.formats.protocol import Format
from aoebank.formats.runtime_kb.format import RuntimeKbFormat
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.formats.vector.format import VectorFormat
from aoebank.model.record import FormatName

HEAD_BYTES = 4096

# asked in this order, the narrower names first
FORMATS: dict[FormatName, Format] = {
    FormatName.RUNTIME_KB: RuntimeKbFormat(),
    FormatName.VECTOR: VectorFormat(),
    FormatName.CUBE: CubeFormat(),
    FormatName.GRADIENT: GradientFormat(),
    FormatName.GRAPH: GraphFormat(),
    FormatName.UNIFIED: UnifiedFormat(),
}


def find_format(path: Path, head: bytes | None = None) -> Format | None:
    """Return the format of a file by its name, else by its first bytes, else None."""
    for format_ in FORMATS.values():
        if format_.recognizes_name(path.name):
            return format_
    if head is None:
        return None
    return next((each for each in FORMATS.values() if each.recognizes_content(head)), None)
