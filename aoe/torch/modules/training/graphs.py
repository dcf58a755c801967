"""Training graphs of `torch.compile(module, backend="aoe")`: kernels where they beat PyTorch.

AOTAutograd makes a forward and a backward graph of one that Dynamo found. Of each, regions beside
products and attention are computed by kernels if these agree with autograd and are faster, parts of
convolutions likewise (`convolutions`); everything else stays an operator of PyTorch. Where both
passes together are no faster than eager, eager computes the graph.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor

from aoe.errors import AoeError, FallbackWarning, first_line
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.convolutions import choose_ways, cut_convolutions
from aoe.torch.modules.training.loops import LoopCompiler, Loops
from aoe.torch.modules.training.partitions import partition
from aoe.torch.modules.training.pass_code import BoxedCode, call_directly, put_function, put_inline
from aoe.torch.modules.training.records import (
    LOOP,
    NOT_COMPARED,
    NOT_TUNED,
    SLOWER,
    KnownWay,
    WayRecords,
    workload_of_region,
)
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.modules.training.regions import (
    Laid,
    RegionForm,
    RegionOutcome,
    cut_regions,
    operator_names,
    results_of,
    tensor_text,
)
from aoe.torch.modules.training.rewrites import rewrite
from aoe.torch.modules.training.row_loops import LoopSource, loop_source
from aoe.torch.modules.training.tracing import whole_upsampling
from aoe.torch.modules.turns import one_at_a_time
from aoe.workload import Workload
from aoebank import plural

T = TypeVar("T")
MakeSettings = Callable[[str], RegionSettings]
MOST_FORMS = 4
"""Forms of a region that are tuned, for a graph whose extents change; PyTorch computes others."""


class Choice:
    """Decides between eager and kernels; tests decide without a clock."""

    def turn(self) -> AbstractContextManager[object]:
        """Hold while a pass is tuned or compared; processes of a group take turns."""
        return nullcontext()

    def order(self, calls: Mapping[str, Any], arguments: Sequence[Any]) -> Sequence[str]:
        """Return names of calls, the fastest first."""
        return choice.fastest_first(calls, arguments)

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        """True if a region is to be computed by its kernels."""
        estimate = choice.region_speedup(module, call, arguments)
        return choice.wins(estimate, choice.REGION_GAIN)

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        """True if a graph is to be computed with its kernels."""
        return choice.wins(choice.step_speedup(eager, compiled), 1.0)

    def told(self, outcome: RegionOutcome) -> None:
        """Take what became of a region; a report keeps it, nothing is decided by it."""

    def decided(self, *, is_used: bool) -> None:
        """Take whether kernels compute the graph, also where an earlier process has compared it."""


class TrainingGraph:
    """A graph whose gradients are wanted.

    The forward pass is tuned at the first call, the backward pass at the first one, and both are
    compared with eager at the call that follows. Results of these calls are PyTorch's own.

    Args:
        graph_module: What Dynamo traced.
        example_inputs: What it was traced with.
        make_settings: Returns how a direction, forward or backward, is tuned.
        choice: Decides what is used.
        loops: Makes what compiles loops.
    """

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        make_settings: MakeSettings,
        choice: Choice | None = None,
        loops: Callable[[RegionSettings], Loops] = LoopCompiler,
    ) -> None:
        self._eager = graph_module
        self._make_settings = make_settings
        self._loops = loops
        self._choice = choice or Choice()
        self._passes: list[GraphPass] = []
        self._uses_eager = False
        self._is_decided = False
        self._lock = threading.Lock()
        # where Dynamo cuts a graph at DDP's buckets, it tells by this that each part has a backward
        counters["aot_autograd"]["total"] += 1
        with whole_upsampling():
            self._compiled = aot_module_simplified(
                graph_module,
                list(example_inputs),
                fw_compiler=partial(self._compile, "forward"),
                bw_compiler=partial(self._compile, "backward"),
                inference_compiler=partial(self._compile, "forward"),
                partition_fn=partial(partition, self._decisions),
                decompositions={},
            )

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *inputs: Any) -> Any:
        """Compute the graph; gradients go through it."""
        if not self._is_decided and torch.is_grad_enabled():
            self._decide(inputs)
        return self._eager(*inputs) if self._uses_eager else self._compiled(*inputs)

    def _decisions(self) -> Loops | None:
        """Return the store of partitions, None where there is no place for one."""
        try:
            return self._loops(self._make_settings("forward"))
        except Exception:  # the passes name the reason: a training goes on without
            return None

    def _compile(
        self, direction: str, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> GraphPass:
        one = GraphPass(
            graph_module,
            partial(self._make_settings, direction),
            self._choice,
            self._loops,
        )
        self._passes.append(one)
        return one

    def _decide(self, inputs: Sequence[Any]) -> None:
        """Compare both passes with eager once they are tuned."""
        if len(self._passes) < 2 or not all(one.is_tuned for one in self._passes):
            return
        if _is_computed_again():
            return
        autocast = _autocast_of_caller()
        with self._lock:
            if self._is_decided:
                return
            self._is_decided = True
            with self._choice.turn():
                reason = _apart(self._reason_for_eager, (inputs, autocast))
        self._uses_eager = bool(reason) and not _has_inner_graphs(self._eager)
        self._choice.decided(is_used=not reason)
        if reason:
            _warn(f"a training graph runs in PyTorch: {reason}")

    def _reason_for_eager(self, call: tuple[Sequence[Any], AbstractContextManager[Any]]) -> str:
        if not any(one.is_changed for one in self._passes):
            return "no kernel for any of its regions is faster"
        try:
            loops = self._loops(self._make_settings("forward"))
        except AoeError:  # without a compiler nothing is kept
            return self._compared(*call)
        digest = loops.digest("graph", *(text for one in self._passes for text in one.chosen))
        kept = loops.verdict(digest)
        if kept is None:
            kept = self._compared(*call)
            _keep(loops, digest, kept)
        return kept

    def _compared(self, inputs: Sequence[Any], autocast: AbstractContextManager[Any]) -> str:
        try:
            with torch.random.fork_rng(devices=[]), autocast:
                eager = partial(gradients, self._eager, [_own(value) for value in inputs])
                compiled = partial(gradients, self._compiled, [_own(value) for value in inputs])
                is_faster = self._choice.graph(eager, compiled)
        except Exception as error:  # of any operator: it is the caller's call that may say so
            return f"{NOT_COMPARED}: {first_line(error)}"
        return "" if is_faster else f"with its kernels it is {SLOWER}"


class Part(Protocol):
    """A region or a convolution."""

    @property
    def example(self) -> tuple[Any, ...]:
        """Arguments of the last call in a form nothing was chosen for."""

    @property
    def has_kernels(self) -> bool:
        """True if a form of it is computed otherwise than by PyTorch."""

    def forget(self, *, is_over: bool) -> None:
        """Let go of the example; once it is over, no other is kept."""

    def computed(self) -> Callable[..., Any]:
        """Return what computes it, now that nothing more is chosen."""

    def operators(self) -> torch.fx.Graph:
        """Return the operators of PyTorch that compute it."""


class GraphPass:
    """The forward or the backward graph, which computes its regions by kernels once it is tuned.

    Args:
        graph_module: Operators of ATen; it is changed.
        make_settings: Returns how it is tuned.
        choice: Decides what is used.
    """

    _boxed_call = True  # arguments come in a list, which is emptied: nothing is kept alive by it

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        make_settings: Callable[[], RegionSettings],
        choice: Choice,
        loops: Callable[[RegionSettings], Loops] = LoopCompiler,
    ) -> None:
        self.is_tuned = False
        self.chosen: tuple[str, ...] = ()  # What it computes, and how
        self._make_settings = make_settings
        self._choice = choice
        self._loops = loops
        self._tries_left = MOST_FORMS if _has_symbols(graph_module) else 1
        self.rewritten = rewrite(graph_module)
        self.regions: list[RegionModule] = cut_regions(graph_module, RegionModule)
        self.convolutions = cut_convolutions(graph_module)
        self._parts: list[Part] = [*self.regions, *self.convolutions]
        call_directly(graph_module.graph)
        graph_module.graph.set_codegen(BoxedCode())
        graph_module.recompile()
        self._graph_module = graph_module
        self._forward: Callable[[list[Any]], Any] = graph_module.forward

    def __call__(self, arguments: list[Any]) -> Any:
        """Compute the graph."""
        results = self._forward(arguments)
        if self._tries_left:
            if any(isinstance(value, FakeTensor) for one in self._parts for value in one.example):
                for one in self._parts:  # Dynamo asks what the next part of a cut graph gets
                    one.forget(is_over=False)
                return results
            if any(one.example for one in self._parts):
                self._tune_regions()
            if not self._tries_left:
                self._settle()
        self.is_tuned = True
        return results

    def _settle(self) -> None:
        """Call operators, and kernels, without the modules that were there to be tuned."""
        graph = self._graph_module.graph
        modules = dict(self._graph_module.named_children())
        for node in graph.find_nodes(op="call_module"):
            part = modules[node.target]
            if part.has_kernels:
                put_function(node, part.computed())
            else:
                put_inline(node, part.operators())
        call_directly(graph)
        self._graph_module.recompile()
        self._forward = self._graph_module.forward

    @property
    def is_changed(self) -> bool:
        """True if anything is computed otherwise than by PyTorch's own operators in order."""
        return self.rewritten > 0 or any(one.has_kernels for one in self._parts)

    def _tune_regions(self) -> None:
        """Tune the regions that were called in a new form; what fails stays PyTorch's."""
        self._tries_left -= 1
        reasons: Counter[str] = Counter()
        try:
            _apart(self._choose, reasons)
        except Exception as error:  # a training goes on, whatever becomes of its tuning
            reasons[first_line(error)] += len(self._parts)
        finally:
            for one in self._parts:
                one.forget(is_over=not self._tries_left)
        if unusable := {reason: n for reason, n in reasons.items() if reason != SLOWER}:
            text = "; ".join(f"{reason} ({count})" for reason, count in unusable.items())
            total = plural(len(self._parts), "region")
            _warn(
                f"{sum(unusable.values())} of {total} of a training graph stay in PyTorch: {text}"
            )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _choose(self, reasons: Counter[str]) -> None:
        with self._choice.turn(), one_at_a_time, torch.random.fork_rng(devices=[]):
            try:
                self._choose_in_turn(reasons)
            except AoeError as error:  # such as no compiler: convolutions have ways without one
                reasons[first_line(error)] += len(self.regions)
            self.chosen += choose_ways(
                self.convolutions, self._make_settings, self._choice, self._loops
            )

    def _choose_in_turn(self, reasons: Counter[str]) -> None:
        called: dict[RegionForm, list[RegionModule]] = {}
        for region in self.regions:
            form = region.called_form()
            if form is None:
                continue
            if isinstance(form, str):
                reasons[form] += 1
            else:
                called.setdefault(form, []).append(region)
        settings = self._make_settings()
        loops = self._loops(settings)
        sources, refused = _loop_sources(called)
        used = self._use_loops(called, sources, loops, settings, reasons)
        for form, why in refused.items():
            self._tell(called[form], form, settings, "", why)
        code, given = self._graph_module.code, _placeholder_texts(self._graph_module)
        self.chosen += (code, *given, *(sources[form].text for form in used))

    def _tell(
        self,
        members: Sequence[RegionModule],
        form: RegionForm,
        settings: RegionSettings,
        way: str,
        reason: str,
        workload: Workload | None = None,
        *,
        is_known: bool = False,
    ) -> None:
        region = members[0]
        names = (f"aten.{name}" for name in operator_names(region.eager))
        self._choice.told(
            RegionOutcome(
                direction=settings.direction,
                operators=tuple(dict.fromkeys(names)),
                shapes=tuple(map(tensor_text, form.tensors)),
                way=way,
                reason=reason,
                is_known=is_known,
                workloads=() if workload is None else (workload,),
                places=len(members),
                compute=partial(region.eager, *region.example),
            )
        )

    def _use_loops(
        self,
        called: Mapping[RegionForm, Sequence[RegionModule]],
        sources: Mapping[RegionForm, LoopSource],
        loops: Loops,
        settings: RegionSettings,
        reasons: Counter[str],
    ) -> list[RegionForm]:
        """Compute regions by loops where these are faster; return which."""
        digests = {form: loops.digest("loop", source.text) for form, source in sources.items()}
        workloads = {form: workload_of_region(called[form][0].eager, form) for form in sources}
        records = WayRecords(settings)
        known = {
            form: records.known(workloads[form], _kept_loop(loops.verdict(digest)), [LOOP])
            for form, digest in digests.items()
        }
        wanted = {
            form: source
            for form, source in sources.items()
            if (one := known[form]) is None or not one.reason
        }
        calls = loops.compile(wanted)
        used = []
        for form in sources:
            one, region = known[form], called[form][0]
            reason = "" if one is None else one.reason
            if one is None:
                reason = self._reason_against(region, calls[form])
                _keep(loops, digests[form], reason)
                self._record(records, workloads[form], reason, region, calls[form])
            elif not one.is_checked:
                reason = choice.disagreement(region.eager, calls[form], region.example)
                loops.keep(digests[form], reason)
            is_known = one is not None and reason != NOT_TUNED
            members, workload = called[form], workloads[form]
            self._tell(members, form, settings, LOOP, reason, workload, is_known=is_known)
            _settle(members, form, calls.get(form), reason, reasons)
            if not reason:
                used.append(form)
        return used

    def _record(
        self,
        records: WayRecords,
        workload: Workload | None,
        reason: str,
        region: RegionModule,
        call: Callable[..., Any],
    ) -> None:
        """Write what came of a comparison; a loop that is wrong is no matter of the bank."""
        if not reason:
            measure = partial(choice.region_measurement, region.eager, call, region.example)
            records.keep(workload, LOOP, measure)
        elif reason == SLOWER:
            records.note(workload)

    def _reason_against(self, region: RegionModule, call: Callable[..., Any]) -> str:
        """Return why PyTorch computes a region, "" if a kernel does."""
        try:
            reason = choice.disagreement(region.eager, call, region.example)
            # `forward`: a region that stays in PyTorch is no module of its own in the end
            if not reason and not self._choice.region(region.eager.forward, call, region.example):
                return SLOWER
        except Exception as error:  # of any operator: the other regions are decided all the same
            return f"{NOT_COMPARED}: {first_line(error)}"
        return reason


