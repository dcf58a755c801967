"""Parts of a model that validation may drop, and the writer of models without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """What the graph of a model, and its profiles with and without parts, say of these parts."""

    # Time each part saves in one run of the model, in us and by name, neighbours counted; without
    # parts that were not profiled.
    saved_us: Mapping[str, float] = field(default_factory=dict)
    # Why a part seems to cost time there, by name. Profiles prove nothing.
    losses: Mapping[str, str] = field(default_factory=dict)
    model_us: float = 0.0  # Time of the model without parts by the same profiles, 0 without any
    # Names of parts that stand beside each other, in the order of the graph.
    groups: tuple[tuple[str, ...], ...] = ()

    def saved_by(self, part: ValidatedPart, share: float = 1.0) -> float:
        """Return the time a part is expected to save in the model, in us; negative for a loss.

        Args:
            part: Of the model.
            share: Part of its saving alone that it is expected to keep; no more is expected.
        """
        alone_us = share * part.gain_us
        return min(alone_us, self.saved_us.get(part.name, alone_us))

    def expected_gain(self, parts: Sequence[ValidatedPart]) -> float | None:
        """Return the speed-up of the model with some parts by its profiles, None if not known."""
        if self.model_us <= 0 or not all(part.name in self.saved_us for part in parts):
            return None
        saved_us = sum(self.saved_us[part.name] for part in parts)
        return self.model_us / max(self.model_us - saved_us, 1e-9 * self.model_us)


NO_TIMES = ModelTimes()
"""Nothing is known but what each part saves alone."""


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
