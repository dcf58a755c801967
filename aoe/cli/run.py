"""`aoe run`: compute a tuned model's outputs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.options import InputFiles, JsonFlag, SeedOption, Threads, finish, given_inputs
from aoe.errors import OutputError

if TYPE_CHECKING:
    from aoe.report.answers import Output


def run(
    om: Annotated[Path, typer.Argument(help="Tuned model, an .om file.")],
    inputs: InputFiles = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Directory for the results, NAME.npy each.")
    ] = None,
    threads: Threads = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Run a tuned model once and say what came out."""
    import aoe
    from aoe.ort.inputs import ModelInputs
    from aoe.ort.sessions import run_session
    from aoe.report.answers import RunReport

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", aoe.FallbackWarning)
        model = aoe.load(om, threads=threads)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    given = ModelInputs(sets=given_inputs(inputs, None), seed=seed)
    results = run_session(model.session, given.first(model.session))
    names = [value.name for value in model.get_outputs()]
    if output is not None:
        _save(output, names, results)
    report = RunReport(
        om=om,
        kernels=len(model.manifest.kernels),
        outputs=tuple(map(_describe, names, results)),
        fallback_reason=model.fallback_reason,
        precision=model.manifest.precision,
    )
    finish(report, as_json=as_json)


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
