"""Entries by AOE's `--framework` number."""

from __future__ import annotations

from aoe.entry.caffe.files import CAFFE
from aoe.entry.onnx_file import ONNX
from aoe.entry.protocol import Entry, ModelSource
from aoe.entry.tensorflow.model_files import TENSORFLOW
from aoe.entry.torch_dump import TORCH_DUMP
from aoe.entry.tuned_model import SUFFIX as TUNED_SUFFIX
from aoe.entry.tuned_model import TUNED_MODEL
from aoe.errors import OptionError

ENTRIES: dict[int | None, Entry] = {
    0: CAFFE,
    3: TENSORFLOW,
    5: ONNX,
    None: TORCH_DUMP,
}
"""`None` is what AOE has no number for: a directory, which says itself what it is."""

_FRAMEWORKS = {1: "MindSpore"}  # Source: AOE, --framework


def find_entry(framework: int | None, source: ModelSource) -> Entry:
    """Return the entry for a framework number, None for what says itself what it is.

    That is a directory (`--model_path`), or a tuned model (`--om`).

    Raises:
        OptionError: the number is unknown, no entry reads that framework, or its entry has no
            use for a part of `source`.
    """
    is_tuned = source.path.suffix == TUNED_SUFFIX
    if is_tuned and framework is not None:
        raise OptionError(
            "--model",
            "a tuned model",
            got=source.path,
            hint=f"--om={source.path} tunes the model in it again",
        )
    entry = TUNED_MODEL if is_tuned else ENTRIES.get(framework)
    if entry is None:
        raise _unreadable(framework)
    if source.weight is not None and not entry.takes_weight:
        raise OptionError("--weight", "only Caffe models have a weight file", got=source.weight)
    if source.output_nodes and not entry.takes_output_nodes:
        raise OptionError(
            "--out_nodes",
            f"the outputs of {entry.framework} are those it names itself",
            got=", ".join(source.output_nodes),
        )
    return entry


def _unreadable(framework: int | None) -> OptionError:
    known = ", ".join(
        f"{number} ({entry.framework})" for number, entry in ENTRIES.items() if number is not None
    )
    if framework in _FRAMEWORKS:
        return OptionError(
            "--framework",
            f"{_FRAMEWORKS[framework]} models cannot be read",
            got=framework,
            expected=known,
            hint="export the model to ONNX and give --framework=5",
        )
    return OptionError("--framework", "unknown framework", got=framework, expected=known)
