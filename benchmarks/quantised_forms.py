"""Times the form a quantised model is tuned in beside the one its quantiser has written.

    taskset -c 1 python benchmarks/quantised_forms.py MODEL.onnx ... [--operators]

Float models are quantised by `onnxruntime.quantization.quantize_static` with its defaults, which
write int8 activations; with `--operators`, in quantised operators (QOperator). Both forms run in
pairs on the same made-up input, one thread, in alternating order. A line is the median of the times
and of the ratios with its interval, the values that differ with optimisations off, and the largest
difference of each optimised form from the unoptimised model, relative to its largest output.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from aoe.device.registry import default_device
from aoe.measurement import PairedSamples
from aoe.measurement.estimates import estimate_speedup
from aoe.ort.inputs import ModelInputs
from aoe.ort.sessions import session_options
from aoe.runs.written_form import other_form

Feed = dict[str, np.ndarray[Any, Any]]
_PAIRS, _WARM_UP = 40, 3
_SETS = 4
"""Of made-up inputs the ranges of codes are taken from."""


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    """Made-up inputs of a model."""

    def __init__(self, file: Path) -> None:
        session = _session(onnx.load(str(file)))
        self._left = iter([ModelInputs(seed=seed).first(session) for seed in range(_SETS)])

    def get_next(self) -> Feed | None:
        """Return the next inputs, None behind the last ones."""
        return next(self._left, None)


def quantized(file: Path, *, operators: bool) -> onnx.ModelProto:
    """Return a float model as the quantiser writes it."""
    logging.disable(logging.WARNING)  # it asks for its preprocessing
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "quantised.onnx"
        form = QuantFormat.QOperator if operators else QuantFormat.QDQ
        int8 = QuantType.QInt8
        quantize_static(
            str(file), str(made), Calibration(file), quant_format=form, activation_type=int8
        )
        return onnx.load(str(made))


def _session(model: onnx.ModelProto, *, optimize: bool = True) -> ort.InferenceSession:
    options = session_options(threads=1, optimize=optimize)
    return default_device().open_session(model.SerializeToString(), options)


def _pairs(before: ort.InferenceSession, after: ort.InferenceSession, feed: Feed) -> PairedSamples:
    """Return the times of two sessions, in pairs of alternating order."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(_WARM_UP + _PAIRS):
        for is_after in (bool(number % 2), not number % 2):
            began = time.perf_counter()
            (after if is_after else before).run(None, feed)
            times[is_after].append((time.perf_counter() - began) * 1e6)
    return PairedSamples(tuple(times[False][_WARM_UP:]), tuple(times[True][_WARM_UP:]))


def _lines(model: onnx.ModelProto) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        form = other_form(model, default_device(), Path(folder), threads=1)
    if form is None or form.proto is None:
        yield "no other form"
        return
    before, after = _session(model), _session(form.proto)
    feed = ModelInputs().first(before)
    found = _pairs(before, after, feed)
    gain = estimate_speedup(found)
    yield (
        f"{np.median(found.baseline_us) / 1e3:.1f} ms -> {np.median(found.tuned_us) / 1e3:.1f} ms, "
        f"{gain.median:.2f}x ({gain.low:.2f} to {gain.high:.2f}); {form.what}"
    )
    exact, same, *others = (
        one.run(None, feed)
        for one in (
            _session(model, optimize=False),
            _session(form.proto, optimize=False),
            before,
            after,
        )
    )
    differing = sum(int(np.count_nonzero(a != b)) for a, b in zip(exact, same, strict=True))
    largest = max(float(np.abs(values).max()) for values in exact)
    errors = [
        max(float(np.abs(a - b).max()) for a, b in zip(exact, one, strict=True)) / largest
        for one in others
    ]
    yield (
        f"  {differing} of {sum(values.size for values in exact)} differ unoptimised; optimised "
        f"forms are off by {errors[0]:.2%} as written, {errors[1]:.2%} in the other form"
    )


def main() -> int:
    """Quantise and measure models."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, help="float models")
    parser.add_argument("--operators", action="store_true", help="quantise to QOperator")
    arguments = parser.parse_args()
    for file in arguments.models:
        for line in _lines(quantized(file, operators=arguments.operators)):
            print(f"{file.stem}: {line}" if not line.startswith(" ") else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
