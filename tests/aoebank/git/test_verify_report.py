"""What `git verify-merge` says, in words for somebody who never saw it."""

from __future__ import annotations

import pytest

from aoebank import MergeVerdict, emit
from aoebank.git.verify import VerifyMergeReport
from aoebank.model.merge_verdict import MergeFault, MergeProblem
from aoebank.report.output import ColorMode

COMMIT = "0123456789abcdef"


def text_of(capsys: pytest.CaptureFixture[str], **facts: object) -> list[str]:
    verdict = MergeVerdict(commit=COMMIT, subject="Merge branch 'feature'", **facts)  # type: ignore[arg-type]
    emit(VerifyMergeReport(verdicts=(verdict,)), as_json=False, color=ColorMode.NEVER)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "0123456789 Merge branch 'feature'"
    return lines


ONE, TWO = "1 bank file as merging", "2 bank files as merging the parents gives them"
GIT_HAS = "all as the first parent has them, which is also what git is left with"
AGAINST = "decided against the first parent"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"files": 0}, "no bank file differs between the parents, or from them"),
        ({"files": 1}, f"{ONE} the parents gives it"),
        ({"files": 2}, TWO),
        ({"files": 2, "choices": 3, "choices_ours": 3}, f"{TWO}; 3 records in conflict, {GIT_HAS}"),
        (
            {"files": 2, "choices": 3, "choices_ours": 1},
            f"{TWO}; 3 records in conflict, 2 of them {AGAINST}",
        ),
        ({"files": 2, "choices": 1}, f"{TWO}; 1 record in conflict, all {AGAINST}"),
        ({"note": "no merge: has one parent"}, "no merge: has one parent"),
    ],
)
def test_summary_says_what_was_compared_and_who_decided(
    capsys: pytest.CaptureFixture[str], facts: dict[str, object], words: str
) -> None:
    assert text_of(capsys, **facts) == [f"  {words}"]


def test_a_difference_is_told_with_its_place_and_a_way_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = MergeProblem(
        fault=MergeFault.RETURNED,
        path="banks/x.json",
        key="abcd",
        line=3,
        message="a parent removed this record, the merge commit has it",
    )
    told = """\
  returned banks/x.json:3 abcd: a parent removed this record, the merge commit has it
  1 bank file compared with what merging the parents gives: 1 difference
  way out: merge again where `aoebank git install` was run, or mend these records and commit that
"""
    assert text_of(capsys, files=1, problems=(problem,)) == told.splitlines()