def _keep(loops: Loops, digest: str, reason: str) -> None:
    """Keep what was decided for the next process."""
    if not reason.startswith(NOT_COMPARED):
        loops.keep(digest, reason)


def _kept_loop(verdict: str | None) -> KnownWay | None:
    """Return a verdict of the kernel cache: why PyTorch computes a region, "" if its loop does."""
    if verdict is None:
        return None
    return KnownWay(reason=verdict) if verdict else KnownWay(way=LOOP)


def _settle(
    members: Sequence[RegionModule],
    form: RegionForm,
    call: Callable[..., Any] | None,
    reason: str,
    reasons: Counter[str],
) -> None:
    """Compute equal regions by a call, or count why PyTorch computes them."""
    if reason or call is None:
        reasons[reason] += len(members)
        return
    for region in members:
        region.use(form, call)


def _loop_sources(
    called: Mapping[RegionForm, Sequence[RegionModule]],
) -> tuple[dict[RegionForm, LoopSource], dict[RegionForm, str]]:
    """Return the loops of regions, and why others have none."""
    sources, refused = {}, {}
    for form, members in called.items():
        source = loop_source(members[0].eager, form)
        if isinstance(source, str):
            refused[form] = source
        else:
            sources[form] = source
    return sources, refused


def _has_inner_graphs(graph_module: torch.fx.GraphModule) -> bool:
    """True for a checkpoint: as Dynamo traced it, it draws other masks of dropout than eager."""
    return any(isinstance(one, torch.fx.GraphModule) for one in graph_module.children())


