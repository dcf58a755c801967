"""Forms of a whole model that ONNX Runtime's offline optimiser for transformers makes.

It comes with onnxruntime (`onnxruntime.transformers`) and knows exporters of many kinds of
transformers; what it needs besides is not always installed. It rounds, and it may be wrong about a
model, so what it makes is compared and measured as any other alternative.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO

import onnx

from aoe.graph.weights import is_outside

MODEL_TYPES = ("bert", "gpt2", "vit", "swin", "bart", "clip", "conformer")
"""Kinds of models tried, without those made for graphics cards; source: `MODEL_TYPES` of
`onnxruntime.transformers.optimizer`."""
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerForm:
    """A model as it was made for one kind of transformers.

    Attributes:
        model_type: The kind, one of `MODEL_TYPES`.
        proto: The model; the same results but for rounding, if the kind is the right one.
        fused: How many operators of each type it has that the original has not.
    """

    model_type: str
    proto: onnx.ModelProto
    fused: dict[str, int]


def is_optimizer_installed() -> bool:
    """Return True if the optimiser can be loaded with what it needs."""
    try:
        import onnxruntime.transformers.optimizer  # noqa: F401
    except ImportError:
        return False
    return True


def transformer_forms(proto: onnx.ModelProto) -> Iterator[TransformerForm]:
    """Yield the different forms the optimiser makes of a model.

    None if the optimiser is not installed, or finds nothing, or the weights of the model lie
    outside, which it would read. `proto` stays as it is.
    """
    if is_outside(proto) or not is_optimizer_installed():
        return
    from onnxruntime.transformers.optimizer import optimize_model

    before = _operators(proto)
    seen: set[bytes] = set()
    for model_type in MODEL_TYPES:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        with _quiet():
            try:
                made = optimize_model(copy, model_type, opt_level=0).model
            except Exception:  # it raises what it likes where a model is of another kind
                continue
        after = _operators(made)
        fused = {name: count for name, count in after.items() if name not in before}
        written = made.SerializeToString(deterministic=True)
        if fused and written not in seen:
            seen.add(written)
            yield TransformerForm(model_type=model_type, proto=made, fused=fused)


def _operators(proto: onnx.ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in proto.graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the optimiser logs, and its progress bar, to ourselves."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)
