"""Says which module and which operator stand in the way of an export."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from aoe.errors import ModelImportError

_TORCH = Path(torch.__file__).parent
_NO_COUNTERPART = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
_TRANSLATED = re.compile(
    r"Error when translating node %(\w+) : .*?call_function\[target=([\w.]+)\]"
)
_HINTS = {
    "GuardOnDataDependentSymNode": "its Python code depends on the values of a tensor; "
    "optimize the modules around that branch, or use torch.compile(backend='aoe')",
}
_VIOLATED = re.compile(r"Constraints violated \(.*?\)")
"""Begins PyTorch's message about a range that does not hold; the reasons are a list below."""
_CACHE = re.compile(r"returns a \w*Cache,")
_LONGEST = 200


def tracing_error(error: BaseException, root: torch.nn.Module) -> ModelImportError:
    """Return the error of `torch.export`, with the innermost module that was running."""
    module, place, operator = "", "", ""
    names = {id(submodule): name for name, submodule in root.named_modules()}
    for frame in _frames(error.__traceback__):
        owner = frame.tb_frame.f_locals.get("self")
        module = names.get(id(owner), module)
        file = Path(frame.tb_frame.f_code.co_filename)
        if _TORCH not in file.parents and id(owner) in names:
            place = f" at {file.name}:{frame.tb_lineno}"
        called = frame.tb_frame.f_locals.get("func")
        if isinstance(called, torch._ops.OpOverload):
            operator = f"operator {called}: "
    return ModelImportError(
        module_place(root, module),
        f"cannot be exported{place}: {operator}{_first_line(error)}",
        hint=_HINTS.get(type(error).__name__) or _cache_hint(error),
    )


def _cache_hint(error: BaseException) -> str | None:
    if _CACHE.search(str(error)):
        return (
            "give example_kwargs={'use_cache': False}, and call it so; or let transformers make a "
            "tree of its cache first: transformers.integrations.executorch."
            "register_dynamic_cache_export_support()"
        )
    return None


def translation_error(
    error: BaseException, root: torch.nn.Module, program: torch.export.ExportedProgram
) -> ModelImportError:
    """Return which operator ONNX has no counterpart for, with the module that uses it."""
    operator, node_name, reason = "", "", _first_line(error)
    for cause in _chain(error):
        if found := _NO_COUNTERPART.search(str(cause)):
            operator, reason = found[1], "ONNX has no counterpart"
        if found := _TRANSLATED.search(str(cause)):
            node_name = found[1]
            operator = operator or found[2]
            reason = _first_line(cause.__cause__) if cause.__cause__ and not operator else reason
    scope = _scope_of(program, operator, node_name)
    return ModelImportError(
        module_place(root, scope), f"operator {operator or '?'} cannot be exported: {reason}"
    )


def node_scope(node: torch.fx.Node) -> str:
    """Return the qualified name of the module a traced operator belongs to."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values()]
    return str(paths[-1]).removeprefix("module").lstrip(".") if paths else ""


def module_place(root: torch.nn.Module, name: str) -> str:
    """Return the name of a module in errors: its qualified name and its class."""
    kind = type(dict(root.named_modules()).get(name, root)).__name__
    return f"module {name} ({kind})" if name else f"module {kind}"


def _scope_of(program: torch.export.ExportedProgram, operator: str, node_name: str) -> str:
    """Return the module of an operator; the exporter may have decomposed it since."""
    base = operator.rsplit(".", maxsplit=1)[-1]
    for node in program.graph.nodes:
        parts = str(node.target).split(".") if node.op == "call_function" else []
        if parts and (node.name == node_name or (base and any(p.endswith(base) for p in parts))):
            return node_scope(node)
    return ""


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    text = lines[0] if lines else type(error).__name__
    if found := _VIOLATED.match(text):
        text = "; ".join([found[0], *(line[2:] for line in lines if line.startswith("- "))])
    return text[:_LONGEST].rstrip(". ")
