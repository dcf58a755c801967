"""What an entry is asked for and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.entry.imported_model import ImportedModel
from aoe.errors import OptionError

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model as the user names it.

    Attributes:
        path: Its file, or a directory of several graphs.
        shapes: Shapes by input name; the names are the input nodes of formats without a list.
        given: Arrays the model will be run on; shapes that stay open are those of the arrays.
        weight: Second file with the weights, for formats that keep them apart.
        output_nodes: Results that are the outputs, as `node:0` or by their own names; empty for
            those the model names itself.
        env: The process's environment, for entries that run a program.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    given: InputSet | None = None
    weight: Path | None = None
    output_nodes: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Reads the models of one framework.

    Attributes:
        framework: Name of the framework, for messages.
        load: Returns the model as ONNX; raises `ModelImportError` on what it cannot read.
        takes_weight: Whether it reads a second file.
        takes_output_nodes: Whether it can be told which results are the outputs.
        suffixes: How its files end, in lower case: by these they are found in a directory.
        weight_suffix: How the second file ends, whose name is that of the first otherwise.
        folder_file: File that makes the directory it lies in a model, where such there are.
        load_open: Returns the model with the shapes it has itself, open ones too; None where
            reading it takes static ones, so that it cannot be tuned for several.
    """

    framework: str
    load: Callable[[ModelSource], ImportedModel]
    takes_weight: bool = False
    takes_output_nodes: bool = False
    suffixes: tuple[str, ...] = ()
    weight_suffix: str = ""
    folder_file: str = ""
    load_open: Callable[[ModelSource], ImportedModel] | None = None

    def load_with_open_extents(self, source: ModelSource, got: object) -> ImportedModel:
        """Return the model with the shapes it has itself; see `load_open`.

        Args:
            source: The model.
            got: The shapes that are asked for.

        Raises:
            OptionError: models of its kind are read with fixed shapes.
            AoeError: it cannot be read.
        """
        if self.load_open is None:
            raise OptionError(
                "--input_shape",
                f"{self.framework} models are tuned for one shape at a time",
                got=got,
                hint="tune once for each shape, they share the bank; or convert the model to ONNX",
            )
        return self.load_open(source)
