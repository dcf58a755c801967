"""`aoe run`: compute a tuned model's outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aoe.cli.options import given_inputs
from aoe.errors import OutputError
from aoe.runs.configuration.option import Option
from aoebank import say

if TYPE_CHECKING:
    import numpy as np

    from aoe.report.answers import Output
    from aoebank import Report

    Array = np.ndarray[Any, Any]


def run(
    om: Annotated[Path, Option(is_argument=True, help="Tuned model, an .om file.")],
    *,
    input_files: list[str] | None,
    output: Annotated[Path | None, Option(help="Directory for the results, NAME.npy each.")] = None,
    custom_ops_library: list[Path] | None,
    require_signature: Path | None,
    threads: Annotated[
        int | None, Option(least=1, help="Threads; default is what the model was tuned for.")
    ] = None,
    seed: int,
) -> Report:
    """Run a tuned model once and say what came out."""
    import aoe
    from aoe.ort.inputs import ModelInputs
    from aoe.ort.sessions import run_session
    from aoe.report.answers import RunReport

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _say  # at once: some are about what is run next
        model = aoe.load(
            om,
            threads=threads,
            custom_ops_library=custom_ops_library or (),
            trusted_keys=require_signature,
        )
        given = ModelInputs(sets=given_inputs(input_files, None), seed=seed)
        feed = given.first(model.session if given.sets else model.example_session)
        session = model.session_for({name: array.shape for name, array in feed.items()})
    results = run_session(session, feed)
    names = [value.name for value in model.get_outputs()]
    arrays = [pair for named in zip(names, results, strict=True) for pair in _arrays(*named)]
    if output is not None:
        _save(output, arrays)
    return RunReport(
        om=om,
        kernels=model.manifest.kernel_count,
        outputs=tuple(_describe(name, array) for name, array in arrays),
        fallback_reason=model.fallback_reason,
        precision=model.manifest.precision,
    )


def _say(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {message}")


def _arrays(name: str, result: Any) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of a result: those of a sequence as `name[0]`, of a map as `name[key]`.

    Text is of dtype str; an optional result that is not there has no array.
    """
    import numpy as np

    if isinstance(result, list):
        result = dict(enumerate(result))
    if isinstance(result, dict):
        for key, item in result.items():
            yield from _arrays(f"{name}[{key}]", item)
    elif result is not None:
        array = np.asarray(result)
        yield name, array.astype(str) if array.dtype == object else array


def _save(directory: Path, arrays: Sequence[tuple[str, Array]]) -> None:
    import numpy as np

    files: dict[str, Array] = {}
    for name, array in arrays:
        stem = plain = name.replace("/", "_")
        while stem in files:  # of a/b and a_b the second one, not in the place of the first
            stem += "_"
        files[stem] = array
        if stem != plain:
            say(f"{name} is in {stem}.npy: another result has the name of its file")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for stem, array in files.items():
            np.save(directory / f"{stem}.npy", array)
    except (OSError, ValueError) as error:  # a name no file can have
        raise OutputError(str(directory), f"cannot be written: {error}") from error


def _describe(name: str, array: Array) -> Output:
    from aoe.report.answers import Output

    first = array.reshape(-1)[:5].tolist() if array.dtype.kind in "fiub" else ()
    return Output(
        name=name,
        dtype=str(array.dtype),
        shape=array.shape,
        values=tuple(first),
    )
