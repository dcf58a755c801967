"""Modules of a training script, compiled where gradients are wanted, unknown to the script.

The outermost modules are compiled in place, as `Module.compile` does it, so that the script keeps
its objects, its optimizers and the names in its state dicts. A module none of whose graphs gains
anything becomes what it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from aoe.errors import FallbackWarning, first_line
from aoe.settings import environment
from aoe.torch.fused_optimizers import FusedOptimizers
from aoe.torch.kept_memory import keep_freed_memory
from aoe.torch.modules.backend import aoe_backend, region_settings, wants_gradients_of
from aoe.torch.modules.training.graphs import MakeSettings, TrainingGraph
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.options import make_options
from aoe.torch.scripts.outermost import OutermostCalls, wants_gradients
from aoe.torch.scripts.regions import TunedGraph, is_first_rank, is_in_group
from aoe.torch.scripts.whole_steps import (
    WATCHED_STEPS,
    ComparedTraining,
    KeptGains,
    StepGain,
    StepOutcome,
    WholeSteps,
)
from aoe.tuner.parts import library_versions
from aoe.tuner.reuse.earlier import EarlierResult
from aoebank import say, size_text

_COMPILED_AT = 2
"""Call at which a module is compiled. The first one shows whether gradients are differentiated."""
_NO_GRAPH = "PyTorch's compiler makes no training graph of it, as of nn.LSTM and nn.GRU"
_NOT_COMPILED = (torch.jit.ScriptModule, torch.nn.DataParallel)
_SLOWER = "whole steps are slower with it"
MakeGraph = Callable[[str, int], TunedGraph]
MakeSteps = Callable[[ComparedTraining], WholeSteps]


class ScriptTraining:
    """Compiles the outermost modules whose gradients are wanted, and fuses optimizers.

    Attributes:
        graphs: What came of the training graphs, in the order in which they were made.
        left: Modules that were left as they are, by class, and why.
        optimizers: What sets `fused=True`.
        steps: What compares whole steps, None where nothing does.

    Args:
        options: Of `torch.compile(..., backend="aoe")`.
        make_graph: Makes what tunes a graph, of the class of its module and its number.
        fuses: True if optimizers are fused, too, and freed memory is kept.
        base: An earlier result, of which only what has changed is tuned.
        compiled_at: Call of a module at which it is compiled.
        make_steps: Makes what compares whole steps; None to compare none.
        on_compared: Called once whole steps are compared.

    Raises:
        OptionError: an unknown option or value. Within the script Dynamo would swallow it.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        make_graph: MakeGraph = TunedGraph,
        fuses: bool = True,
        base: EarlierResult | None = None,
        compiled_at: int = _COMPILED_AT,
        make_steps: MakeSteps | None = None,
        on_compared: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings = region_settings(make_options(options), "script", "forward")
        self.graphs: list[TunedGraph] = []
        self.left: dict[str, str] = {}
        self.optimizers = FusedOptimizers(is_told=is_first_rank())
        self._options = dict(options)
        self._make_graph = make_graph
        self._fuses = fuses
        self._base = base
        self._compiled_at = compiled_at
        self._calls: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._compiled: list[ref[CompiledModule]] = []
        self._steps = 0
        self.steps = None if make_steps is None else make_steps(self)
        self._on_compared = on_compared
        self._watch = OutermostCalls(self._see)
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Begin to watch the script."""
        # Dynamo's own errors leave a frame to eager: a script that runs must go on running
        torch._dynamo.config.suppress_errors = True
        self._watch.start()
        hook = register_optimizer_step_post_hook(lambda one, *step: self._end_step(one))
        self._undo = [self._watch.close, hook.remove, self._watch_autograd()]
        if self._fuses:
            self.optimizers.start()
            if keep_freed_memory(environment()) and is_first_rank():
                say("aoe: memory: what a step frees is kept for the next one")

    def close(self) -> None:
        """Look for no further modules and optimizers; those that are compiled stay so."""
        for undo in self._undo:
            undo()
        self._undo = []
        self.optimizers.close()
        if self.steps is not None:
            self.steps.close()

    def compile(self, module: torch.nn.Module) -> CompiledModule:
        """Compile a module in place."""
        name = type(module).__name__
        found = CompiledModule(
            module,
            partial(self._backend, name),
            on_no_graph=lambda: self.left.setdefault(name, _NO_GRAPH),
            steps=self.steps,
        )
        self._compiled.append(ref(found))
        return found

    # ---- the script ----

    def _see(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if not wants_gradients(module, args, kwargs) or torch._C._current_graph_task_id() != -1:
            return  # a checkpoint has to compute in backward as it has computed before
        reason = ""
        if isinstance(module, DistributedDataParallel):
            reason = _reason_against_buckets(module)
            module = module.module
        reason = reason or _reason_against(module)
        if reason:
            self.left.setdefault(type(module).__name__, reason)
            return
        count = self._calls[module] = self._calls.get(module, 0) + 1
        if count == self._compiled_at:
            self.compile(module)

    def _end_step(self, optimizer: torch.optim.Optimizer) -> None:
        if torch.compiler.is_compiling():
            return
        self._steps += 1
        if self._steps == WATCHED_STEPS:
            self._watch.close()
        if self.steps is not None:
            self.steps.end_step(optimizer)

    def _watch_autograd(self) -> Callable[[], None]:
        """Notice gradients of gradients, which AOTAutograd does not compute."""
        plain = {name: getattr(torch.autograd, name) for name in ("grad", "backward")}

        def watched(name: str, *args: Any, **kwargs: Any) -> Any:
            place = 4 if name == "grad" else 3
            if kwargs.get("create_graph") or (len(args) > place and args[place]):
                self._leave_all("gradients of gradients are computed (create_graph=True)")
            return plain[name](*args, **kwargs)

        for name in plain:
            setattr(torch.autograd, name, partial(watched, name))

        def undo() -> None:
            for name, function in plain.items():
                setattr(torch.autograd, name, function)

        return undo

    def _leave_all(self, reason: str) -> None:
        self._watch.close()
        self.left["all modules"] = reason
        self._undo_modules()
        if self.steps is not None:
            self.steps.leave(reason)

    def _undo_modules(self) -> None:
        """Give all modules their own calls back."""
        for compiled in self._compiled:
            if (found := compiled()) is not None:
                found.undo()

    # ---- whole steps ----

    def has_tuned(self) -> bool | None:
        """True if a step is computed otherwise than by PyTorch; None while that is open."""
        if not all(graph.is_settled for graph in self.graphs):
            return None
        return any(graph.is_used for graph in self.graphs) or self.optimizers.has_fused

    def use(self, *, is_tuned: bool) -> None:
        """Update as tuned in the next step, or as the script has it; modules ask by themselves."""
        self.optimizers.use(is_fused=is_tuned)

    def known(self) -> StepGain | None:
        """Return the gain of such steps in an earlier run, None if none has compared them."""
        return KeptGains(self._settings).find(self._facts())

    def decided(self, gain: StepGain) -> None:
        """Keep what was found; a slower step is PyTorch's again."""
        if not gain.is_known and gain.outcome is not StepOutcome.UNDECIDED and is_first_rank():
            KeptGains(self._settings).keep(self._facts(), gain)
        if gain.outcome is StepOutcome.SLOWER:
            self._undo_modules()
            for graph in self.graphs:
                graph.is_used = False
            self.optimizers.give_back(_SLOWER)
        self._on_compared()

    def _facts(self) -> tuple[str, ...]:
        """Return the facts that tell the steps of a training from those of others."""
        return (
            library_versions()["aoe"],
            *(graph.facts for graph in self.graphs),
            *(f"{one.name} {one.groups} {one.fused}" for one in self.optimizers.found),
            f"{torch.distributed.get_world_size() if is_in_group() else 1} processes",
        )

    # ---- the backend ----

    def _backend(
        self, name: str, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Return the callable of a graph: eager, unless its gradients are wanted."""
        eager: Callable[..., Any] = graph_module.forward
        if not wants_gradients_of(example_inputs):
            return eager
        try:
            return aoe_backend(
                graph_module,
                example_inputs,
                options=self._options,
                train=partial(self._train, name),
            )
        except Exception as error:  # whatever a graph may have, the script goes on
            warnings.warn(
                f"a training graph of {name} stays in PyTorch: {first_line(error)}",
                FallbackWarning,
                stacklevel=2,
            )
            return eager

    def _train(
        self,
        name: str,
        graph_module: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        make_settings: MakeSettings,
    ) -> Callable[..., Any]:
        tuned = self._make_graph(name, len(self.graphs))

        def settings(direction: str) -> RegionSettings:
            return replace(make_settings(direction), name=name, base=self._base)

        computed = TrainingGraph(graph_module, example_inputs, settings, choice=tuned)
        self.graphs.append(tuned)
        for compiled in self._compiled:
            if (found := compiled()) is not None and found.is_called:
                found.graphs.append(tuned)

        def compute(*inputs: Any) -> Any:
            tuned.calls += 1
            return computed(*inputs)

        return compute


class CompiledModule:
    """Computes the calls of a module: by its compiled form where gradients are wanted.

    Evaluation, and calls that are differentiated by what they are given (adversarial examples,
    penalties on gradients), are the module's own.

    Attributes:
        graphs: Of the module.
        is_called: True while its compiled form is called.

    Args:
        module: It is called through this object from now on.
        backend: Compiles its graphs.
        on_no_graph: Called if the first compiled call has made no training graph.
        steps: Says which calls are the module's own, for comparing; None for none of them.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        backend: Callable[..., Any],
        on_no_graph: Callable[[], object] = lambda: None,
        steps: WholeSteps | None = None,
    ) -> None:
        self.graphs: list[TunedGraph] = []
        self.is_called = False
        self._module = module
        self._on_no_graph = on_no_graph
        self._steps = steps
        self._eager = eager = module._call_impl

        def compute(*args: Any, **kwargs: Any) -> Any:
            return eager(*args, **kwargs)  # Dynamo passes frames of PyTorch's own modules over

        # code of its own: Dynamo compiles equal code eight times at most, for all modules together
        compute.__code__ = compute.__code__.replace(co_name=f"compute_{type(module).__name__}")
        self._code = compute.__code__
        self._compiled = torch.compile(compute, backend=backend)
        self._is_settled = False
        module._compiled_call_impl = self

    def undo(self) -> None:
        """Give the module its own calls back."""
        if compiled_form(self._module) is self:
            self._module._compiled_call_impl = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if (
            not torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or any(map(_is_source, args))
            or any(map(_is_source, kwargs.values()))
        ):
            return self._eager(*args, **kwargs)
        if self._steps is not None and self._steps.forward(self._module):
            return self._eager(*args, **kwargs)
        self.is_called = True
        try:
            results = self._compiled(*args, **kwargs)
            if not self.graphs and not self._is_settled:
                self._on_no_graph()
            return results
        except Exception:
            # the error of one call: Dynamo would leave all later ones to eager, too
            _compile_again(self._code)
            raise
        finally:
            self.is_called = False
            if not self._is_settled and all(graph.is_settled for graph in self.graphs):
                self._is_settled = True
                if not any(graph.is_used for graph in self.graphs):
                    self.undo()


