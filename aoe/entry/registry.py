"""Entries by AOE's `--framework` number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from aoe.entry.imported_model import ImportedModel
from aoe.entry.onnx_file import load_onnx
from aoe.entry.torch_dump import load_torch_dump
from aoe.errors import UsageError

Entry = Callable[[Path, Mapping[str, tuple[int, ...]]], ImportedModel]

TORCH_DUMP = 100
"""What `--model_path` names; AOE has no number for it."""

ENTRIES: dict[int, Entry] = {
    5: load_onnx,
    TORCH_DUMP: load_torch_dump,
}
_NAMES = {0: "Caffe", 1: "MindSpore", 3: "TensorFlow", 5: "ONNX"} | {  # Source: AOE, --framework
    TORCH_DUMP: "a dump of PyTorch, --model_path"
}


def find_entry(framework: int) -> Entry:
    """Return the entry for a framework number.

    Raises:
        UsageError: the number is unknown, or no entry reads that framework.
    """
    if framework in ENTRIES:
        return ENTRIES[framework]
    known = ", ".join(f"{number} ({_NAMES[number]})" for number in ENTRIES)
    if framework in _NAMES:
        raise UsageError(
            "--framework",
            f"{_NAMES[framework]} models cannot be read",
            got=framework,
            expected=known,
            hint="export the model to ONNX and give --framework=5",
        )
    raise UsageError("--framework", "unknown framework", got=framework, expected=known)
