"""Which gradients `DistributedDataParallel` reduces together, and how to say it exactly.

DDP fills buckets until a size is reached. Since 2.13 torch takes a size for each bucket
(`bucket_cap_mb_list`); older versions take one size, and no version can say where a bucket ends
when a model mixes dtypes. So a reducer (DDP's own class, which holds buckets, autograd hooks and
communication) is built with exactly the wanted buckets, as DDP's constructor builds it, and takes
the old one's place. After its first step DDP fills the buckets again in the order the gradients
came, and there are three cases:

find_unused_parameters, no static graph   DDP never fills again: nothing to do
one dtype, torch knows a cap per bucket   caps that give the same buckets: DDP goes its own way
mixed dtypes, static graph, older torch   the reducer is kept from filling again

A static graph may leave parameters unused, and DDP then puts them where caps no longer fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from aoe.errors import OptionError
from aoe.gradients.trace import GradientTrace

_NEEDED = (
    "reducer",
    "process_group",
    "static_graph",
    "find_unused_parameters",
    "bucket_bytes_cap",
    "bucket_bytes_cap_default",
    "_comm_hooks",
    "_module_parameters",
    "_build_params_for_reducer",
    "_build_debug_param_to_name_mapping",
    "_get_ddp_logging_data",
)
_NEEDED_OF_REDUCER = (
    "prepare_for_forward",
    "_rebuild_buckets",
    "_remove_autograd_hooks",
    "_check_reducer_finalized",
    "_reset_state",
)
"""Parts of DDP that are not its public interface. Source: torch 2.9, 2.13 and 2.14
(pull request 128262 mended `_reset_state` before them)."""

SWITCHES = ("skip_all_reduce_unused_params", "batched_grad_copy", "lazy_bucket_allocation")
"""Options of DDP that its reducer is told; older versions of torch know some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedGradient:
    """One parameter as DDP's reducer sees it.

    Attributes:
        index: Position in the reducer's list.
        name: As in `named_parameters()` of the wrapped module.
        size_bytes: Of the gradient.
        dtype: Of the gradient, without `torch.`.
        device: Where it lives.
        sparse: True if DDP expects a sparse gradient: alone in its bucket.
    """

    index: int
    name: str
    size_bytes: int
    dtype: str
    device: str
    sparse: bool

    @property
    def kind(self) -> tuple[str, str, bool]:
        """What all gradients of a bucket have in common."""
        return self.dtype, self.device, self.sparse


def reduced_gradients(ddp: Any) -> tuple[ReducedGradient, ...]:
    """Return the parameters DDP reduces, in its order (as they were registered)."""
    parameters, sparse = ddp._build_params_for_reducer()
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters()}
    return tuple(
        ReducedGradient(
            index=index,
            name=names[id(parameter)],
            size_bytes=parameter.numel() * parameter.element_size(),
            dtype=str(parameter.dtype).removeprefix("torch."),
            device=str(parameter.device),
            sparse=is_sparse,
        )
        for index, (parameter, is_sparse) in enumerate(zip(parameters, sparse, strict=True))
    )


def bucket_indices(gradients: Sequence[ReducedGradient], ends: Sequence[int]) -> list[list[int]]:
    """Return the buckets of a segmentation.

    A bucket holds one dtype, so a segment of several becomes several buckets, ordered by their
    last gradient: DDP sends buckets in their order, and a later one would hold up the others.

    Args:
        gradients: In the order they become ready.
        ends: Exclusive end of each segment.
    """
    buckets: list[list[int]] = []
    start = 0
    for end in ends:
        kinds: dict[tuple[object, ...], list[int]] = {}
        for gradient in gradients[start:end]:
            alone = (gradient.index,) if gradient.sparse else ()
            kind = (*gradient.kind, *alone)
            # taken out and put back: the kind that ends last comes last
            kinds[kind] = [*kinds.pop(kind, []), gradient.index]
        buckets.extend(kinds.values())
        start = end
    return buckets


def match_order(
    gradients: Sequence[ReducedGradient], trace: GradientTrace
) -> tuple[int, ...] | None:
    """Return the positions of a trace's gradients among a model's, None if it is another one.

    By name where the trace has names, else by size, last parameter first.
    """
    if sorted(trace.sizes_bytes) != sorted(gradient.size_bytes for gradient in gradients):
        return None
    by_name = {(gradient.name, gradient.size_bytes): gradient.index for gradient in gradients}
    named = [by_name.get(key) for key in zip(trace.names, trace.sizes_bytes, strict=True)]
    if None not in named and len(set(named)) == len(gradients):
        return tuple(index for index in named if index is not None)
    by_size: dict[int, list[int]] = {}
    for gradient in gradients:
        by_size.setdefault(gradient.size_bytes, []).append(gradient.index)
    return tuple(by_size[size].pop() for size in trace.sizes_bytes)


