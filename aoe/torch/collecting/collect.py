"""`aoe.torch.set_aoe`: collect what a script computes, for `aoe --model_path=DUMP` to tune."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _python_dispatch

from aoe.errors import ModelImportError, OptionError
from aoe.online.command import FolderTuning
from aoe.torch.collecting.dump import DumpWriter
from aoe.torch.collecting.operator_recorder import OperatorRecorder, OperatorUse, export_operator
from aoe.torch.modules.calls import CallConvention, describe
from aoe.torch.modules.export import export_module, unwrapped
from aoe.torch.scripts.remembering import FIRST_STEP, RememberedCall, remembered_call
from aoe.torch.scripts.running import tune_training_of
from aoebank import plural, say

_MOST_SINGLE_OPERATORS = 32
"""Operators dumped one by one, the largest first: each takes some tenths of a second."""
_LEAST_ELEMENTS = 16384
"""Smaller operators are not dumped: the engine tunes no operator that touches fewer elements."""


def set_aoe(
    dump_path: str | Path,
    steps: int = 1,
    *,
    tune: bool = False,
    output: str | Path | None = None,
    bank: str | Path | None = None,
    tuning_time_limit: float | None = None,
    trials: int | None = None,
) -> Collector:
    """Collect the operators and shapes of the first steps from here on into a dump, and tune it.

    Returns at once and collects until `steps` are over; as a context manager, until its end at
    the latest. A training step ends with an optimizer step. Without gradients, a step ends when a
    module that was called in it is called again. A script that ends before that leaves what was
    collected; one that is killed, the modules.

    Each module that is called by the script itself is exported in its inference form, for each
    form of its inputs; with `tune`, the training of those called with gradients wanted is tuned as
    well. Operators outside of modules, and those of modules that cannot be
    exported as a whole, are dumped one by one. In a distributed job only rank 0 collects.

    Args:
        dump_path: Directory of the dump, made if it is missing, continued if it holds one.
        steps: How many steps to collect.
        tune: Whether the dump is tuned as soon as it is done, by `aoe` in a process of its own;
            the script waits. What an earlier call has collected there is tuned too. A script that
            fails tunes nothing.
        output: Directory for the results; None for the workspace, as for the command.
        bank: Root of the bank, made if it is missing; None for what the variables say.
        tuning_time_limit: Seconds for tuning; None for no limit.
        trials: Most candidates measured for one operator; None for the default.

    Warns:
        UserWarning: no step follows the call, so nothing is collected; tuning failed.

    Raises:
        OptionError: fewer than one step, a limit that is none, or one without `tune`.
        OutputError: the directory cannot be written.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OptionError("set_aoe", "not a number of steps", got=steps, expected="1 or more")
    tuning = FolderTuning(
        output=output, bank=bank, tuning_time_limit=tuning_time_limit, trials=trials
    )
    if not tune and tuning != FolderTuning():
        raise OptionError(
            "set_aoe", "options for tuning, and nothing is to be tuned", hint="set_aoe(tune=True)"
        )
    tuning.environment()  # a bank that cannot be is found out before the steps
    remembered = FIRST_STEP.calls
    options = {"bank": bank, "tuning_time_limit": tuning_time_limit, "trials": trials}
    given = {name: value for name, value in options.items() if value is not None}

    def train(calls: Sequence[RememberedCall]) -> None:
        tune_training_of(calls, given, Path(output or dump_path), Path(dump_path).name)

    collector = Collector(
        DumpWriter(Path(dump_path)),
        steps=steps,
        tuning=tuning if tune else None,
        train=train if tune else None,
        remembered=remembered,
    )
    if tune and remembered and _is_first_rank():
        # here, as behind the script's last line Python starts no thread any more
        train(remembered)
    collector.start()
    return collector


def _is_first_rank() -> bool:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return True
    return bool(distributed.get_rank() == 0)


