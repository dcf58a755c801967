"""Modes by number and name: what is taken, what is refused, and that every row leads to one."""

from __future__ import annotations

import pytest

from aoe.errors import OptionError
from aoe.tuning.mode import JobType
from aoe.tuning.registry import KINDS, get_mode, parse_job_types


@pytest.mark.parametrize("text", ["2", "opat", "OPAT", " 2 ", "2,2", "opat,2"])
def test_operator_tuning_has_a_number_and_a_name(text: str) -> None:
    assert parse_job_types(text) == (JobType.OPAT,)


@pytest.mark.parametrize("text", ["3", "4", "gdat", "GDAT", "4,3"])
def test_gradient_tuning_has_two_numbers_and_a_name(text: str) -> None:
    assert parse_job_types(text) == (JobType.GDAT,)


def test_modes_of_a_list_keep_its_order() -> None:
    assert parse_job_types("gdat,2") == (JobType.GDAT, JobType.OPAT)
    assert parse_job_types("2,4") == (JobType.OPAT, JobType.GDAT)


@pytest.mark.parametrize("text", ["1", "sgat", "SGAT", "subgraph", "1,sgat"])
def test_subgraph_tuning_has_a_number_and_two_names(text: str) -> None:
    assert parse_job_types(text) == (JobType.SGAT,)


@pytest.mark.parametrize("text", ["", "5", "0", "-1", "2,", "operators", "2;4", "\uff12"])
def test_unknown_job_type_names_what_is_known(text: str) -> None:
    with pytest.raises(OptionError, match=r"unknown job type .*expected 1 \(or sgat\)"):
        parse_job_types(text)


def test_refusals_list_the_modes_there_are() -> None:
    words = r"expected 1 \(or sgat\) or 2 \(or opat\) or 4 \(or gdat\)"
    with pytest.raises(OptionError, match=words):
        parse_job_types("7")


@pytest.mark.parametrize("job", KINDS)
def test_every_row_leads_to_a_mode(job: JobType) -> None:
    mode = get_mode(job)
    assert callable(mode.check) and callable(mode.run)
