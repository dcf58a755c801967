"""The API reference has what the program knows at run time: `mkdocs.yml` names this extension.

The meaning of a parameter of `aoebank` stands in the `Param` of its annotation, where the command
line has it from, and options of `aoe.tune` come from their table; griffe reads sources alone.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe

_PARTS = ("Returns:", "Raises:", "Yields:", "Options:", "Source:")


class Parameters(griffe.Extension):
    """Documents parameters by their `Param`, and shows no more of an annotation than its type."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Complete the docstring of a public function."""
        if func.module.path.startswith("aoebank.") and func.module.name == "api":
            _document(func)
        elif func.path == "aoe.runs.run.tune":
            text = inspect.getdoc(import_module("aoe").tune) or ""
            func.docstring = _docstring(func, text.replace("\nOptions:\n", "\nOther Parameters:\n"))


def _document(func: griffe.Function) -> None:
    from aoebank import command_parameters

    function = getattr(import_module(func.module.path), func.name, None)
    if not callable(function):
        return
    lines = [
        f"    {one.name}: {one.annotation.text or 'See the command.'}"
        for one in command_parameters(function)
    ]
    for parameter in func.parameters:
        hint = parameter.annotation
        if isinstance(hint, griffe.ExprSubscript) and str(hint.left) == "Annotated":
            inner = hint.slice
            is_tuple = isinstance(inner, griffe.ExprTuple)
            parameter.annotation = inner.elements[0] if is_tuple else inner
    if lines:
        text = func.docstring.value if func.docstring else ""
        func.docstring = _docstring(func, _with_arguments(text, lines))


def _with_arguments(text: str, lines: list[str]) -> str:
    own = text.splitlines()
    if "Args:" in own:
        place = own.index("Args:") + 1
        known = {line.split(":")[0].strip() for line in own[place:] if line.startswith("    ")}
        lines = [line for line in lines if line.split(":")[0].strip() not in known]
        return "\n".join([*own[:place], *lines, *own[place:]])
    place = next((n for n, line in enumerate(own) if line in _PARTS), len(own))
    return "\n".join([*own[:place], "", "Args:", *lines, "", *own[place:]])


def _docstring(func: griffe.Function, text: str) -> griffe.Docstring:
    return griffe.Docstring(text, parent=func, parser="google")
