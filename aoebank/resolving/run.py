"""Find which directory and which files each reader would use, and say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.model.resolution import (
    Failure,
    Hazard,
    Match,
    Query,
    Reader,
    ReaderAnswer,
    ReaderOutcome,
    Tier,
)
from aoebank.resolving.hazards import find_hazards
from aoebank.resolving.records import WantedWorkload, find_matches, record_hazards
from aoebank.storage.readers.environment import find_answer
from aoebank.storage.readers.places import Surroundings
from aoebank.storage.readers.rules import RULES

ANYTHING = Query()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveResult:
    """What each reader asked about would use.

    Attributes:
        answers: One per reader, in the order asked.
        hazards: What surprises people about these places.
        matches: One per reader whose format can hold the workload; empty if none was given.
        has_workload: Whether a record was asked for.
        is_explicit: Whether the readers were named, so that each of them counts.
    """

    query: Query
    answers: tuple[ReaderAnswer, ...]
    hazards: tuple[Hazard, ...]
    matches: tuple[Match, ...] = ()
    has_workload: bool = False
    is_explicit: bool = False

    @property
    def error(self) -> AoebankError | None:
        """Return the first error that ends a job.

        In a survey of all readers a machine without CANN is no error: only what is said of
        the custom bank counts.
        """
        return next(
            (
                trouble.error
                for answer in self.answers
                for trouble in answer.troubles
                if trouble.failure is Failure.STOP
                and (self.is_explicit or trouble.tier is Tier.CUSTOM)
            ),
            None,
        )

    @property
    def is_found(self) -> bool:
        """Return whether what was asked for is found: by each reader named, else by any."""
        if any(answer.ignores_custom for answer in self.answers):
            return False
        found = [
            answer.outcome in (ReaderOutcome.CUSTOM, ReaderOutcome.BUILT_IN)
            for answer in self.answers
        ]
        if self.has_workload:
            users = {match.reader for match in self.matches if match.used is not None}
            found = [answer.reader in users for answer in self.answers]
        return all(found) if self.is_explicit else any(found)


def resolve(
    *,
    around: Surroundings,
    query: Query = ANYTHING,
    readers: Sequence[Reader] = (),
    writers: bool = False,
    workload: WantedWorkload | None = None,
) -> ResolveResult:
    """Return the bank of each reader; a bank that cannot be used is a result too.

    Args:
        around: Environment, options and permissions to go by.
        query: What is looked for.
        readers: Whose rules to follow; none stands for those `default_readers` returns.
        writers: Whether that is all writers instead of all readers.
        workload: What to look for in the files found.
    """
    asked = tuple(dict.fromkeys(readers)) or default_readers(query, writers=writers)
    answers = tuple(find_answer(reader, around, query, writes=writers) for reader in asked)
    matches = tuple(find_matches(answers, workload)) if workload else ()
    hazards = [*find_hazards(around, query, answers), *record_hazards(query, matches)]
    return ResolveResult(
        query=query,
        answers=answers,
        hazards=tuple(hazards),
        matches=matches,
        has_workload=workload is not None,
        is_explicit=bool(readers),
    )


def default_readers(query: Query, *, writers: bool = False) -> tuple[Reader, ...]:
    """Return all readers, or all writers; only those of operator banks for an op_type."""
    return tuple(
        rules.reader
        for rules in RULES.values()
        if (rules.is_writer if writers else rules.is_reader)
        and (query.op_type is None or rules.is_operator)
    )
