"""Errors of `aoebank`: what the command line makes of them."""

from __future__ import annotations

import typer
from support.error_contract import ErrorTests

from aoe.errors import AoeError
from aoebank import AoebankError
from aoebank.program import Program, run_program


class TestErrors(ErrorTests):
    @staticmethod
    def run(app: typer.Typer, arguments: list[str]) -> int:
        program = Program(
            name="aoebank",
            app=app,
            schema=lambda _: "aoebank.fail/1",
            takes_output=lambda _: True,
        )
        return run_program(program, arguments)


def test_errors_of_the_engine_are_errors_of_the_bank_layer_too() -> None:
    assert issubclass(AoeError, AoebankError)
