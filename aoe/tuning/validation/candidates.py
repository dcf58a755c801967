"""Parts of a model that validation may drop, and the writer of models without them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from aoe.execute.messages import ModelPart


class ValidatedPart(Protocol):
    """A kernel, or anything else that may stay in a model or not."""

    @property
    def name(self) -> str:
        """What it is called in messages; no two of a model are called alike."""
        ...

    @property
    def kind(self) -> str:
        """What parts have in common that lose for one reason."""
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
