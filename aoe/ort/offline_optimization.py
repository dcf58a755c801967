"""ONNX Runtime's own graph optimisation, done ahead of time and written down."""

from __future__ import annotations

from pathlib import Path

import onnx

from aoe.graph.canonical_form import make_canonical
from aoe.ort.group_normalization import spell_out_groups
from aoe.ort.sessions import OpenSession, session_options


def optimize_offline(
    proto: onnx.ModelProto, file: Path, open_session: OpenSession, *, threads: int
) -> onnx.ModelProto:
    """Return the graph ONNX Runtime really runs, blocked layouts included.

    But for group normalisations, which are spelled out in front of it (`group_normalization.py`).

    Args:
        proto: A model with static input shapes.
        file: Where ONNX Runtime writes the optimised model; in a directory of the caller's.
        open_session: Loads a model on the device it is optimised for.
        threads: Intra-op threads of the session.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    options = session_options(threads=threads, optimize=True)
    options.optimized_model_filepath = str(file)
    spelled = spell_out_groups(proto)
    open_session(spelled.SerializeToString(), options)
    optimized = onnx.load(str(file))
    make_canonical(optimized, spelled)
    return optimized