class Collector:
    """Watches module calls and operators of one thread; a context manager that ends watching.

    Attributes:
        problems: Why modules or operators could not be dumped, by their name.

    Args:
        writer: The dump.
        steps: How many steps to collect.
        tuning: How the dump is tuned when it is done; None leaves that to somebody else.
        train: Tunes the training of calls; None leaves that to somebody else, too.
        is_first_rank: Whether this process is the one of its job that collects.
        remembered: Calls before this watch; they are collected where none follows.
    """

    def __init__(
        self,
        writer: DumpWriter,
        *,
        steps: int,
        tuning: FolderTuning | None = None,
        train: Callable[[Sequence[RememberedCall]], object] | None = None,
        is_first_rank: Callable[[], bool] = _is_first_rank,
        remembered: Sequence[RememberedCall] = (),
    ) -> None:
        self.problems: dict[str, str] = {}
        self._remembered = remembered
        self._is_first_rank = is_first_rank
        self._tuning = tuning
        self._train = train
        self._trained: list[RememberedCall] = []  # Calls whose training is not tuned yet
        self._writer = writer
        self._steps = steps
        self._done = 0
        self._recorder = OperatorRecorder()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._active = self._installed = self._bystander = self._in_a_hurry = False
        self._is_at_exit = False
        self._names: dict[int, str] | None = None
        self._called: set[int] = set()
        self._roots: dict[int, torch.nn.Module] = {}  # kept alive, so that ids stay theirs
        self._files: dict[tuple[int, str], str] = {}

    @property
    def directory(self) -> Path:
        """Directory of the dump."""
        return self._writer.directory

    def start(self) -> None:
        """Begin to watch."""
        self._active = True
        self._plain_call = torch.nn.Module.__call__
        self._own_call = _watched_call(self, self._plain_call)
        torch.nn.Module.__call__ = self._own_call
        self._hooks = (
            register_optimizer_step_pre_hook(self._begin_optimizer_step),
            register_optimizer_step_post_hook(lambda *step: self._end_training_step()),
        )
        atexit.register(self._close_at_exit)
        self._recorder.__enter__()
        self._installed = True

    def close(self) -> None:
        """Stop watching and finish the dump; a second call does nothing."""
        was_active, self._active = self._active, False
        atexit.unregister(self._close_at_exit)
        self._recorder.paused = True
        self._leave()
        if not was_active:
            return
        has_seen = bool(self._roots or self._recorder.uses)
        try:
            if self._is_collecting():
                with _unwatched():
                    if not self._in_a_hurry:
                        # lone operators, as of a line that prints a loss, are no step
                        has_seen |= not self._roots and self._dump_remembered()
                        self._dump_single_operators()
                    self._write()
        finally:
            self._roots.clear()
            self._writer.close()
        for place, problem in self.problems.items():
            warnings.warn(f"set_aoe: not in the dump: {place}: {problem}", stacklevel=2)
        if self._is_collecting():
            self._conclude(has_seen)

    def _dump_remembered(self) -> bool:
        """Dump what the script called before this watch; False if nothing is known of that."""
        modules = [(call, call.module()) for call in self._remembered]
        known = [(call, module) for call, module in modules if module is not None]
        for call, module in known:
            self._dump_root(unwrapped(module), *call.arguments(), ())
        if known:
            names = ", ".join(dict.fromkeys(type(module).__name__ for _, module in known))
            say(f"set_aoe: no step followed the call; collected from the first step: {names}")
        return bool(known)

    def _conclude(self, has_seen: bool) -> None:
        """Say that nothing was collected, if so, and tune what there is."""
        if not has_seen:
            warnings.warn(
                "set_aoe: no step followed the call, so nothing was collected; steps before it are "
                "remembered where the script itself imports aoe.torch before them, so import it "
                "at the top, or call set_aoe before the steps",
                stacklevel=3,
            )
        if self._train is not None and self._trained:
            if self._is_at_exit:
                warnings.warn(
                    "set_aoe: the script ended before its steps were over, so its training is not "
                    "tuned; ask for fewer steps",
                    stacklevel=3,
                )
            else:
                self._train(self._trained)
        if self._tuning is not None and self._writer.has_graphs:
            left = f"; the dump is there: aoe --model_path={self.directory}"
            self._tuning.run(self.directory, where="set_aoe", left=left)

    def _close_at_exit(self) -> None:
        """Finish the dump of a script that is over; after Ctrl-C without further exports."""
        ended_by = getattr(sys, "last_type", None)
        self._in_a_hurry = ended_by is KeyboardInterrupt
        self._is_at_exit = True  # Python starts no thread any more, and PyTorch's tuning has some
        if ended_by is not None:
            self._tuning = self._train = None
        self.close()

    def _leave(self) -> None:
        """Take everything out of PyTorch, unless another mode has to be left first."""
        if not self._installed or threading.get_ident() != self._thread:
            return
        if _python_dispatch._get_current_dispatch_mode() is not self._recorder:
            return
        self._installed = False
        self._recorder.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()
        if torch.nn.Module.__call__ is self._own_call:
            torch.nn.Module.__call__ = self._plain_call

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._tuning = self._train = None
        self.close()

    # ---- one call ----

    def call(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a module as it would run unwatched, and note what it computes."""
        if not self._active:
            self._leave()
        if not self._watches(module):
            return self._plain_call(module, *args, **kwargs)
        if self._names is not None:
            return self._call_inner(module, args, kwargs, self._names)
        if not torch.is_grad_enabled() and id(module) in self._called:
            self._end_step()
            if not self._active:
                return self._plain_call(module, *args, **kwargs)
        return self._call_root(module, args, kwargs)

    def _watches(self, module: torch.nn.Module) -> bool:
        return (
            self._active
            and not self._recorder.paused
            and threading.get_ident() == self._thread
            and not torch.compiler.is_compiling()
            and self._is_collecting()
        )

    def _is_collecting(self) -> bool:
        """Return False in every process of a job but one; remembered beyond the job's end.

        A forked child has the collector too, and the same thread by number.
        """
        self._bystander = self._bystander or not self._is_first_rank()
        return not self._bystander and os.getpid() == self._process

    def _call_inner(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        names: Mapping[int, str],
    ) -> Any:
        outer = self._recorder.scope
        self._recorder.scope = names.get(id(module), outer)
        try:
            return self._plain_call(module, *args, **kwargs)
        finally:
            self._recorder.scope = outer

    def _call_root(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        recorder = self._recorder
        self._called.add(id(module))
        self._roots[id(module)] = module
        self._names = {id(submodule): name for name, submodule in module.named_modules()}
        weights = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        recorder.is_weight = lambda tensor: id(tensor) in weights
        recorder.found.clear()
        recorder.scope = ""
        try:
            result = self._plain_call(module, *args, **kwargs)
        finally:
            self._names, recorder.scope = None, None
        with _unwatched():
            self._pause(True)
            try:
                self._dump_root(unwrapped(module), args, kwargs, tuple(recorder.found))
                self._remember(module, args, kwargs)
            finally:
                self._pause(False)
        return result

    def _remember(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Keep a call of training whose like was not seen before."""
        call = remembered_call(module, args, kwargs) if self._train is not None else None
        if call is None or not call.wants_gradients:
            return
        if call not in self._trained and call not in self._remembered:
            self._trained.append(call)

    def _dump_root(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        found: tuple[str, ...],
    ) -> None:
        try:
            call = CallConvention(module.forward).flatten(args, kwargs)
        except TypeError as error:  # a hook of the module makes other arguments of these
            self.problems[type(module).__name__] = f"its forward takes other arguments: {error}"
            return
        said = describe(call)
        known = (id(module), said)
        if known not in self._files:
            self._files[known] = ""
            try:
                exported = export_module(module, call)
                self._files[known] = self._writer.add_graph(
                    exported.proto, module=type(module).__name__, call=said
                )
                self._write()  # whatever may end the script, this is there
            except ModelImportError as error:
                self.problems[error.where] = error.problem
        file = self._files[known]
        self._writer.count(file)
        for key in found:
            use = self._recorder.uses[key]
            use.graph = use.graph or file

    # ---- one step ----

    def _begin_optimizer_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Leave out what the optimizer computes, and watch what its closure does (LBFGS)."""
        self._pause(True)
        watched = [self._watched_closure(argument) for argument in args[1:]]
        named = {name: self._watched_closure(argument) for name, argument in kwargs.items()}
        return (*args[:1], *watched), named

    def _watched_closure(self, argument: Any) -> Any:
        if not self._active or not callable(argument):
            return argument

        @functools.wraps(argument)
        def closure(*args: Any, **kwargs: Any) -> Any:
            self._pause(False)
            try:
                return argument(*args, **kwargs)
            finally:
                self._pause(True)

        return closure

    def _end_training_step(self) -> None:
        self._pause(False)
        self._end_step()

    def _end_step(self) -> None:
        if not self._active or not self._called:
            return
        self._called.clear()
        self._done += 1
        if self._done >= self._steps:
            self.close()
        else:
            self._write()

    def _pause(self, paused: bool) -> None:
        self._recorder.paused = paused or not self._active

    # ---- the dump ----

    def _dump_single_operators(self) -> None:
        """Dump what no graph of a module holds; why an operator is not dumped is its reason."""
        uses = [
            use
            for use in self._recorder.uses.values()
            if not use.graph and use.phase == "forward" and not use.reason
        ]
        uses.sort(key=lambda use: -use.sample.elements * use.count)
        for number, use in enumerate(uses):
            if use.sample.elements * use.count < _LEAST_ELEMENTS:
                use.reason = f"touches {plural(use.sample.elements * use.count, 'element')} only"
            elif number >= _MOST_SINGLE_OPERATORS:
                use.reason = f"only the {_MOST_SINGLE_OPERATORS} largest are dumped one by one"
            else:
                self._dump_operator(use)

    def _dump_operator(self, use: OperatorUse) -> None:
        try:
            proto = export_operator(use.sample).proto
        except ModelImportError as error:
            use.reason = error.problem
            return
        name = use.operator.split(".")[1]
        use.graph = self._writer.add_graph(proto, module=name, call=", ".join(use.inputs))
        self._writer.count(use.graph, use.count)

    def _write(self) -> None:
        self._writer.write([use.to_json() for use in self._recorder.uses.values()])


def _watched_call(collector: Collector, plain_call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        return collector.call(module, args, kwargs)

    return functools.wraps(plain_call)(watched)


@contextmanager
def _unwatched() -> Iterator[None]:
    """Keep every dispatch mode, the user's too, from seeing what is done for the dump."""
    with _python_dispatch._disable_current_modes():
        yield
