"""`tune_ops_file`: which operators are tuned, and files that cannot be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoe.errors import OptionError
from aoe.tuner.operator_choice import (
    OperatorChoice,
    choice_to_json,
    given_operators,
    read_operator_choice,
)

_NODES = ["/layer1/Conv", "/layer1/Relu", "/head/MatMul"]
_TYPES = ["Conv", "Relu", "MatMul"]


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (OperatorChoice(names=("/head/MatMul",)), True),
        (OperatorChoice(names=("/head",)), False),
        (OperatorChoice(names=("/head/*",)), True),
        (OperatorChoice(names=("/tail/*",), types=("Conv2D",)), True),
        (OperatorChoice(types=("Softmax",)), False),
        (OperatorChoice(types=("conv",)), False),
    ],
)
def test_whole_names_patterns_and_types_choose_a_node(choice: OperatorChoice, taken: bool) -> None:
    assert choice.takes(_NODES, _TYPES) is taken


def test_name_with_brackets_is_first_of_all_a_name() -> None:
    assert OperatorChoice(names=("conv[0]",)).takes(["conv[0]"], [])


def test_fused_operator_is_chosen_by_any_of_its_types() -> None:
    assert OperatorChoice(types=("Relu",)).takes(["fused"], ["FusedConv", "Conv", "Relu"])


def test_what_no_node_has_is_named_with_what_comes_near() -> None:
    choice = OperatorChoice(names=("/layer1/Conf", "/head/*"), types=("Relux", "Conv"))
    assert choice.strangers(_NODES, _TYPES) == (
        "/layer1/Conf (did you mean /layer1/Conv?)",
        "Relux (did you mean Relu?)",
    )


def test_file_is_read_back_as_it_is_written(tmp_path: Path) -> None:
    choice = OperatorChoice(names=("a", "b*"), types=("MatMul",))
    (tmp_path / "ops.txt").write_text(json.dumps(choice_to_json(choice)))
    assert read_operator_choice(tmp_path / "ops.txt") == choice
    assert given_operators(None) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "not a choice of operators"),
        ('{"tune_op_name": ["a"]}', "not a choice of operators .got 'tune_op_name'"),
        ('{"tune_ops_name": "a"}', "tune_ops_name: not a list of names"),
        ('{"tune_ops_type": [1]}', "tune_ops_type: not a list of names"),
        ('{"tune_ops_name": [""]}', "tune_ops_name: not a list of names"),
        ('{"tune_ops_name": [], "tune_ops_type": []}', "names no operator"),
    ],
)
def test_file_that_cannot_be_meant_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "ops.json"
    file.write_text(content)
    with pytest.raises(OptionError, match=f"--tune_ops_file .*ops.json.*{message}"):
        read_operator_choice(file)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        read_operator_choice(tmp_path / "nowhere.json")
