"""What an entry hands to the tuning layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model of any framework as ONNX, checked, with static input shapes.

    Attributes:
        name: Model name, used in file names.
        path: File the user gave.
        sha256: Digest of the model as it is tuned (shapes fixed), hexadecimal.
        proto: The ONNX model; initializers are constants, inputs have static shapes.
    """

    name: str
    path: Path
    sha256: str
    proto: onnx.ModelProto
