"""`set_option`: what a whole process wants, by the names scripts for `torch_npu` use.

Such scripts tune first, then train or infer with what the compile cache and the bank have. So with
one of the options set, `optimize` and the `torch.compile` backend look up and tune nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from aoe.errors import OptionError
from aoe.tuner.mode import parse_cache_mode
from aoebank import say

MODE = "ACL_OP_COMPILER_CACHE_MODE"
DIRECTORY = "ACL_OP_COMPILER_CACHE_DIR"
"""Source: torch_npu 2.14.0, npu/npu_config.py, as of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedOption:
    """An option of `torch_npu` that changes nothing on a CPU."""

    why: str  # What of an NPU it is about, or what does it here
    values: tuple[str, ...] = ()  # What it takes; empty for anything

    def takes(self, value: str) -> bool:
        """True for a value `torch_npu` takes."""
        return value in self.values or not self.values


_CORES = tuple(map(str, range(1, 33)))
UNUSED: Mapping[str, UnusedOption] = {
    "ACL_PRECISION_MODE": UnusedOption(
        why="optimize(..., precision_mode=...) allows lower precisions",
        values=("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    ),
    "ACL_OP_SELECT_IMPL_MODE": UnusedOption(
        why="the fastest kernel that is right is taken",
        values=("high_performance", "high_precision"),
    ),
    "ACL_AICORE_NUM": UnusedOption(why="optimize(..., core_num=...) says how many", values=_CORES),
    "ACL_OPTYPELIST_FOR_IMPLMODE": UnusedOption(why="the fastest kernel that is right is taken"),
    "ACL_OP_DEBUG_LEVEL": UnusedOption(
        why="kernels are compiled by no compiler of an NPU", values=("0", "1", "2", "3", "4")
    ),
    "ACL_DEBUG_DIR": UnusedOption(why="kernels are compiled by no compiler of an NPU"),
    "ACL_OP_DEBUG_OPTION": UnusedOption(why="kernels are compiled by no compiler of an NPU"),
}
"""The seven of the nine options that have no effect."""

_LOADING = "aoe.torch.scripts.loading"
"""Compiles with the backend, which asks this file for the options of the process."""
_chosen: dict[str, Any] = {}


def set_option(option: Mapping[str, str | os.PathLike[str]]) -> None:
    """Set what `optimize` and the backend do where a call does not say otherwise.

    One line on standard error says that tuning is off from here on, or on again.

    Args:
        option: `ACL_OP_COMPILER_CACHE_MODE` is enable (compiled kernels are taken and kept), force
            (compiled anew) or disable; `ACL_OP_COMPILER_CACHE_DIR` is where they are kept. A
            directory `aoe --output` wrote is a bank as well. With either, only what the bank has
            is used; `optimize(..., lookup_only=False)` tunes all the same. The other options of
            `torch_npu` have no effect. An empty mapping takes everything back.

    Warns:
        UserWarning: an option has no effect, or is none of `torch_npu`'s; the directory is a dump
            of `set_aoe`, which holds no kernels and no bank.

    Raises:
        OptionError: a value that cannot be meant.
    """
    if not isinstance(option, Mapping):
        raise OptionError(
            "aoe.torch.set_option", "no mapping of options", got=type(option).__name__
        )
    from aoe.results.files import bank_of_results

    found: dict[str, Any] = {}
    loading = import_module(_LOADING)
    trained = loading.training_of_results(Path(option[DIRECTORY])) if DIRECTORY in option else None
    if MODE in option:
        found["cache_mode"] = parse_cache_mode(str(option[MODE]), MODE)
    if DIRECTORY in option:
        found["cache_dir"] = Path(option[DIRECTORY])
    if found:
        bank = bank_of_results(found["cache_dir"]) if DIRECTORY in option else None
        if bank is None and trained is not None and trained.bank is not None:
            bank = trained.bank
        found |= {"lookup_only": True} | ({"bank": bank} if bank is not None else {})
    without_effect = [
        words for name in option if (words := _why_without_effect(name, str(option[name])))
    ]
    for words in without_effect:
        warnings.warn(f"aoe.torch.set_option: {words}", stacklevel=2)
    if option and len(without_effect) == len(option):
        return  # what an earlier call has set is as before
    _say_what_changes(found, is_dump=trained is None)
    _chosen.clear()
    _chosen.update(found)
    loading.end_loading()
    if trained is not None and trained.is_slower:
        say(
            "aoe.torch.set_option: modules are trained by PyTorch: whole steps were slower as tuned"
        )
    elif trained is not None:
        loading.load_training(_chosen)
        say(
            "aoe.torch.set_option: modules that are called with gradients wanted are loaded as "
            "they were tuned, forward and backward"
        )


def _why_without_effect(name: str, value: str) -> str:
    """Return the warning about an option without effect; empty for the two that have one.

    Raises:
        OptionError: `torch_npu` does not take the value either.
    """
    if name in (MODE, DIRECTORY):
        return ""
    unused = UNUSED.get(name)
    if unused is None:
        near = get_close_matches(name, (MODE, DIRECTORY, *UNUSED), n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"{name} is none of the nine options of torch_npu, and has no effect{meant}"
    if not unused.takes(value):
        expected = "1 to 32" if unused.values == _CORES else " or ".join(unused.values)
        raise OptionError(name, "no value of it", got=value, expected=expected)
    return f"{name} has no effect: {unused.why}"


def _say_what_changes(found: Mapping[str, Any], *, is_dump: bool) -> None:
    """Say whether calls tune from here on: CANN's tutorial turns tuning on by these names."""
    from aoe.entry.torch_dump import DUMP_FILE

    if found:
        say(
            "aoe.torch.set_option: from here on optimize and the torch.compile backend only look "
            "up what the bank has, and tune nothing; optimize(..., lookup_only=False) tunes"
        )
    elif _chosen:
        say("aoe.torch.set_option: from here on optimize and the torch.compile backend tune")
    folder: Path | None = found.get("cache_dir")
    if is_dump and folder is not None and (folder / DUMP_FILE).is_file():
        warnings.warn(
            f"aoe.torch.set_option: {DIRECTORY}: a dump of set_aoe, which holds no kernels and no "
            f"bank: {folder}; tune it with aoe --model_path={folder} --output=DIR, and name DIR",
            stacklevel=3,
        )


def with_process_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call with those of the process behind them."""
    return {**_chosen, **given}
