"""Errors of `aoe`: what the command line makes of them."""

from __future__ import annotations

import typer
from support.error_contract import ErrorTests

from aoe.cli.errors import run_app


class TestErrors(ErrorTests):
    @staticmethod
    def run(app: typer.Typer, arguments: list[str]) -> int:
        return run_app(app, arguments)