class FixedReducer(dist.Reducer):  # type: ignore[misc]
    """A reducer that keeps the buckets it was made with.

    A reducer which may still fill its buckets again remembers the order of every step's gradients.

    Attributes:
        forget_steps: After so many steps that is dropped, 16 bytes a gradient and step.
    """

    forget_steps = 1000
    _steps = 0

    def _rebuild_buckets(self) -> bool:
        self._check_reducer_finalized()  # its message about unused parameters is DDP's
        return False

    def prepare_for_forward(self) -> None:
        """Drop what is remembered for filling again, at a point where no step is under way."""
        self._steps += 1
        if self._steps % self.forget_steps == 0:
            self._check_reducer_finalized()
            self._reset_state()
        super().prepare_for_forward()


def has_comm_hook(ddp: Any) -> bool:
    """True if the user gave DDP a communication hook, of Python or built in."""
    return bool(ddp._comm_hooks) or bool(ddp._get_ddp_logging_data().get("comm_hook"))


def install_buckets(
    ddp: Any,
    buckets: Sequence[Sequence[int]],
    *,
    lasting: bool = True,
    knows_caps: bool | None = None,
    fixed: type[FixedReducer] = FixedReducer,
) -> None:
    """Make DDP reduce its gradients in exactly these buckets from the next forward on.

    Gradients, parameters, buffers and communication hooks stay as they are. All ranks have to do
    this between the same two steps, and not between a forward and its backward.

    Args:
        ddp: Constructed as its user wants it; its other options are kept.
        buckets: Positions in `reduced_gradients`, every one exactly once.
        lasting: False for a few steps of measuring: DDP never fills the buckets again, so the
            first step already has the buckets of all later ones.
        knows_caps: Whether DDP may be given a cap for each bucket; None asks this torch.
        fixed: Reducer that never fills again.

    Raises:
        OptionError: DDP is used in a way which this cannot carry over.
        ValueError: the buckets do not hold every gradient exactly once.
    """
    check_supported(ddp)
    _check_complete(ddp, buckets)
    old = ddp.reducer
    old._check_reducer_finalized()
    hook_name = ddp._get_ddp_logging_data().get("comm_hook", "")
    if knows_caps is None:
        knows_caps = has_cap_per_bucket()
    reducer = _make_reducer(ddp, buckets, fixed, native=lasting and knows_caps)
    old._remove_autograd_hooks()  # somebody may keep the old one alive
    ddp.reducer = reducer
    _carry_over(ddp, hook_name)


def has_cap_per_bucket() -> bool:
    """True if this torch takes a list of bucket sizes (since 2.13)."""
    return "bucket_bytes_cap_list" in (dist.Reducer.__init__.__doc__ or "")


def _make_reducer(
    ddp: Any, buckets: Sequence[Sequence[int]], fixed: type[FixedReducer], *, native: bool
) -> Any:
    parameters, sparse = ddp._build_params_for_reducer()
    sizes = [
        sum(parameters[i].numel() * parameters[i].element_size() for i in bucket)
        for bucket in buckets
    ]
    options: dict[str, Any] = {}
    refills = ddp.static_graph or not ddp.find_unused_parameters
    kinds = {
        (p.dtype, p.device, is_sparse) for p, is_sparse in zip(parameters, sparse, strict=True)
    }
    uniform = len(kinds) == 1 and not any(sparse) and not ddp.static_graph
    native = native and uniform
    if refills and native:
        options["bucket_bytes_cap_list"] = sizes
    for name in SWITCHES:
        if getattr(ddp, name, False):
            options[name] = True
    kind = fixed if refills and not native else dist.Reducer
    return kind(
        params=parameters,
        bucket_indices=[list(bucket) for bucket in buckets],
        per_bucket_size_limits=sizes,
        process_group=ddp.process_group,
        expect_sparse_gradients=sparse,
        bucket_bytes_cap=ddp.bucket_bytes_cap,
        find_unused_parameters=ddp.find_unused_parameters,
        gradient_as_bucket_view=ddp.gradient_as_bucket_view,
        param_to_name_mapping=ddp._build_debug_param_to_name_mapping(parameters),
        first_bucket_bytes_cap=own_caps_bytes(ddp)[0],
        **options,
    )


