"""Writes a prepared network in a smaller type, as the quantisers people use write it.

python -m comparison.quantising NETWORK FOLDER       # FOLDER is the network's own and a form

Calibration data are seeded values drawn like the measured inputs, not data of a task: the range
of each input is among the facts, and an accuracy is that of rounding alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import onnx
import onnxruntime
from comparison.files import write_whole
from comparison.prepared import FACTS, INPUTS, MODEL, REFERENCE
from networks.network import CALIBRATION_SEEDS, Array, sample_inputs
from networks.registry import NETWORKS
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

Feeds = Sequence[Mapping[str, Array]]
Writer = Callable[[Path, Path, Feeds], None]
"""Writes a model: float32 file, new file, calibration data."""


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Calibration data, set by set."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Mapping[str, Array] | None:
        """Return the next set, None behind the last one."""
        return next(self._feeds, None)


def _static(activations: QuantType, layout: QuantFormat = QuantFormat.QDQ) -> Writer:
    """Return `quantize_static` with its defaults but for these types, weights per channel."""

    def write(source: Path, target: Path, feeds: Feeds) -> None:
        prepared = target.with_name("prepared.onnx")
        # symbolic shapes need sympy, and shapes are static here
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            _Reader(feeds),
            quant_format=layout,
            activation_type=activations,
            per_channel=True,
        )
        prepared.unlink()

    return write


def _dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    quantize_dynamic(source, target)


def _float16(source: Path, target: Path, feeds: Feeds) -> None:
    """Keep float32 inputs and outputs: every runtime gets the same bytes."""
    model = OnnxModel(convert_float_to_float16(onnx.load(source), keep_io_types=True))
    model.topological_sort()  # the casts of inputs are written last
    onnx.save(model.model, target)


def _nncf(source: Path, target: Path, feeds: Feeds) -> None:
    import nncf

    onnx.save(nncf.quantize(onnx.load(source), nncf.Dataset(list(feeds))), target)


FORMS: Mapping[str, Writer] = MappingProxyType(
    {
        "s8": _static(QuantType.QInt8),
        "u8": _static(QuantType.QUInt8),
        "qoperator": _static(QuantType.QInt8, QuantFormat.QOperator),
        "dynamic": _dynamic,
        "float16": _float16,
        "nncf": _nncf,
    }
)


def write_form(name: str, folder: Path) -> None:
    """Write a network in the form that the folder is called, unless the folder has it already."""
    network, form = folder.parent, folder.name
    facts = json.loads((network / FACTS).read_text())
    recipe = hashlib.sha256(
        f"{facts['sha256']} {form} {onnxruntime.__version__}".encode() + Path(__file__).read_bytes()
    ).hexdigest()[:16]
    facts_file = folder / FACTS
    if facts_file.exists() and json.loads(facts_file.read_text()).get("recipe") == recipe:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    feeds = [sample_inputs(NETWORKS[name], seed=seed) for seed in CALIBRATION_SEEDS]
    FORMS[form](network / MODEL, folder / MODEL, feeds)
    for file in (INPUTS, REFERENCE):
        os.link(network / file, folder / file)
    model = (folder / MODEL).read_bytes()
    facts |= {
        "recipe": recipe,
        "sha256": hashlib.sha256(model).hexdigest(),
        "bytes": len(model),
        "calibration": {
            one: [float(min(x[one].min() for x in feeds)), float(max(x[one].max() for x in feeds))]
            for one in feeds[0]
        },
    }
    facts.pop("operators")
    facts.pop("nodes")
    write_whole(facts_file, json.dumps(facts, indent=1))


if __name__ == "__main__":
    os.dup2(2, 1)
    write_form(sys.argv[1], Path(sys.argv[2]))
