"""The converting process, under any Python with TensorFlow: `python converter.py REQUEST.json`.

It knows nothing of this package, because that Python need not have it. The answer is a JSON file:
`{}` if `model.onnx` was written, else `{"problem": ..., "hint": ...}`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_SILENT = ("Const", "Placeholder", "PlaceholderWithDefault", "NoOp", "Assert", "VarHandleOp")


def main() -> None:
    """Read the request, convert, write the answer."""
    request = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(request["folder"])
    answer = _answer(request, folder)
    (folder / "answer.json").write_text(json.dumps(answer))


def _answer(request: dict[str, Any], folder: Path) -> dict[str, str]:
    try:
        import tensorflow
        import tf2onnx  # noqa: F401
    except ImportError as error:
        return {"missing": str(error.name), "problem": f"cannot be imported: {error}"}
    try:
        return _convert(tensorflow, request, folder)
    except (
        Exception
    ) as error:  # the border of a process: what foreign code raises becomes an answer
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return {"problem": f"cannot be converted: {first[:400]}"}


def _convert(tensorflow: Any, request: dict[str, Any], folder: Path) -> dict[str, str]:
    path = Path(request["path"])
    if path.suffix in (".keras", ".h5", ".hdf5"):
        exported = folder / "exported"
        tensorflow.keras.models.load_model(path, compile=False).export(exported, verbose=False)
        path = exported
    if path.is_dir():
        return _run_tf2onnx("--saved-model", str(path), request, folder)
    names = _names_of_graph(tensorflow, path, request["outputs"])
    if isinstance(names, dict):
        return names
    inputs, outputs = names
    shapes = {
        _tensor(name): f"[{','.join(map(str, shape))}]" for name, shape in request["shapes"].items()
    }
    given = [name + shapes.get(name, "") for name in inputs]
    more = ("--inputs", ",".join(given), "--outputs", ",".join(outputs))
    return _run_tf2onnx("--graphdef", str(path), request, folder, *more)


def _names_of_graph(
    tensorflow: Any, path: Path, wanted: list[str]
) -> tuple[list[str], list[str]] | dict[str, str]:
    """Return the inputs and outputs of a frozen graph, or what is wrong with it."""
    definition = tensorflow.compat.v1.GraphDef()
    try:
        definition.ParseFromString(path.read_bytes())
    except Exception:  # protobuf's DecodeError, wherever this Python has it from
        return {"problem": "not a frozen graph (GraphDef), or a truncated one"}
    graph = tensorflow.Graph()
    with graph.as_default():
        tensorflow.import_graph_def(definition, name="")
    operations = graph.get_operations()
    if any(operation.type in ("VariableV2", "VarHandleOp") for operation in operations):
        return {
            "problem": "a graph with variables, so it is not frozen",
            "hint": "export a SavedModel, or freeze the graph",
        }
    inputs = [op.outputs[0].name for op in operations if op.type.startswith("Placeholder")]
    unread = [
        operation
        for operation in operations
        if operation.outputs
        and operation.type not in _SILENT
        and not any(tensor.consumers() for tensor in operation.outputs)
    ]
    outputs = [*map(_tensor, wanted)] or [t.name for op in unread for t in op.outputs]
    if not inputs or not outputs:
        return {"problem": "a graph without inputs or without results"}
    return inputs, outputs


def _run_tf2onnx(
    kind: str, path: str, request: dict[str, Any], folder: Path, *more: str
) -> dict[str, str]:
    from tf2onnx import convert

    output = str(folder / "model.onnx")
    sys.argv = ["tf2onnx", kind, path, "--opset", str(request["opset"]), "--output", output, *more]
    convert.main()
    return {}


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


if __name__ == "__main__":
    main()
