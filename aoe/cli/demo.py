"""`aoe demo`: tune a real network that ships with the onnx package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import JsonFlag, QuietFlag
from aoe.errors import ModelNotFoundError
from aoe.settings import environment, with_bank
from aoe.tuning.mode import TuneSettings

_MODEL = ("backend", "test", "data", "light", "light_bvlc_alexnet.onnx")


def command(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", help="Directory for everything the demo writes.")
    ] = Path("aoe_demo"),
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Tune AlexNet for this CPU and show the bank that comes of it (under two minutes)."""
    from aoe.cli.tune_command import run_tuning
    from aoe.tuning.configuration.resolving import configure, configured

    bank = _own_bank(output)
    settings = configured(
        TuneSettings(model=shipped_model(), output=output),
        configure({}, env=bank, cwd=Path.cwd()),
    )
    if not as_json:
        typer.echo(f"tuning AlexNet for this CPU into {output.resolve()}")
    result = run_tuning(
        settings, as_json=as_json, shown=not quiet, env=bank, engine=engine_of(context)
    )
    if as_json:
        return
    typer.echo("\nthe bank it wrote (aoebank ls):")
    _list_bank(result.bank)
    typer.echo("\nnext:")
    typer.echo(f"  aoe run {result.om_file} --input random")
    typer.echo(f"  aoe benchmark {result.om_file} --vs {settings.model}")
    typer.echo(f"  aoebank show {_first_record(result.bank)} {result.bank}")


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
