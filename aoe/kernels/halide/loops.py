"""Loop variables by name, for kernels with many loops that stages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import halide as hl


class _LoopVariables:
    """Makes loop variables: `v.tx` is `hl.Var("tx")`, the loop schedule steps call "tx".

    Halide tells variables apart by their names, so all of one name are one.
    """

    def __getattr__(self, name: str) -> hl.Var:
        return hl.Var(name)


v = _LoopVariables()
"""The loop variables kernels share by their names."""


def moved_to(variables: Iterable[hl.Var], places: Mapping[str, hl.Expr]) -> tuple[hl.Expr, ...]:
    """Return loop variables as an index, the loops in `places` replaced."""
    return tuple(places.get(v.name(), hl.Expr(v)) for v in variables)
