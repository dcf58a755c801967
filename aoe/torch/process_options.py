"""`set_option`: what a whole process wants, by the names scripts for `torch_npu` use.

Such scripts tune first, then train or infer with what the compile cache and the bank have. So with
one of the options set, `optimize` and the `torch.compile` backend look up and tune nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from aoe.entry.torch_dump import DUMP_FILE
from aoe.errors import OptionError
from aoe.results.files import bank_of_results
from aoe.tuner.mode import parse_cache_mode
from aoebank import say

MODE = "ACL_OP_COMPILER_CACHE_MODE"
DIRECTORY = "ACL_OP_COMPILER_CACHE_DIR"
"""Source: CANN, PyTorch adapter, `torch_npu.npu.set_option`."""

_chosen: dict[str, Any] = {}


def set_option(options: Mapping[str, str | os.PathLike[str]]) -> None:
    """Set what `optimize` and the backend do where a call does not say otherwise.

    One line on standard error says that tuning is off from here on, or on again.

    Args:
        options: `ACL_OP_COMPILER_CACHE_MODE` is enable (compiled kernels are taken and kept), force
            (compiled anew) or disable; `ACL_OP_COMPILER_CACHE_DIR` is where they are kept. A
            directory `aoe --output` wrote is a bank as well. With either, only what the bank has
            is used; `optimize(..., lookup_only=False)` tunes all the same. An empty mapping takes
            everything back.

    Warns:
        UserWarning: the directory is a dump of `set_aoe`, which holds no kernels and no bank.

    Raises:
        OptionError: another option, or a value that cannot be meant.
    """
    known = (MODE, DIRECTORY)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise OptionError(
                "aoe.torch.set_option",
                "unknown option",
                got=name,
                expected=f"did you mean {near[0]}?" if near else " or ".join(known),
            )
    found: dict[str, Any] = {}
    if MODE in options:
        found["cache_mode"] = parse_cache_mode(str(options[MODE]), MODE)
    if DIRECTORY in options:
        found["cache_dir"] = Path(options[DIRECTORY])
    if found:
        bank = bank_of_results(found["cache_dir"]) if DIRECTORY in options else None
        found |= {"lookup_only": True} | ({"bank": bank} if bank is not None else {})
    _say_what_changes(found)
    _chosen.clear()
    _chosen.update(found)


def _say_what_changes(found: Mapping[str, Any]) -> None:
    """Say whether calls tune from here on: CANN's tutorial turns tuning on by these names."""
    if found:
        say(
            "aoe.torch.set_option: from here on optimize and the torch.compile backend only look "
            "up what the bank has, and tune nothing; optimize(..., lookup_only=False) tunes"
        )
    elif _chosen:
        say("aoe.torch.set_option: from here on optimize and the torch.compile backend tune")
    folder: Path | None = found.get("cache_dir")
    if folder is not None and (folder / DUMP_FILE).is_file():
        warnings.warn(
            f"aoe.torch.set_option: {DIRECTORY}: a dump of set_aoe, which holds no kernels and no "
            f"bank: {folder}; tune it with aoe --model_path={folder} --output=DIR, and name DIR",
            stacklevel=3,
        )


def with_process_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call with those of the process behind them."""
    return {**_chosen, **given}
