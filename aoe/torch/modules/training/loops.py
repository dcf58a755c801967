"""Loops of regions, compiled by the C compiler into one library and called by PyTorch."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from aoe.device.cpu.memory import has_huge_pages
from aoe.device.registry import resolve_target
from aoe.device.toolchain import Toolchain, find_toolchain
from aoe.errors import BuildError
from aoe.folders.scratch import ScratchFolder
from aoe.torch.modules.training.c_expressions import MATH
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.modules.training.regions import RegionForm
from aoe.torch.modules.training.row_loops import LoopSource
from aoe.tuner.kernel_cache import kept_objects

_FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp-simd", "-w"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-mprefer-vector-width=512"),
)
"""NaN, infinities and signed zeros stay what they are: no `-ffast-math`."""
_LIBRARY = "loops.so"
_CPU = torch.device("cpu")

Calls = Mapping[RegionForm, Callable[..., Sequence[torch.Tensor]]]


class Loops(Protocol):
    """Compiles loops of regions and keeps what was decided; see `LoopCompiler`."""

    def digest(self, *texts: str) -> str:
        """Return a digest of texts and of what decides how fast they are."""

    def verdict(self, digest: str) -> str | None:
        """Return a decision of an earlier process, None if there is none."""

    def keep(self, digest: str, reason: str) -> None:
        """Keep a decision."""

    def compile(self, sources: Mapping[RegionForm, LoopSource]) -> Calls:
        """Return a call for each loop."""

    def library(self, name: str, build: Callable[[Path], object]) -> ctypes.CDLL:
        """Return the library of a name, built into a file unless it is kept."""


class LoopCompiler:
    """Compiles loops; libraries and verdicts are kept for the next process.

    Args:
        settings: How regions are tuned.
    """

    def __init__(self, settings: RegionSettings) -> None:
        self._toolchain: Toolchain = find_toolchain(settings.env)
        _, self._target = resolve_target(settings.tune.soc_version, 1)
        kept = kept_objects(settings.tune, settings.env, Path.cwd(), lambda text: None)
        self._kept = None if settings.tune.repeat_tune else kept

    def digest(self, *texts: str) -> str:
        """Return a digest of texts and all that decides how fast they are here."""
        facts = (
            *(str(self._toolchain.identity()), str(_FLAGS), MATH, torch.__version__),
            *(str(self._target), str(torch.get_num_threads())),
        )
        return hashlib.sha256("\0".join((*facts, *texts)).encode()).hexdigest()

    def verdict(self, digest: str) -> str | None:
        """Return why something is left to PyTorch, "" if it is not, None if nobody knows."""
        text = self._kept.text(f"{digest}.verdict") if self._kept is not None else None
        try:
            return None if text is None else str(json.loads(text)["reason"])
        except (ValueError, KeyError, TypeError):
            return None

    def keep(self, digest: str, reason: str) -> None:
        """Keep a verdict for the next process."""
        if self._kept is not None:
            self._kept.put_text(f"{digest}.verdict", json.dumps({"reason": reason}))

    def compile(self, sources: Mapping[RegionForm, LoopSource]) -> Calls:
        """Return a call for each loop.

        Raises:
            BuildError: the compiler fails.
        """
        if not sources:
            return {}
        names = {form: f"aoe_loop_{number}" for number, form in enumerate(sources)}
        texts = [source.text.replace("@", names[form]) for form, source in sources.items()]
        library = self.library(self.digest(*texts), partial(self._build, texts))
        return {
            form: LoopCall(getattr(library, names[form]), form, source)
            for form, source in sources.items()
        }

    def library(self, name: str, build: Callable[[Path], object]) -> ctypes.CDLL:
        """Return the library of a name, built into a file unless it is kept.

        Raises:
            BuildError: the compiler fails.
        """
        kept_as = f"{name}.loops"
        with ScratchFolder("training") as folder:
            file = folder / _LIBRARY
            if self._kept is None or not self._kept.take(kept_as, folder):
                build(file)
                if self._kept is not None:
                    self._kept.put(kept_as, [file])
            try:
                return ctypes.CDLL(str(file))
            except OSError as error:
                raise BuildError(_LIBRARY, f"cannot be loaded: {error}") from error

    def _build(self, texts: Sequence[str], library: Path) -> None:
        parts = max(1, min(os.cpu_count() or 1, len(texts)))

        def compiled(part: int) -> str:
            file = library.with_name(f"loops_{part}.c")
            file.write_text(MATH + "\n".join(texts[part::parts]))
            flags = [flag for flag in _FLAGS if flag != "-shared"]
            self._toolchain.run(
                [*flags, "-c", "-o", str(file.with_suffix(".o")), str(file)],
                what="compiling loops of regions",
            )
            return str(file.with_suffix(".o"))

        with ThreadPoolExecutor(parts) as pool, self._toolchain.ended_by_interrupt():
            objects = list(pool.map(compiled, range(parts)))
            self._toolchain.run(
                [*_FLAGS, "-o", str(library), *objects, "-lm"], what="linking loops"
            )


class LoopCall:
    """Computes calls of one form on the memory of the tensors, on the calling thread.

    Args:
        function: Of the library, which it keeps loaded.
        form: Of the calls.
        source: What it was compiled of.
    """

    def __init__(self, function: Any, form: RegionForm, source: LoopSource) -> None:
        self._read = source.arguments
        self._made = [(laid.shape, laid.strides, laid.dtype) for laid in form.results]
        self._new = _zeros if source.adds else torch.empty_strided
        self._function = function
        function.restype = None
        # addresses as they are: an array of them would be made at each call
        function.argtypes = [ctypes.c_void_p] * (len(self._read) + len(self._made))

    def __call__(self, *arguments: Any) -> Sequence[torch.Tensor]:
        """Return the results, in new tensors."""
        new = self._new
        # on the CPU, whatever the caller's default device is
        results = [
            new(shape, strides, dtype=dtype, device=_CPU) for shape, strides, dtype in self._made
        ]
        self._function(
            *[arguments[at].data_ptr() for at in self._read],
            *[result.data_ptr() for result in results],
        )
        return results


def _zeros(
    shape: Sequence[int], strides: Sequence[int], *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return zeros in order.

    NumPy's come from the kernel in huge pages and are not written again. Where those are small
    ones, whoever reads the zeros pays more for the faults than `torch.zeros` costs.
    """
    if has_huge_pages():
        return torch.from_numpy(np.zeros(shape, np.float32))
    return torch.zeros(shape, dtype=dtype, device=device)