def _placeholder_texts(graph_module: torch.fx.GraphModule) -> Iterator[str]:
    """Yield types and extents of what a graph is given: its code has none of most operators."""
    for node in graph_module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        yield tensor_text(value) if isinstance(value, torch.Tensor) else str(value)


def _has_symbols(graph_module: torch.fx.GraphModule) -> bool:
    """True if extents of a graph may differ from call to call."""
    made = (node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder"))
    return any(
        isinstance(value, torch.SymInt)
        or (
            isinstance(value, torch.Tensor)
            and any(isinstance(n, torch.SymInt) for n in value.shape)
        )
        for value in made
    )


class RegionModule(torch.nn.Module):  # type: ignore[misc]
    """A region in its graph: PyTorch computes it, or kernels do in the forms they are for.

    Args:
        eager: Its operators.

    Attributes:
        example: Arguments of the last call in a form without kernels.
        fallbacks: Calls that PyTorch computed although there are kernels, for other forms.
    """

    def __init__(self, eager: torch.fx.GraphModule) -> None:
        super().__init__()
        self.eager = eager
        self.example: tuple[Any, ...] = ()
        self._example_results: tuple[Any, ...] = ()
        self.fallbacks = 0
        self._calls: list[tuple[RegionForm, Callable[..., Any]]] = []
        self._tried: list[RegionForm] = []
        self._is_over = False
        self._is_single = not isinstance(eager.graph.output_node().args[0], tuple | list)

    def __call__(self, *arguments: Any) -> Any:
        """Compute the region."""
        for form, call in self._calls:
            if form.takes(arguments):
                results = call(*arguments)
                return results[0] if self._is_single else results
        self.fallbacks += bool(self._calls)
        results = self.eager(*arguments)
        if not self._is_over and not any(form.takes(arguments) for form in self._tried):
            self.example = arguments
            self._example_results = tuple(map(_layout_of, results_of(results)))
        return results

    @property
    def has_kernels(self) -> bool:
        """True if kernels compute a form of it."""
        return bool(self._calls)

    def called_form(self) -> RegionForm | str | None:
        """Return the form of the example, or why there are no kernels for it; None without one."""
        if not self.example:
            return None
        form = RegionForm.of(self.eager, self.example, self._example_results)
        if isinstance(form, RegionForm):
            self._tried.append(form)
        return form

    def use(self, form: RegionForm, call: Callable[..., Any]) -> None:
        """Compute calls of a form by kernels from now on."""
        self._calls.append((form, call))

    def forget(self, *, is_over: bool) -> None:
        """Let go of the example; once it is over, no other is kept."""
        self.example = self._example_results = ()
        self._is_over = is_over

    def computed(self) -> Callable[..., Any]:
        """Return what computes it as `__call__` does, in less time if there is one form."""
        form, call = self._calls[0]
        if len(self._calls) > 1 or len(form.tensors) < len(form.arguments):
            return self.__call__
        expected = [(torch.Size(one.shape), one.strides, one.dtype) for one in form.tensors]
        is_single = self._is_single

        def region(*arguments: Any) -> Any:
            if [(one.shape, one.stride(), one.dtype) for one in arguments] == expected:
                results = call(*arguments)
                return results[0] if is_single else results
            return self(*arguments)

        return region

    def operators(self) -> torch.fx.Graph:
        """Return its operators."""
        return self.eager.graph


def _layout_of(result: Any) -> Any:
    """Return how a result lies; itself if it is no plain tensor."""
    return Laid.of(result) if type(result) is torch.Tensor and result.numel() else result


def _apart(function: Callable[[Any], T], argument: Any) -> T:
    """Return what a function returns in a thread of its own.

    It has none of the caller's modes and hooks of saved tensors. Inside of the forward of an
    autograd function PyTorch's exporter fails.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, argument).result()


def _is_computed_again() -> bool:
    """True in a checkpoint that computes again: it has to save what it has saved before."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return torch._C._current_graph_task_id() != -1 and hooks is not None


def _autocast_of_caller() -> AbstractContextManager[Any]:
    """Return what makes autocast of another thread what it is in this one."""
    autocast: AbstractContextManager[Any] = torch.autocast(
        "cpu",
        dtype=torch.get_autocast_dtype("cpu"),
        enabled=torch.is_autocast_enabled("cpu"),
        cache_enabled=False,  # inputs are copies: their casts are no one else's
    )
    return autocast


def gradients(graph: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """Return the results of a graph and the gradients of its inputs for ones."""
    with torch.enable_grad():
        results: list[Any] = torch.utils._pytree.tree_leaves(graph(*inputs))
        wanted = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
        sources = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
        if not sources or not wanted:
            return results
        ones = [torch.ones_like(one) for one in sources]
        results += torch.autograd.grad(sources, wanted, ones, allow_unused=True)
        return results


def _own(value: Any) -> Any:
    """Return a copy of a tensor that the graph may write to and has no history."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _warn(text: str) -> None:
    warnings.warn(f"aoe backend: {text}", FallbackWarning, stacklevel=2)
