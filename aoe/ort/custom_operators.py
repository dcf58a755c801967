"""Operators of other libraries (`--custom_ops_library`), known to every session of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnxruntime as ort

from aoe.errors import OptionError

OPTION = "--custom_ops_library"
_MARK = "aoe.custom_operators"
"""Entry of options that have them: ONNX Runtime takes no domain twice."""


def register_operators(options: ort.SessionOptions, libraries: Sequence[Path]) -> None:
    """Let sessions with these options know the operators of libraries; twice does no harm.

    Raises:
        OptionError: one is not there, or not a library of operators this ONNX Runtime can load.
    """
    if not libraries or _is_marked(options):
        return
    for library in libraries:
        if not library.is_file():
            raise OptionError(OPTION, "no such file", got=library)
        try:
            options.register_custom_ops_library(str(library.absolute()))
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise OptionError(
                OPTION,
                f"not a library of operators that can be loaded here: {error}",
                got=library,
                expected="a shared library that exports RegisterCustomOps",
            ) from error
    options.add_session_config_entry(_MARK, "registered")


def try_operators(libraries: Sequence[Path]) -> None:
    """Refuse libraries that cannot be loaded, before anything is done with a model.

    Raises:
        OptionError: as `register_operators`.
    """
    register_operators(ort.SessionOptions(), libraries)


def options_with_operators(
    given: ort.SessionOptions | None, libraries: Sequence[Path]
) -> ort.SessionOptions | None:
    """Return session options, the given or new ones, that know the operators of libraries.

    Raises:
        OptionError: as `register_operators`.
    """
    if not libraries:
        return given
    options = given if given is not None else ort.SessionOptions()
    register_operators(options, libraries)
    return options


def _is_marked(options: ort.SessionOptions) -> bool:
    try:
        return bool(options.get_session_config_entry(_MARK))
    except Exception:  # there is no such entry
        return False
