"""Sub-commands of `aoe` by name: one line each."""

from __future__ import annotations

from collections.abc import Callable

from aoe.cli.benchmark import benchmark
from aoe.cli.demo import demo
from aoe.cli.inspect import inspect
from aoe.cli.run import run

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run": run,
    "benchmark": benchmark,
    "inspect": inspect,
}
