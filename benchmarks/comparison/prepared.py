"""A network as files, ready for every runtime; needs neither torch nor onnx to be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from networks.network import Array

MODEL, INPUTS, REFERENCE, FACTS = "model.onnx", "inputs.npz", "reference.npz", "facts.json"
_HERE = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 1800.0


class PreparationError(Exception):
    """A network could not be built, exported or computed in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNetwork:
    """The files of one network."""

    name: str  # In the registry
    folder: Path  # Where they are
    facts: Mapping[str, Any]  # Digest, size, operators, multiply-adds, error of torch in float32

    @classmethod
    def make(cls, name: str, folder: Path) -> Self:
        """Build what is missing in a process of its own, which takes its memory along.

        Raises:
            PreparationError: the network cannot be built here.
        """
        _prepare("comparison.preparation", name, folder)
        return cls(name=name, folder=folder, facts=json.loads((folder / FACTS).read_text()))

    def written_as(self, form: str) -> Self:
        """Write the network with smaller types, see `comparison.quantising`; inputs are the same.

        Raises:
            PreparationError: what writes this form is not installed, or failed.
        """
        folder = self.folder / form
        _prepare("comparison.quantising", self.name, folder)
        return replace(self, folder=folder, facts=json.loads((folder / FACTS).read_text()))

    @property
    def model(self) -> Path:
        """The ONNX file."""
        return self.folder / MODEL

    @property
    def inputs(self) -> Path:
        """The inputs by name."""
        return self.folder / INPUTS

    def errors(self, outputs: Path) -> dict[str, float]:
        """Compare the results of a runtime with those in float64.

        Returns:
            `largest`: the largest difference as a share of the largest magnitude of its output;
            `cosine`: the least cosine similarity of an output.

        Raises:
            ValueError: another number of outputs, or of another shape, or no numbers where float64
                has some.
        """
        with np.load(self.folder / REFERENCE) as exact, np.load(outputs) as actual:
            if len(exact.files) != len(actual.files):
                raise ValueError(
                    f"another number of results (got {len(actual.files)}, "
                    f"expected {len(exact.files)})"
                )
            pairs = [(actual[name].astype(np.float64), exact[name]) for name in exact.files]
        return {
            "largest": max(relative_error(*pair) for pair in pairs),
            "cosine": min(_cosine(*pair) for pair in pairs),
        }


def _prepare(module: str, name: str, folder: Path) -> None:
    paths = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stderr=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise PreparationError(done.stderr.strip()[-600:] or f"code {done.returncode}")


def relative_error(actual: Array, exact: Array) -> float:
    """Return the largest difference, as a share of the largest magnitude there should be."""
    if actual.shape != exact.shape:
        raise ValueError(f"a result of another shape (got {actual.shape}, expected {exact.shape})")
    if not np.isfinite(actual[np.isfinite(exact)]).all():
        raise ValueError("NaN or infinity where float64 has numbers")
    return float(np.abs(actual - exact).max() / np.abs(exact).max())


def _cosine(actual: Array, exact: Array) -> float:
    norms = np.linalg.norm(actual) * np.linalg.norm(exact)
    return float(np.vdot(actual, exact) / norms)
