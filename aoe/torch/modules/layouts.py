"""Results lie in memory as PyTorch lays them, which depends on how the arguments lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from aoe.torch.modules.calls import FlatCall

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
        """Whether so many ways are known that no other is learnt."""
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