def _carry_over(ddp: Any, hook_name: str) -> None:
    """Give the new reducer what DDP gave the old one after its construction."""
    reducer = ddp.reducer
    ddp.logger = dist.Logger(reducer)
    reducer.set_logger(ddp.logger)
    ddp.logger.set_construction_data_and_log(
        type(ddp.module).__name__,
        ddp.device_ids or [],
        -1 if ddp.output_device is None else ddp.output_device,
        ddp.__dict__.get("broadcast_buffers", getattr(ddp, "forward_sync_buffers", True)),
        any(isinstance(module, torch.nn.SyncBatchNorm) for module in ddp.module.modules()),
        ddp.static_graph,
    )
    if ddp.static_graph:
        ddp._static_graph_delay_allreduce_enqueued = False
        reducer._set_static_graph()
        ddp.logger._set_static_graph()
    for hook, state in ddp._comm_hooks:
        ddp.logger._set_comm_hook_name(hook.__qualname__)
        dist._register_comm_hook(reducer, state, hook)
    if hook_name.startswith("BuiltinCommHookType."):
        ddp.logger._set_comm_hook_name(hook_name)
        built_in = getattr(dist.BuiltinCommHookType, hook_name.split(".")[1])
        dist._register_builtin_comm_hook(reducer, built_in)


def _check_complete(ddp: Any, buckets: Sequence[Sequence[int]]) -> None:
    held = sorted(index for bucket in buckets for index in bucket)
    count = len(ddp._build_params_for_reducer()[0])
    if held != list(range(count)) or not all(buckets):
        raise ValueError(f"buckets must hold each of {count} gradients once (got {buckets!r:.200})")


def check_supported(ddp: Any) -> None:
    """Refuse what a new reducer would silently lose, and a torch it cannot be made with.

    Raises:
        OptionError: names the option, or what this torch lacks.
    """
    missing = [name for name in _NEEDED if not hasattr(ddp, name)]
    missing += [name for name in _NEEDED_OF_REDUCER if not hasattr(dist.Reducer, name)]
    if missing:
        raise OptionError(
            f"torch {torch.__version__}",
            f"DistributedDataParallel has no {missing[0]}, which regrouping needs",
            hint="use torch 2.9 to 2.14",
        )
    problem = None
    if getattr(ddp, "mixed_precision", None) is not None:
        problem = "DDP's own mixed_precision"
    elif getattr(ddp, "_use_python_reducer", False):
        problem = "the Python reducer of torch.compile"
    elif getattr(ddp, "_delay_all_reduce_params", ()):
        problem = "delay_all_reduce_named_params"
    elif any(hasattr(parameter, "_in_backward_optimizers") for parameter in ddp._module_parameters):
        problem = "an optimizer that runs in backward"
    elif any(type(state).__name__ == "PowerSGDState" for _, state in ddp._comm_hooks):
        problem = "the PowerSGD communication hook, which remembers errors by bucket"
    if problem is not None:
        raise OptionError(
            "DistributedDataParallel",
            f"gradients cannot be regrouped together with {problem}",
            hint="turn it off, or leave the buckets to DDP",
        )


def default_buckets(ddp: Any, order: Sequence[int]) -> list[list[int]]:
    """Return the buckets DDP would make by itself after its first step.

    Args:
        ddp: The module.
        order: Positions in `reduced_gradients` in the order they become ready.
    """
    parameters, sparse = ddp._build_params_for_reducer()
    limits = list(own_caps_bytes(ddp))
    if ddp.find_unused_parameters and not ddp.static_graph:  # never filled again
        found, _ = dist._compute_bucket_assignment_by_size(parameters, limits, sparse)
        return [list(bucket) for bucket in reversed(found)]
    found, _ = dist._compute_bucket_assignment_by_size(
        [parameters[index] for index in order], limits, sparse, list(order)
    )
    return [list(bucket) for bucket in found]


def own_caps_bytes(ddp: Any) -> tuple[int, ...]:
    """Return the size of each bucket this DDP was constructed with; the last is for all others."""
    if listed := getattr(ddp, "bucket_bytes_cap_list", None):
        return tuple(listed)
    cap = int(ddp.bucket_bytes_cap)
    first = int(dist._DEFAULT_FIRST_BUCKET_BYTES)
    return (first if ddp.bucket_bytes_cap_default else cap), cap
