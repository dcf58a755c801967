"""`aoe run`: compute a tuned model's outputs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.options import JsonFlag, SeedOption, Threads, finish
from aoe.errors import OptionError, OutputError, RunError

if TYPE_CHECKING:
    import numpy as np

    from aoe.om.loading import OfflineModel
    from aoe.report.answers import Output


def run(
    om: Annotated[Path, typer.Argument(help="Tuned model, an .om file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="x.npy, NAME=x.npy or random (default); once for each input."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Directory for the results, NAME.npy each.")
    ] = None,
    threads: Threads = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Run a tuned model once and say what came out."""
    import aoe
    from aoe.ort.sessions import run_session
    from aoe.report.answers import RunReport

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", aoe.FallbackWarning)
        model = aoe.load(om, threads=threads)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    results = run_session(model.session, make_feed(model, inputs or ["random"], seed))
    names = [value.name for value in model.get_outputs()]
    if output is not None:
        _save(output, names, results)
    report = RunReport(
        om=om,
        kernels=len(model.manifest.kernels),
        outputs=tuple(map(_describe, names, results)),
        fallback_reason=model.fallback_reason,
    )
    finish(report, as_json=as_json)


def make_feed(model: OfflineModel, inputs: list[str], seed: int) -> dict[str, Any]:
    """Return the inputs a command line describes.

    Raises:
        OptionError: a name is unknown, or files do not match the inputs.
    """

    from aoe.ort.sessions import random_feed

    specs = model.get_inputs()
    if inputs == ["random"]:
        return random_feed(model.session, seed)
    names = [spec.name for spec in specs]
    feed: dict[str, np.ndarray[Any, Any]] = {}
    for position, text in enumerate(inputs):
        name, equals, file = text.partition("=")
        if not equals:
            name, file = names[position] if position < len(names) else "", text
        if name not in names:
            raise OptionError("--input", "the model has no such input", got=text, expected=names)
        feed[name] = _load(Path(file))
    missing = [name for name in names if name not in feed]
    if missing:
        raise OptionError("--input", "inputs without a value", got=missing, expected=names)
    for spec in specs:
        found = list(feed[spec.name].shape)
        if found != list(spec.shape):
            raise OptionError(
                f"--input {spec.name}",
                "the array has another shape",
                got=found,
                expected=spec.shape,
            )
    return feed


def _load(file: Path) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise RunError(str(file), f"not a NumPy array file: {error}") from error
    if not isinstance(array, np.ndarray):
        raise RunError(str(file), "holds several arrays", expected="an .npy file with one")
    return array


def _save(directory: Path, names: list[str], results: list[Any]) -> None:
    import numpy as np

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, result in zip(names, results, strict=True):
            np.save(directory / f"{name.replace('/', '_')}.npy", result)
    except OSError as error:
        raise OutputError(str(directory), f"cannot be written: {error}") from error


def _describe(name: str, result: Any) -> Output:
    import numpy as np

    from aoe.report.answers import Output

    array = np.asarray(result)
    first = array.reshape(-1)[:5] if array.dtype.kind in "fiub" else ()
    return Output(
        name=name,
        dtype=str(array.dtype),
        shape=array.shape,
        values=tuple(float(value) for value in first),
    )
