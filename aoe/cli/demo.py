"""`aoe demo`: tune a real network that ships with the onnx package.

The package ships AlexNet's layers with one constant for every weight, so each class would get the
same score and a wrong kernel would go unseen. The demo draws the weights from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.errors import ModelNotFoundError
from aoe.runs.configuration.option import Option
from aoe.settings import environment, with_bank

if TYPE_CHECKING:
    import onnx

_MODEL = ("backend", "test", "data", "light", "light_bvlc_alexnet.onnx")
_SEED = 0
_BIAS_SCALE = 0.1


def demo(
    context: typer.Context,
    *,
    output: Annotated[Path, Option(help="Directory for everything the demo writes.")] = Path(
        "aoe_demo"
    ),
    quiet: bool,
    as_json: bool,
) -> int:
    """Tune AlexNet for this CPU and show the bank that comes of it (under two minutes)."""
    from aoe.cli.tune_command import run_tuning
    from aoe.runs.configuration.resolving import configure, settings_of

    bank = _own_bank(output)
    model = _write_model(output)
    found = configure({}, env=bank, cwd=Path.cwd())
    settings = settings_of(model, {"output": output}, found)
    if not as_json:
        typer.echo(
            f"tuning AlexNet, with weights drawn from seed {_SEED}, for this CPU "
            f"into {output.resolve()}"
        )
    result = run_tuning(
        settings, as_json=as_json, shown=not quiet, env=bank, engine=engine_of(context)
    )
    if as_json:
        return 0
    typer.echo("\nthe bank it wrote (aoebank ls):")
    _list_bank(result.bank)
    typer.echo("\nnext:")
    typer.echo(f"  aoe run {result.om_file} --input random")
    typer.echo(f"  aoe benchmark {result.om_file} --vs {model.resolve()}")
    typer.echo(f"  aoebank show {_first_record(result.bank)} {result.bank}")
    return 0


def shipped_model() -> Path:
    """Return AlexNet's path inside the installed onnx package.

    Raises:
        ModelNotFoundError: this onnx release no longer ships it.
    """
    import onnx

    path = Path(onnx.__file__).parent.joinpath(*_MODEL)
    if not path.exists():
        raise ModelNotFoundError(str(path), "the onnx package no longer ships this model")
    return path


def with_drawn_weights(shipped: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network of convolutions and Gemms with normal weights drawn from a fixed seed.

    Weights have a variance of 2 / fan-in, which keeps activations behind each Relu at the size of
    the image's values; those of the last layer have 1 / fan-in, so that no class takes all of the
    softmax. The parameter keeps its constants.

    Args:
        shipped: Model whose float32 weights are ConstantOfShape nodes.

    Source: He et al., Delving Deep into Rectifiers, 2015, equation 10.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    from aoe.entry.onnx_file import make_initializers_constant

    model = onnx.ModelProto()
    model.CopyFrom(shipped)
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    constants = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    last = [node for node in graph.node if node.op_type == "Gemm"][-1].input[1]
    rng = np.random.default_rng(_SEED)
    for node in constants:
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        gain = 1 if node.output[0] == last else 2
        scale = math.sqrt(gain / math.prod(shape[1:])) if len(shape) > 1 else _BIAS_SCALE
        values = rng.standard_normal(shape, np.float32) * np.float32(scale)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    for unread in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(unread)  # shapes of the constants
        for value in [value for value in graph.input if value.name == unread.name]:
            graph.input.remove(value)  # files of IR 3 name their constants in both
    make_initializers_constant(model)
    return model


def _write_model(output: Path) -> Path:
    """Write AlexNet with drawn weights (244 MB) below the demo's directory and return its path."""
    import onnx

    from aoe.errors import OutputError
    from aoe.folders.whole_files import replaced

    file = output / "alexnet.onnx"
    model = with_drawn_weights(onnx.load(shipped_model()))
    try:
        output.mkdir(parents=True, exist_ok=True)
        with replaced(file) as sink:
            sink.write(model.SerializeToString())
    except OSError as error:
        raise OutputError(
            str(file), "the demo's model cannot be written", got=str(error)
        ) from error
    return file


def _own_bank(output: Path) -> Mapping[str, str]:
    """Return the environment with the demo's own bank, unless the user has named one."""
    env = environment()
    is_named = env.get("TUNE_BANK_PATH") or env.get("ASCEND_CACHE_PATH")
    return env if is_named else with_bank(env, output / "bank")


def _list_bank(root: Path) -> None:
    from aoebank import Bank, plural

    bank = Bank(root)
    for file in bank.iter_files():
        count = sum(1 for _ in bank.iter_records(file))
        typer.echo(f"  {file.relative_to(root)}: {plural(count, 'record')}")


def _first_record(root: Path) -> str:
    from aoebank import Bank

    bank = Bank(root)
    for file in bank.iter_files():
        for record in bank.iter_records(file):
            return record.key[:8]
    return "KEY"
