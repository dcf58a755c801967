"""Errors of the engine: their text, and that they survive the way between processes."""

from __future__ import annotations

import pickle

import pytest

from aoe import errors
from aoe.errors import AoeError, BuildTimeoutError, ModelNotFoundError, OptionError, OutputError

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, AoeError)
]


def test_message_is_place_problem_and_facts() -> None:
    error = AoeError("--soc_version", "unknown target", got="x", expected="y", hint="do z")
    assert str(error) == "--soc_version: unknown target (got x, expected y)"
    assert error.hint == "do z"


def test_message_without_facts_has_no_parentheses() -> None:
    assert str(AoeError("a", "b")) == "a: b"


def test_falsy_facts_are_facts() -> None:
    assert str(AoeError("a", "b", got=0, expected="")) == "a: b (got 0, expected )"


@pytest.mark.parametrize("kind", ALL)
def test_every_error_survives_pickling(kind: type[AoeError]) -> None:
    error = kind("where", "what", got=1, expected=[2], hint="hint")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.where, again.problem, again.got, again.expected, again.hint) == (
        "where",
        "what",
        1,
        [2],
        "hint",
    )


def test_codes_are_distinct() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL)


def test_exit_code_is_two_for_usage_and_three_otherwise() -> None:
    assert {kind.exit_code for kind in ALL if not issubclass(kind, OptionError)} == {3}
    assert OptionError.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (OptionError, ValueError),
        (ModelNotFoundError, FileNotFoundError),
        (BuildTimeoutError, TimeoutError),
        (OutputError, OSError),
    ],
)
def test_errors_are_caught_by_the_builtin_people_expect(
    kind: type[AoeError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin, match="where: what"):
        raise kind("where", "what")
