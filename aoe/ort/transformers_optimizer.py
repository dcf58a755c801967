"""ONNX Runtime's offline optimiser for transformers, as one more source of equal graphs.

It comes with onnxruntime (`onnxruntime.transformers`), written in Python. It is given the shapes
the engine has proven and infers none itself, for which it would need SymPy.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from threading import Lock

import onnx

from aoe.graph.protos import copied
from aoe.graph.rewrites.offline import offline_rule

MODEL_TYPES = ("bert", "gpt2", "bart", "clip", "conformer")
"""Kinds of transformers that are tried, of `MODEL_TYPES` in `onnxruntime.transformers.optimizer`:
`vit` and `swin` are `bert` with another mask, the others are for graphics cards."""
_ONE_AT_A_TIME = Lock()
"""Workers are searched by threads, and what keeps the optimiser quiet is the whole process's."""


class TransformersOptimizer:
    """Fuses operators of transformers, see `OfflineOptimizer`."""

    def why_unavailable(self) -> str:
        """Return the reason why the optimizer cannot be loaded; empty if it can."""
        try:
            with _quiet():
                import onnxruntime.transformers.fusion_options
                import onnxruntime.transformers.optimizer  # noqa: F401
        except Exception as error:  # files of other people that are called as its own are loaded
            return f"onnxruntime.transformers cannot be loaded: {error}"
        return ""

    def fused(self, proto: onnx.ModelProto, *, heads: int, width: int) -> Iterator[onnx.ModelProto]:
        """Yield the fused model, once for each of `MODEL_TYPES`; `proto` stays as it is.

        Args:
            proto: With types and shapes of its tensors, as far as they are known.
            heads: Of its attention, 0 if that is not known.
            width: Numbers of all heads together, 0 if that is not known.
        """
        for model_type in MODEL_TYPES:
            made = _fused(proto, model_type, heads, width)
            if made is not None:
                yield made


def _fused(
    proto: onnx.ModelProto, model_type: str, heads: int, width: int
) -> onnx.ModelProto | None:
    """Return the copy the optimiser has fused, None where it gives up."""
    copy = copied(proto)
    with _quiet():
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_by_fusion

        try:
            options = FusionOptions(model_type)
            options.enable_shape_inference = False
            options.enable_bias_skip_layer_norm = False  # which would take attention with it
            options.use_raw_attention_mask(True)  # else it counts on a mask that ends with zeros
            made: onnx.ModelProto = optimize_by_fusion(
                copy, model_type, heads, width, options
            ).model
        except Exception:  # it raises what it likes where a model is of another kind
            return None
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the optimiser logs, prints and warns of to ourselves."""
    with _ONE_AT_A_TIME, warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


OFFLINE_RULE = offline_rule(TransformersOptimizer())
