"""The Python that has TensorFlow, for tests with real models and scripts."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

NEEDED = "needs tensorflow and tf2onnx, here or in the Python of AOE_TENSORFLOW_PYTHON"


def tensorflow_python() -> str:
    """Return the Python of `AOE_TENSORFLOW_PYTHON`, else this one if it has both, else nothing."""
    if named := os.environ.get("AOE_TENSORFLOW_PYTHON"):
        return named
    return sys.executable if all(map(find_spec, ("tensorflow", "tf2onnx"))) else ""
