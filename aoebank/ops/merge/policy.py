"""What to do with a key that two sides answer differently."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from aoebank.errors import UsageError
from aoebank.model.timing import NOISE_RATIO, Times


class Policy(StrEnum):
    """Who wins where both sides changed the same key in different ways."""

    KEEP_BEST = "keep-best"
    OURS = "ours"
    THEIRS = "theirs"
    UNION = "union"
    FAIL = "fail"


class Incumbent(StrEnum):
    """Who wins a two-way merge inside the noise band."""

    OURS = "ours"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A policy for some records only; a pattern left out matches all.

    Attributes:
        soc_version: Shell pattern, as are the other two.
    """

    policy: Policy
    soc_version: str | None = None
    op_type: str | None = None
    key: str | None = None

    def matches(self, *, soc_version: str | None, op_type: str | None, key: str) -> bool:
        """Return whether every pattern given fits; what is not known fits no pattern."""
        pairs = (
            (self.soc_version, soc_version),
            (self.op_type, op_type),
            (self.key, key),
        )
        return all(
            pattern is None or (text is not None and fnmatchcase(text, pattern))
            for pattern, text in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """How keys are decided that both sides changed in different ways.

    Attributes:
        untimed: For `keep-best` where there are no two comparable times.
        noise_ratio: A gap up to this share of the smaller time is noise; 0.03 is 3 %.
        overrides: The last one that matches a record counts.
        takes_containing: Whether the side whose edit contains that of the other one is taken, where
            it would be a conflict else.
        follows_renames: Whether a file one side moved is merged with what the other side calls as
            before.
        incumbent: Of a two-way merge; with a base the incumbent is what the base says.
        may_differ_in_soc: Whether sides for other targets are merged all the same.
        may_be_unrelated: Whether a base that shares no record with a side is taken.
    """

    policy: Policy = Policy.KEEP_BEST
    untimed: Policy = Policy.FAIL
    noise_ratio: float = NOISE_RATIO
    times: Times = Times.ALIKE
    incumbent: Incumbent = Incumbent.OURS
    overrides: tuple[Override, ...] = ()
    takes_containing: bool = True
    follows_renames: bool = True
    may_differ_in_soc: bool = False
    may_be_unrelated: bool = False

    def __post_init__(self) -> None:
        if self.untimed is Policy.KEEP_BEST:
            raise ValueError("without times there is no best: untimed cannot be keep-best")
        if not 0 <= self.noise_ratio < 100:
            raise ValueError(f"noise_ratio must be 0 or more, not {self.noise_ratio}")

    def policy_for(self, *, soc_version: str | None, op_type: str | None, key: str) -> Policy:
        """Return the policy for a record."""
        for override in reversed(self.overrides):
            if override.matches(soc_version=soc_version, op_type=op_type, key=key):
                return override.policy
        return self.policy


_FIELDS = {"soc": "soc_version", "op": "op_type", "key": "key"}


def parse_override(text: str) -> Override:
    """Return the override a person wrote, as in `op=MatMulV3:theirs`.

    Several patterns may be given: `soc=Ascend910B*,op=MatMulV3:ours`.

    Raises:
        UsageError: it is none.
    """
    patterns_text, colon, policy = text.rpartition(":")
    patterns: dict[str, str] = {}
    for part in patterns_text.split(","):
        name, equals, pattern = part.partition("=")
        if not (equals and pattern and name in _FIELDS and _FIELDS[name] not in patterns):
            raise _bad_override(text)
        patterns[_FIELDS[name]] = pattern
    if not colon or policy not in tuple(Policy):
        raise _bad_override(text)
    return Override(policy=Policy(policy), **patterns)


def parse_noise(text: str) -> float:
    """Return the noise band a person wrote: `3%` or `0.03`.

    Raises:
        UsageError: it is none.
    """
    from aoebank.ops.diff.options import parse_ratio

    return parse_ratio(text, option="--noise")


def _bad_override(text: str) -> UsageError:
    return UsageError(
        "is no override",
        where=text,
        expected="soc=PATTERN, op=PATTERN or key=PATTERN, then :" + "|".join(Policy),
        hint="--override op=MatMulV3:theirs",
    )
