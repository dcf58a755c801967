"""A tuned model and what it stands for: the calls it computes, the state it was made of."""

from __future__ import annotations

import errno
import os
import pickle
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from aoe.folders.scratch import ScratchFolder
from aoe.om.loading import OfflineModel, load
from aoe.ort.sessions import run_session
from aoe.torch.modules.calls import FlatCall
from aoe.torch.modules.export import Interface
from aoe.torch.modules.state import ModuleState

Strides = tuple[int, ...]
MOST_LAYOUTS = 64
"""Ways of arguments to lie that are remembered; each is learnt from one call PyTorch computes."""


class ResultLayouts:
    """Strides of the results for the strides of the arguments, as PyTorch was seen to give them.

    Args:
        known: Strides of the results, by those of the tensors of a call; of calls of several
            shapes their orders instead, which strides of other extents have in common.
        is_open: True for calls of several shapes.
    """

    def __init__(
        self, known: Mapping[tuple[Strides, ...], tuple[Strides, ...]], *, is_open: bool = False
    ) -> None:
        self.known = dict(known)
        self._of = _order if is_open else torch.Tensor.stride
        self._laid = _laid_in_order if is_open else _laid

    @property
    def is_full(self) -> bool:
        """True if so many layouts are known that no other is learnt."""
        return len(self.known) >= MOST_LAYOUTS

    def knows(self, call: FlatCall) -> bool:
        """Return True if PyTorch was seen to compute a call with such strides."""
        return self._of_call(call) in self.known

    def learn(self, call: FlatCall, results: Sequence[torch.Tensor]) -> None:
        """Remember how PyTorch's own results of a call lie in memory."""
        self.known[self._of_call(call)] = tuple(map(self._of, results))

    def lay(self, results: Sequence[torch.Tensor], call: FlatCall) -> list[torch.Tensor]:
        """Return contiguous results with the strides PyTorch gives them; known ones only."""
        return list(map(self._laid, results, self.known[self._of_call(call)]))

    def _of_call(self, call: FlatCall) -> tuple[Strides, ...]:
        return tuple([self._of(tensor) for tensor in call.tensors])


def _order(tensor: torch.Tensor) -> Strides:
    """Return the dimensions of a tensor from the one with the largest stride on."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))


def _laid_in_order(result: torch.Tensor, order: Strides) -> torch.Tensor:
    """Return a contiguous result with its dimensions in another order in memory."""
    strides, step = [0] * len(order), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, result.shape[axis])
    return _laid(result, tuple(strides))


def _laid(result: torch.Tensor, strides: Strides) -> torch.Tensor:
    if result.stride() == strides:
        return result
    laid = torch.empty_strided(result.shape, strides, dtype=result.dtype)
    if laid.is_contiguous():  # other numbers for dimensions of one element
        return result.as_strided(result.shape, strides)
    if torch.ops.aten.is_non_overlapping_and_dense(laid):
        return laid.copy_(result)
    laid.numpy()[...] = result.numpy()  # as of `expand`: many indices are one place
    return laid


Layouts = Mapping[tuple[Strides, ...], tuple[Strides, ...]]


class ServedModel:
    """Computes calls of one form through a tuned model.

    Args:
        om_file: The tuned model.
        exported: What it computes, and of which module.
        state: Of that module.
        threads: Intra-op threads; None for those it was tuned for.
        frozen: True if the module is promised not to change, so that nobody looks.
        layouts: How results lie in memory, as far as that is known.
        owned: Directory that is removed with this object.
    """

    def __init__(
        self,
        om_file: Path,
        exported: Interface,
        state: ModuleState,
        *,
        threads: int | None = None,
        frozen: bool = False,
        layouts: Layouts = MappingProxyType({}),
        owned: ScratchFolder | None = None,
    ) -> None:
        if owned is not None:
            weakref.finalize(self, owned.remove)
        self._process = os.getpid()
        self.om_file = om_file
        self.form = exported.form
        self._interface = exported
        self._state = state
        self._threads = threads
        self._frozen = frozen
        self.layouts = ResultLayouts(layouts, is_open=exported.form.is_open)
        self.model: OfflineModel = load(om_file, threads=threads)
        self._stamp = _stamp(om_file)
        known = {value.name for value in self.model.get_inputs()}
        self._names = [name if name in known else "" for name in exported.inputs]

    def change(self) -> str:
        """Return the change since the export, in words; the empty string if there is none."""
        return "" if self._frozen else self._state.change()

    def is_forked(self) -> bool:
        """Return True in a child process: the threads of ONNX Runtime did not come along."""
        return os.getpid() != self._process

    def trains(self) -> bool:
        """Return True if a part of the module is in another mode than when it was exported."""
        return not self._frozen and self._state.trains()

    def needs_gradient(self, call: FlatCall) -> bool:
        """Return True if an argument or a parameter of the module requires a gradient."""
        tensors = (*call.tensors, *self._state.parameters)
        return any(tensor.requires_grad for tensor in tensors)

    def learn(self, call: FlatCall, returned: Any) -> None:
        """Remember how what PyTorch returned for a call lies in memory."""
        self.layouts.learn(call, self._interface.outputs.results_of(returned))

    def compute(self, call: FlatCall) -> Any:
        """Return the module's result, in new tensors.

        Inputs are read where they are, results stay where ONNX Runtime put them unless PyTorch
        would lay them otherwise. Calls with such strides have to be known to `layouts`.

        Raises:
            RunError: ONNX Runtime refuses.
        """
        named = zip(self._names, call.tensors, strict=True)
        feed = {name: _array(tensor) for name, tensor in named if name}
        results = run_session(self.model.session, feed)
        laid = self.layouts.lay([_tensor(result) for result in results], call)
        return self._interface.outputs.rebuild(laid, call)

    def packed(self) -> dict[str, Any]:
        """Return the served model as values that can be pickled, the tuned model included.

        Raises:
            OSError: the tuned model is no longer where it was, or another one is.
        """
        if _stamp(self.om_file) != self._stamp:
            raise OSError(errno.ESTALE, "another file took the place of the tuned model")
        return {
            "name": self.om_file.name,
            "om": self.om_file.read_bytes(),
            "interface": _pickled(self._interface),
            "modes": self._state.modes,
            "change": self._state.change(),
            "threads": self._threads,
            "frozen": self._frozen,
            "layouts": self.layouts.known,
        }

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any], module: torch.nn.Module) -> ServedModel:
        """Return the packed module, for the module it was packed with."""
        folder = ScratchFolder("torch")
        file = folder.path / packed["name"]
        file.write_bytes(packed["om"])
        state = ModuleState(module, modes=packed["modes"], change=packed["change"])
        with _quiet_pytrees():
            interface = pickle.loads(packed["interface"])
        kept = {name: packed[name] for name in ("threads", "frozen", "layouts")}
        return cls(file, interface, state, **kept, owned=folder)


def _pickled(interface: Interface) -> bytes:
    with _quiet_pytrees():
        return pickle.dumps(interface)


@contextmanager
def _quiet_pytrees() -> Iterator[None]:
    with warnings.catch_warnings():  # PyTorch's own pickling looks for a class of old
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec", FutureWarning)
        yield


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.detach().contiguous().numpy()
    return array


def _tensor(result: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(result))


def _stamp(file: Path) -> tuple[int, int, int]:
    facts = file.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
