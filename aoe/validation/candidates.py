"""Parts of a model that validation may drop, and the writer of models without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from aoe.execute.messages import ModelPart
from aoe.measurement import SpeedupEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Why a kernel does not stay in the model."""

    reason: str  # In words
    # Speed-up of the model with it over the one without, None where that is not the reason: what
    # computes wrongly is not timed.
    estimate: SpeedupEstimate | None = None
    # False if a later run has to decide, because the machine was too busy to tell.
    is_final: bool = True


class ValidatedPart(Protocol):
    """A kernel, or anything else that may stay in a model or not."""

    @property
    def name(self) -> str:
        """Name in messages, unique in a model."""
        ...

    @property
    def kind(self) -> str:
        """Group of parts that tend to lose for the same reason."""
        ...

    @property
    def gain_us(self) -> float:
        """Time it has proven, alone, to save in one run of the model."""
        ...


P = TypeVar("P", bound=ValidatedPart)
_P = TypeVar("_P", bound=ValidatedPart, contravariant=True)


class VariantWriter(Protocol[_P]):
    """Writes a model with some of its parts; every file goes into one directory."""

    directory: Path

    @property
    def untuned(self) -> ModelPart:
        """The model the others are held against."""
        ...

    def write_model(self, kernels: Sequence[_P], name: str = ...) -> ModelPart:
        """Write the model with these parts in it."""
        ...
