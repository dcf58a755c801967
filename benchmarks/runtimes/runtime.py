"""What a runtime is to the suite, and what it is given to work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Facts = Mapping[str, Any]
RunOnce = Callable[[], list[Array]]
"""Computes every output once, in the order of the ONNX file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeTask:
    """One network on a number of threads, for one runtime."""

    network: str  # Name in the registry of networks
    model: Path  # The ONNX file
    inputs: Mapping[str, Array]  # By name, in the order of the model
    folder: Path  # The runtime's own, kept between runs
    threads: int  # Threads it may use
    budget_s: float  # Seconds it may search
    # What its line in the registry, or the command, adds.
    options: Mapping[str, str] = field(default_factory=dict)


class Runtime(Protocol):
    """A module of this folder, as the worker calls it."""

    def build(self, task: RuntimeTask) -> Facts:
        """Do once, in a process that ends afterwards, what is no part of loading."""
        ...

    def load(self, task: RuntimeTask) -> tuple[RunOnce, Facts]:
        """Make the network ready to run in this process."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One column of the tables: a runtime with its options."""

    title: str  # As tables call it
    module: str  # In this folder
    # Importable name without which it is left out, and what to install for it.
    needs: tuple[str, str]
    precision: str = "fp32"  # In what it computes; `any` is what the runtime itself chooses
    options: Mapping[str, str] = field(default_factory=dict)  # Handed to the runtime
    has_budget: bool = False  # True if it searches, for as long as the command says
    model: str = ""  # File it runs in place of the network's, seen from the network's folder
