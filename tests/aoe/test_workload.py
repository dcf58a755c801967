"""What a workload says, and what its record says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.families import chain_workload

from aoe.bank.operators import key_of
from aoe.workload import Precision, workload_from_json, workload_to_json

_FLOAT32 = chain_workload(("Exp",), shape=(1, 2))
_BFLOAT16 = replace(_FLOAT32, precision=Precision.BFLOAT16)


def test_float32_is_not_written_so_that_old_keys_stay() -> None:
    assert "precision" not in workload_to_json(_FLOAT32)
    assert key_of(_FLOAT32) == "7f855989cada4c8b5c3e4406cb7cb40c"


def test_lower_precision_is_the_last_member_and_another_key() -> None:
    assert list(workload_to_json(_BFLOAT16).items())[-1] == ("precision", "bfloat16")
    assert key_of(_BFLOAT16) != key_of(_FLOAT32)


@pytest.mark.parametrize("precision", list(Precision))
def test_precision_survives_the_record(precision: Precision) -> None:
    workload = replace(_FLOAT32, precision=precision)
    assert workload_from_json(workload_to_json(workload)) == workload


def test_every_precision_has_keys_of_its_own() -> None:
    keys = {key_of(replace(_FLOAT32, precision=precision)) for precision in Precision}
    assert len(keys) == len(Precision)


def test_unknown_precision_is_not_a_workload() -> None:
    with pytest.raises(ValueError, match="not a valid Precision"):
        workload_from_json({**workload_to_json(_FLOAT32), "precision": "float8"})