def _compile_again(code: CodeType) -> None:
    """Let Dynamo look at the next call of a function it has left to eager; graphs it has stay."""
    types = torch._dynamo.types
    strategy = types.FrameExecStrategy(types.FrameAction.DEFAULT, types.FrameAction.DEFAULT)
    torch._dynamo.eval_frame.set_code_exec_strategy(code, strategy)


def compiled_form(module: torch.nn.Module) -> CompiledModule | None:
    """Return the compiled form of a module that was compiled in place, None for a plain one."""
    found = module._compiled_call_impl
    return found if isinstance(found, CompiledModule) else None


def _is_source(value: Any) -> bool:
    """True for a tensor that no operator made, and whose gradient is wanted."""
    return isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf


def _reason_against_buckets(ddp: DistributedDataParallel) -> str:
    """Return why a module stays as it is for the sake of its buckets.

    Dynamo cuts graphs where buckets end, and fails where they are smaller than the first one.
    """
    first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    return (
        f"its buckets are smaller than {size_text(first)}" if ddp.bucket_bytes_cap < first else ""
    )


def _reason_against(module: torch.nn.Module) -> str:
    if isinstance(module, _NOT_COMPILED):
        return f"it is a {type(module).__name__}"
    if isinstance(module, torch._dynamo.eval_frame.OptimizedModule):
        return "the script compiles it itself"
    if module._compiled_call_impl is not None and compiled_form(module) is None:
        return "the script compiles it itself"
    if any(type(one).__name__.startswith(("FSDP", "FullySharded")) for one in module.modules()):
        return "its parameters are sharded (FSDP)"
    if any(one.device.type != "cpu" for one in module.parameters()):
        return "it is not on the CPU"
    return ""
