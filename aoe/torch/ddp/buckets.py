"""Buckets of gradients that `DistributedDataParallel` reduces together, and their exact exchange.

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

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from aoe.errors import OptionError
from aoe.gradients.segmentation import Segmentation
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
    "_get_zeros_like_grad_buckets",
)
"""Parts of DDP that are not its public interface. Source: the versions of torch that pyproject.toml
asks for (pull request 128262 mended `_reset_state` before them)."""

SETTLING_STEPS = 3
"""Steps after which DDP keeps its buckets: it fills them again before the second step, and before
the third one if the graph is static."""

SWITCHES = ("skip_all_reduce_unused_params", "batched_grad_copy", "lazy_bucket_allocation")
"""Options of DDP that its reducer is told; older versions of torch know some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedGradient:
    """One parameter as DDP's reducer sees it."""

    index: int  # Position in the reducer's list
    name: str  # As in `named_parameters()` of the wrapped module
    size_bytes: int  # Of the gradient
    dtype: str  # Of the gradient, without `torch.`
    device: str  # Where it lives
    sparse: bool  # True if DDP expects a sparse gradient: alone in its bucket

    @property
    def kind(self) -> tuple[str, str, bool]:
        """Properties that all gradients of a bucket share."""
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


def segmentation_of(buckets: Sequence[Sequence[int]], order: Sequence[int]) -> Segmentation:
    """Return the segments that buckets are, or the nearest ones where they follow another order.

    A bucket is sent once its own gradients and those of all buckets before it are ready: a segment
    ends there.

    Args:
        buckets: Positions in `reduced_gradients`, in the order the buckets are sent.
        order: The same positions in the order the gradients become ready.

    >>> segmentation_of([[2, 3], [0, 1]], [3, 2, 1, 0]).ends
    (2, 4)
    >>> segmentation_of([[1, 2], [3], [0]], [3, 2, 1, 0]).ends
    (3, 4)
    """
    ranks = {index: rank for rank, index in enumerate(order, 1)}
    complete = accumulate((max(ranks[index] for index in bucket) for bucket in buckets), max)
    return Segmentation(ends=tuple(dict.fromkeys(complete)))


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
    if knows_caps is None:
        knows_caps = has_cap_per_bucket()
    parameters, sparse = ddp._build_params_for_reducer()
    sizes = [
        sum(parameters[i].numel() * parameters[i].element_size() for i in bucket)
        for bucket in buckets
    ]
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    uniform = len(kinds) == 1 and not any(sparse) and not ddp.static_graph
    native = lasting and knows_caps and uniform
    if not fills_again(ddp):
        _exchange(ddp, dist.Reducer, buckets, sizes, {})
    elif native:
        _exchange(ddp, dist.Reducer, buckets, sizes, {"bucket_bytes_cap_list": sizes})
    else:
        _exchange(ddp, fixed, buckets, sizes, {})


def has_cap_per_bucket() -> bool:
    """True if this torch takes a list of bucket sizes (since 2.13)."""
    return "bucket_bytes_cap_list" in (dist.Reducer.__init__.__doc__ or "")


def install_own_reducer(ddp: Any) -> None:
    """Give DDP a new reducer like the one its constructor made; see `install_buckets`.

    It fills its buckets as DDP does by itself: once where `find_unused_parameters` is given without
    a static graph, else again in its first steps, see `SETTLING_STEPS`.

    Raises:
        OptionError: DDP is used in a way which this cannot carry over.

    Source: torch/nn/parallel/distributed.py, `_ddp_init_helper`.
    """
    check_supported(ddp)
    parameters, sparse = ddp._build_params_for_reducer()
    refills = fills_again(ddp)
    limits = [sys.maxsize] if refills else list(own_caps_bytes(ddp))
    found, caps = dist._compute_bucket_assignment_by_size(parameters, limits, sparse)
    options: dict[str, Any] = {}
    if refills and (listed := getattr(ddp, "bucket_bytes_cap_list", None)):
        options["bucket_bytes_cap_list"] = list(listed)
    _exchange(ddp, dist.Reducer, found[::-1], caps[::-1], options)


def buckets_in_use(ddp: Any) -> list[list[int]]:
    """Return the buckets the reducer has now, in the order they are sent.

    They are looked up, not computed: DDP fills again by the order in which gradients came in the
    first process. Memory for all gradients is taken and given back meanwhile.
    """
    parameters, _ = ddp._build_params_for_reducer()
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    return [
        [places[id(parameter)] for parameter in bucket.parameters()]
        for bucket in ddp.reducer._get_zeros_like_grad_buckets()
    ]


def fills_again(ddp: Any) -> bool:
    """True if DDP fills its buckets again in its first steps."""
    return bool(ddp.static_graph or not ddp.find_unused_parameters)


def _exchange(
    ddp: Any,
    kind: Any,
    buckets: Sequence[Sequence[int]],
    caps: Sequence[int],
    options: Mapping[str, Any],
) -> None:
    """Put a new reducer in the old one's place, made as DDP's constructor makes it."""
    old = ddp.reducer
    old._check_reducer_finalized()
    hook_name = ddp._get_ddp_logging_data().get("comm_hook", "")
    parameters, sparse = ddp._build_params_for_reducer()
    reducer = kind(
        params=parameters,
        bucket_indices=[list(bucket) for bucket in buckets],
        per_bucket_size_limits=list(caps),
        process_group=ddp.process_group,
        expect_sparse_gradients=sparse,
        bucket_bytes_cap=ddp.bucket_bytes_cap,
        find_unused_parameters=ddp.find_unused_parameters,
        gradient_as_bucket_view=ddp.gradient_as_bucket_view,
        param_to_name_mapping=ddp._build_debug_param_to_name_mapping(parameters),
        first_bucket_bytes_cap=own_caps_bytes(ddp)[0],
        **{name: True for name in SWITCHES if getattr(ddp, name, False)},
        **options,
    )
    old._remove_autograd_hooks()  # somebody may keep the old one alive
    ddp.reducer = reducer
    _carry_over(ddp, hook_name)


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
            hint="use a torch that the package asks for: pip install 'aoebank[torch]'",
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


def expected_buckets(ddp: Any, order: Sequence[int]) -> list[list[int]]:
    """Return the buckets a DDP that has run no step would make by itself after its first ones.

    Args:
        ddp: The module; of one that has run, see `buckets_in_use`.
        order: Positions in `reduced_gradients` in the order they become ready.
    """
    parameters, sparse = ddp._build_params_for_reducer()
    limits = list(own_caps_bytes(ddp))
    if not fills_again(ddp):
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
