"""What was judged before: in this very model, or in one like it."""

from __future__ import annotations

from dataclasses import dataclass

from aoe.measurement import Scatter


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedent:
    """What earlier judgements say of the parts of a model.

    Attributes:
        proven: Names of parts a model like this one has kept: half of what they promise will do.
        believed: Names of parts that stay without a test of their own.
        is_own: True if this very model has kept those that are believed: that they gain is proven.
        scatter: Of the processes that have judged a model like this one, None if not known.
    """

    proven: frozenset[str] = frozenset()
    believed: frozenset[str] = frozenset()
    is_own: bool = False
    scatter: Scatter | None = None


NO_PRECEDENT = Precedent()
"""Nothing was judged before."""
