"""Modes by number and name: what is taken, what is refused, and that every row leads to one."""

from __future__ import annotations

import pytest

from aoe.errors import OptionError
from aoe.tuner.mode import JobType
from aoe.tuner.registry import parse_job_types


@pytest.mark.parametrize(
    ("job", "texts"),
    [
        (JobType.SGAT, ("1", "sgat", "SGAT", "subgraph", "1,sgat")),
        (JobType.OPAT, ("2", "opat", "OPAT", " 2 ", "2,2", "opat,2")),
        (JobType.GDAT, ("3", "4", "gdat", "GDAT", "4,3")),
    ],
)
def test_mode_has_numbers_and_names(job: JobType, texts: tuple[str, ...]) -> None:
    assert {parse_job_types(text) for text in texts} == {(job,)}


def test_modes_of_a_list_keep_its_order() -> None:
    assert parse_job_types("gdat,2") == (JobType.GDAT, JobType.OPAT)
    assert parse_job_types("2,4") == (JobType.OPAT, JobType.GDAT)


@pytest.mark.parametrize("text", ["", "5", "0", "-1", "2,", "operators", "2;4", "\uff12"])
def test_unknown_job_type_names_what_is_known(text: str) -> None:
    words = r"unknown job type .*expected 1 \(or sgat\) or 2 \(or opat\) or 4 \(or gdat\)"
    with pytest.raises(OptionError, match=words):
        parse_job_types(text)
