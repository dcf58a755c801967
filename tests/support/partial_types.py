"""A plugin of mypy: a `functools.partial` is a callable with the parameters it leaves open.

By itself mypy takes a partial for any callable, whatever it is assigned or handed to. What binds a
parameter that its function has lost, or leaves another number of them open, is an error with this.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.plugins.functools import partial_new_callback
from mypy.types import CallableType, Instance, Type, get_proper_type

_OPEN_PARAMETERS = "__mypy_partial"
"""Where mypy keeps them, for calls of the partial."""


def _callable_of(context: FunctionContext) -> Type:
    partial = get_proper_type(partial_new_callback(context))
    if not isinstance(partial, Instance) or partial.extra_attrs is None:
        return partial
    called = get_proper_type(partial.extra_attrs.attrs[_OPEN_PARAMETERS])
    if not isinstance(called, CallableType):
        return partial
    return called.copy_modified(fallback=partial, special_sig=None)


class PartialTypes(Plugin):
    """Gives each `partial(...)` the type of what it can be called with."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return what is asked about a call of `partial`."""
        return _callable_of if fullname == "functools.partial" else None


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; called by mypy."""
    return PartialTypes
