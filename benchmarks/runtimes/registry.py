"""The runtimes of the suite. One more is a file in this folder and a line here."""

from __future__ import annotations

from dataclasses import replace

from runtimes.runtime import Peer

BASELINE = "ort"

_ORT = Peer(title="ONNX Runtime", module="onnx_runtime", needs=("onnxruntime", "onnxruntime"))
_ENGINE = Peer(title="engine", module="engine", needs=("aoe", "aoebank[engine]"), has_budget=True)
_OPENVINO = ("openvino", "openvino")

PEERS: dict[str, Peer] = {
    BASELINE: _ORT,
    "ort-again": replace(_ORT, title="ONNX Runtime again"),
    "engine": _ENGINE,
    "openvino-f32": Peer(
        title="OpenVINO fp32",
        module="openvino",
        needs=_OPENVINO,
        options={"precision": "f32"},
    ),
    "openvino": Peer(title="OpenVINO default", module="openvino", needs=_OPENVINO, precision="any"),
    "torch-compile": Peer(title="torch.compile", module="torch_compile", needs=("torch", "torch")),
}


def with_precision(mode: str) -> tuple[str, Peer]:
    """Return the engine's further row: its name and the same engine with `--precision_mode`."""
    options = {"precision_mode": mode}
    return f"engine-{mode}", replace(
        _ENGINE, title=f"engine {mode}", precision=mode, options=options
    )
