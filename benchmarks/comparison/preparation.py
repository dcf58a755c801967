"""Makes what every runtime gets: the ONNX file, its inputs, and its results in float64.

python -m comparison.preparation NETWORK FOLDER       # started by the suite
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from comparison.files import write_whole
from comparison.operations import multiply_adds
from comparison.prepared import FACTS, INPUTS, MODEL, REFERENCE, relative_error
from networks.building import build_module
from networks.network import Array, Network, sample_inputs
from networks.registry import NETWORKS
from torch import Tensor, nn

OPSET = 18
_SEED = 0


def recipe(name: str) -> str:
    """Return a digest of what the prepared files of a network follow from."""
    network = NETWORKS[name]
    folder = Path(__file__).resolve().parent.parent / "networks"
    own = network.builder.split(":")[0]
    digest = hashlib.sha256(f"{network!r} {OPSET} {torch.__version__} {onnx.__version__}".encode())
    for file in (f"{own}.py", "building.py", "layers.py", "network.py"):
        digest.update((folder / file).read_bytes())
    return digest.hexdigest()[:16]


def prepare(name: str, folder: Path) -> None:
    """Write everything of a network, unless the folder has it already."""
    facts_file = folder / FACTS
    known = json.loads(facts_file.read_text()) if facts_file.exists() else {}
    if known.get("recipe") == recipe(name):
        return
    folder.mkdir(parents=True, exist_ok=True)
    facts_file.unlink(missing_ok=True)
    network, module = NETWORKS[name], build_module(name)
    inputs = sample_inputs(network, seed=_SEED)
    _write_model(network, module, inputs, folder / MODEL)
    np.savez(folder / INPUTS, **inputs)
    single = run_module(module, inputs)
    exact = run_module(module.double(), inputs)
    np.savez(folder / REFERENCE, *exact)
    facts = {
        "recipe": recipe(name),
        **_model_facts(folder / MODEL),
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "largest_outputs": [float(np.abs(values).max()) for values in exact],
        "torch_error": max(map(relative_error, single, exact)),
    }
    write_whole(facts_file, json.dumps(facts, indent=1))


def run_module(module: nn.Module, inputs: dict[str, Array]) -> list[Array]:
    """Return the results of a module in the precision of its weights."""
    weights = (*module.parameters(), *module.buffers())
    dtype = next(weight.dtype for weight in weights if weight.is_floating_point())
    tensors = [torch.from_numpy(values) for values in inputs.values()]
    floats = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
    with torch.inference_mode():
        results = module(*floats)
    return [result.numpy() for result in ((results,) if isinstance(results, Tensor) else results)]


def export(
    module: nn.Module, inputs: dict[str, Array], dynamic_shapes: Any = None
) -> onnx.ModelProto:
    """Return a module as an ONNX model with static shapes, but for those that are named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(torch.from_numpy(values) for values in inputs.values()),
            input_names=list(inputs),
            dynamic_shapes=dynamic_shapes,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _forget_origins(model)
    return model


def _write_model(network: Network, module: nn.Module, inputs: dict[str, Array], file: Path) -> None:
    if network.is_shipped:
        from networks.shipped import shipped_model

        model = shipped_model(network.builder.split(":")[1])
    else:
        model = export(module, inputs)
    onnx.checker.check_model(model)
    onnx.save(model, file)


def _forget_origins(model: onnx.ModelProto) -> None:
    """Drop the exporter's notes on source lines: they hold paths and make equal models differ."""
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del part.metadata_props[:]
    for node in model.graph.node:
        node.ClearField("doc_string")


def _model_facts(file: Path) -> dict[str, Any]:
    model = onnx.shape_inference.infer_shapes(onnx.load(file), data_prop=True)
    operators = Counter(node.op_type for node in model.graph.node)
    return {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bytes": file.stat().st_size,
        "nodes": len(model.graph.node),
        "operators": dict(operators.most_common()),
        "multiply_adds": multiply_adds(model),
    }


if __name__ == "__main__":
    os.dup2(2, 1)
    prepare(sys.argv[1], Path(sys.argv[2]))
