"""Schedules as somebody who edits a bank may leave them: nearly right, or not at all."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from aoe.schedule import STEP_KINDS

Steps = list[Any]

_NUMBERS = (0, -1, 1, 2, 3, 7, 16, 64, 255, 256, 4096, 65536, 2**31 - 1, 2**31, 2**40, 2**64)
_JUNK = (None, True, 1.5, "", "x", [], ["x", "x"], {}, {"a": 1}, "y.update", "algorithm")


def mutated(steps: Steps, rng: random.Random, edits: int = 3) -> Steps:
    """Return the JSON of a schedule after one to `edits` changes."""
    found = copy.deepcopy(steps)
    for _ in range(rng.randint(1, edits)):
        rng.choice(_EDITS)(found, rng)
    return found


def _number(steps: Steps, rng: random.Random) -> None:
    """Change a factor, a little or beyond reason."""
    places = [(s, i) for s in steps for i, value in enumerate(s) if type(value) is int]
    if places:
        step, at = rng.choice(places)
        near = (step[at] * 2, step[at] * 3, step[at] + 1, step[at] - 1, step[at] * 64)
        step[at] = rng.choice((*near, *_NUMBERS))


def _name(steps: Steps, rng: random.Random) -> None:
    """Put another name of the schedule in place of one."""
    places = [(s, i) for s in steps for i in range(1, len(s)) if isinstance(s[i], str)]
    if places:
        step, at = rng.choice(places)
        step[at] = rng.choice(_names(steps))


def _order(steps: Steps, rng: random.Random) -> None:
    """Change the order of loops or of steps."""
    orders = [value for s in steps for value in s if isinstance(value, list)]
    rng.shuffle(rng.choice(orders) if orders and rng.random() < 0.5 else steps)


def _removal(steps: Steps, rng: random.Random) -> None:
    if steps:
        del steps[rng.randrange(len(steps))]


def _repetition(steps: Steps, rng: random.Random) -> None:
    if steps:
        again = copy.deepcopy(rng.choice(steps))
        steps.insert(rng.randrange(len(steps) + 1), again)


def _kind(steps: Steps, rng: random.Random) -> None:
    if steps:
        rng.choice(steps)[0:1] = [rng.choice(list(STEP_KINDS))]


def _addition(steps: Steps, rng: random.Random) -> None:
    """Add a step that is well formed, of names that occur."""
    names = _names(steps)

    def name() -> str:
        return rng.choice(names)

    factor = rng.choice((2, 3, 4, 8, 16, 64, 1024))
    step: list[Any] = rng.choice(
        [
            ["split", name(), name(), name(), f"{name()}o", factor, rng.choice(_TAILS)],
            ["split", name(), name(), "new_o", "new_i", factor, rng.choice(_TAILS)],
            ["fuse", name(), name(), name(), name()],
            ["reorder", name(), [name(), name()]],
            ["vectorize", name(), name(), factor],
            ["unroll", name(), name(), factor],
            ["parallel", name(), name(), rng.choice((None, factor))],
            ["compute_at", name(), name(), name()],
            ["compute_root", name()],
            ["store_in", name(), rng.choice(("stack", "heap"))],
        ]
    )
    steps.insert(rng.randrange(len(steps) + 1), step)


def _junk(steps: Steps, rng: random.Random) -> None:
    """Put something in place of a value that has nothing to do with it."""
    if steps:
        step = rng.choice(steps)
        step[rng.randrange(len(step))] = copy.deepcopy(rng.choice(_JUNK))


_EDITS: tuple[Callable[[Steps, random.Random], None], ...] = (
    *(_number, _number, _name, _name, _addition, _addition),
    *(_order, _removal, _repetition, _kind, _junk),
)
_TAILS = ("guard", "shift_inwards", "round_up", "auto")


def _names(steps: Steps) -> list[str]:
    inner = [name for s in steps for part in s[1:] if isinstance(part, list) for name in part]
    plain = [part for s in steps for part in s[1:]]
    names = [name for name in (*plain, *inner) if isinstance(name, str)]
    return sorted({*names, "y"} - {"", *_TAILS, "stack", "heap"})
