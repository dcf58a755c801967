"""Exchanged buckets: the groups asked for, and not a bit else that changes."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


import torch.distributed as dist  # noqa: E402
from support.ddp.bucket_sizes import bucket_sizes_bytes  # noqa: E402
from support.ddp.cases import SAME_AS_DDP as CASES  # noqa: E402
from support.ddp.processes import Found, run_processes  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from aoe.errors import OptionError  # noqa: E402
from aoe.gradients.segmentation import from_bucket_caps  # noqa: E402
from aoe.gradients.trace import GradientTrace  # noqa: E402
from aoe.torch.ddp.buckets import (  # noqa: E402
    SWITCHES,
    FixedReducer,
    ReducedGradient,
    bucket_indices,
    expected_buckets,
    has_cap_per_bucket,
    install_buckets,
    match_order,
    own_caps_bytes,
    reduced_gradients,
)

CHAIN = [[2592, 4704, 2496, 2304], [2496, 2496, 4704, 2400]]
"""Bytes of six layers of 24 x 24, two with shared weights, cut at 4, 7, 10 and at 3, 6, 9."""


def gradient(index: int, size: int, dtype: str = "float32", *, sparse: bool = False):  # type: ignore[no-untyped-def]
    """Return a gradient named after its place."""
    return ReducedGradient(
        index=index, name=f"p{index}", size_bytes=size, dtype=dtype, device="cpu", sparse=sparse
    )


def layers(count: int = 6, **options: object) -> DistributedDataParallel:
    """Return linear layers under DDP."""
    net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(count)))
    return DistributedDataParallel(net, **options)


@pytest.mark.parametrize("case", CASES)
def test_training_with_other_buckets_is_bit_equal_to_plain_ddp(found: Found, case: str) -> None:
    for rank in found:
        assert rank[case] == {**rank[case], "difference": ""}, rank


@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "bucket_view",
        "accumulate",
        "static",
        "static_view",
        "hook",
        "built_in_hook",
        "measuring",
        "measuring_static",
        "older_torch",
        "older_torch_accumulate",
    ],
)
def test_buckets_are_those_asked_for_and_stay(found: Found, case: str) -> None:
    for rank in found:
        assert rank[case]["sizes"][3:10] == [CHAIN[0]] * 7
        assert rank[case]["sizes"][10:] == [CHAIN[1]] * 4


def test_unused_parameter_of_a_static_graph_does_not_move_the_buckets(found: Found) -> None:
    assert found[0]["static_unused"]["sizes"][3:10] == [[4800, 2496, 2496, 4704]] * 7


def test_mixed_dtypes_get_a_bucket_each(found: Found) -> None:
    assert found[0]["mixed"]["sizes"][-1] == [1200, 96, 2304, 1200, 4800, 96, 2304]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("plain", "Reducer"),
        ("unused", "Reducer"),
        ("hook", "Reducer"),
        ("static", "ForgetfulReducer"),
        ("mixed", "ForgetfulReducer"),
        ("sparse", "ForgetfulReducer"),
        ("measuring", "ForgetfulReducer"),
        ("older_torch", "ForgetfulReducer"),
    ],
)
def test_reducer_is_torch_s_own_wherever_that_can_keep_the_buckets(
    found: Found, case: str, kind: str
) -> None:
    is_known = has_cap_per_bucket() or case not in ("plain", "hook")
    assert found[0][case]["kind"] == (kind if is_known else "ForgetfulReducer")


@pytest.mark.slow
def test_three_processes_are_bit_equal_to_ddp_with_the_same_caps(tmp_path: Path) -> None:
    for rank in run_processes(tmp_path, "same_caps", world=3):
        assert rank["same_caps"] == {"difference": "", "plain": [7296, 4800], "tuned": [7296, 4800]}


def test_segment_of_one_dtype_is_one_bucket() -> None:
    assert bucket_indices([gradient(2, 4), gradient(1, 4), gradient(0, 4)], (1, 3)) == [[2], [1, 0]]


def test_buckets_of_a_mixed_segment_are_ordered_by_their_last_gradient() -> None:
    mixed = [gradient(0, 4), gradient(1, 8, "float64"), gradient(2, 4), gradient(3, 2, "bfloat16")]
    assert bucket_indices(mixed, (4,)) == [[1], [0, 2], [3]]


def test_sparse_gradient_is_alone() -> None:
    mixed = [gradient(0, 4), gradient(1, 4, sparse=True), gradient(2, 4, sparse=True)]
    assert bucket_indices(mixed, (3,)) == [[0], [1], [2]]


@pytest.mark.parametrize("cap", [0.01, 0.02, 0.05, 1.0])
def test_default_buckets_are_what_ddp_makes_after_its_first_step(alone: None, cap: float) -> None:
    ddp = layers(bucket_cap_mb=cap)
    for _ in range(3):
        ddp(torch.ones(2, 64)).sum().backward()
    buckets = expected_buckets(ddp, tuple(reversed(range(12))))
    sizes = [
        sum(reduced_gradients(ddp)[place].size_bytes for place in bucket) for bucket in buckets
    ]
    assert tuple(sizes) == bucket_sizes_bytes(ddp)


def test_default_buckets_of_unused_parameters_are_those_ddp_starts_with(alone: None) -> None:
    ddp = layers(bucket_cap_mb=0.02, find_unused_parameters=True)
    initial = bucket_sizes_bytes(ddp)
    buckets = expected_buckets(ddp, tuple(reversed(range(12))))
    sizes = [
        sum(reduced_gradients(ddp)[place].size_bytes for place in bucket) for bucket in buckets
    ]
    assert tuple(sizes) == initial


LISTED = {"bucket_cap_mb_list": [0.01, 0.05, 0.02]}
needs_cap_list = pytest.mark.skipif(
    not has_cap_per_bucket(), reason="this torch takes one size for all buckets"
)


@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.02}, {"bucket_cap_mb": 0.1}])
def test_caps_mean_the_same_to_ddp_and_to_the_computed_segmentation(
    alone: None, options: dict[str, object]
) -> None:
    ddp = layers(**options)
    order = tuple(reversed(range(12)))
    sizes = [reduced_gradients(ddp)[place].size_bytes for place in order]
    segmentation = from_bucket_caps(sizes, *own_caps_bytes(ddp))
    ordered = [reduced_gradients(ddp)[place] for place in order]
    assert bucket_indices(ordered, segmentation.ends) == expected_buckets(ddp, order)


def test_ddp_s_own_caps_are_known(alone: None) -> None:
    assert own_caps_bytes(layers()) == (1 << 20, 25 << 20)
    assert own_caps_bytes(layers(bucket_cap_mb=3)) == (3 << 20, 3 << 20)


@needs_cap_list
@pytest.mark.parametrize("unused", [False, True])
def test_a_list_of_caps_is_kept_when_buckets_are_exchanged(alone: None, unused: bool) -> None:
    ddp = layers(**LISTED, find_unused_parameters=unused)
    for _ in range(3):
        ddp(torch.ones(2, 64)).sum().backward()
    own = bucket_sizes_bytes(ddp)
    assert len(set(own)) > 1
    assert own_caps_bytes(ddp) == (10485, 52428, 20971)
    install_buckets(ddp, [[place] for place in reversed(range(12))], lasting=False)
    install_buckets(ddp, expected_buckets(ddp, tuple(reversed(range(12)))))
    for _ in range(3):
        ddp(torch.ones(2, 64)).sum().backward()
        assert bucket_sizes_bytes(ddp) == own


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_ddp_reach_the_new_reducer(alone: None, name: str) -> None:
    ddp, given = layers(2), []

    class Noted(FixedReducer):
        def __init__(self, **options: object) -> None:
            given.append(options.pop(name, False))
            super().__init__(**options)

    for value in (False, True):
        setattr(ddp, name, value)
        install_buckets(ddp, [[3, 2], [1, 0]], lasting=False, fixed=Noted)
    assert given == [False, True]


def test_every_option_of_the_reducer_is_given_to_a_new_one(alone: None) -> None:
    given: set[str] = set()

    class Noted(FixedReducer):
        def __init__(self, **options: object) -> None:
            given.update(options)
            super().__init__(**options)

    install_buckets(layers(2), [[3, 2], [1, 0]], lasting=False, fixed=Noted)
    text = dist.Reducer.__init__.__doc__ or ""
    known = set(re.findall(r"[,(] ?(\w+): ", text)) - {"self"}
    refused = {"use_python_reducer"}  # see check_supported
    of_a_lasting_one = {"bucket_bytes_cap_list"}
    assert known - refused - of_a_lasting_one <= given | {*SWITCHES}


def test_names_are_those_of_the_wrapped_module_and_shared_weights_count_once(alone: None) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    net[1].weight = net[0].weight
    net[0].bias.requires_grad_(False)
    (only,) = reduced_gradients(DistributedDataParallel(net))
    assert (only.name, only.size_bytes, only.dtype) == ("0.weight", 64, "float32")


def trace_of(*gradients: tuple[str, int]) -> GradientTrace:
    """Return a trace of named sizes."""
    return GradientTrace(
        names=tuple(name for name, _ in gradients),
        sizes_bytes=tuple(size for _, size in gradients),
        dtypes=("float32",) * len(gradients),
        ready_us=tuple(map(float, range(len(gradients)))),
        loops=4,
    )


def test_order_is_matched_by_name() -> None:
    model = [gradient(0, 8), gradient(1, 4), gradient(2, 4)]
    assert match_order(model, trace_of(("p1", 4), ("p2", 4), ("p0", 8))) == (1, 2, 0)


@pytest.mark.parametrize("names", [("?", "?", "?"), ("a", "b", "c"), ("p1", "p1", "p0")])
def test_order_without_usable_names_is_matched_by_size_last_first(names: tuple[str, ...]) -> None:
    model = [gradient(0, 8), gradient(1, 4), gradient(2, 4)]
    assert match_order(model, trace_of(*zip(names, (4, 4, 8), strict=True))) == (2, 1, 0)


def test_order_of_another_model_is_none() -> None:
    assert match_order([gradient(0, 8)], trace_of(("p0", 4))) is None
    assert match_order([gradient(0, 8)], trace_of(("p0", 8), ("p1", 8))) is None


def test_buckets_cannot_be_exchanged_before_backward_is_through(alone: None) -> None:
    ddp = layers(2)
    frozen = nn.Parameter(torch.zeros(1))
    ddp.module.register_parameter("never", frozen)
    ddp = DistributedDataParallel(ddp.module)
    ddp(torch.ones(1, 64)).sum().backward()  # `never` gets no gradient: DDP waits for it
    before = ddp.reducer
    with pytest.raises(RuntimeError, match="find_unused_parameters"):
        install_buckets(ddp, [[0, 1, 2, 3, 4]])
    assert ddp.reducer is before


@pytest.mark.parametrize(
    "buckets",
    [
        [[0, 1], [2, 3, 99]],
        [[0, 1], [1, 2, 3]],
        [[0, 1, 2]],
        [],
        [[0, 1, 2, 3], []],
        [[-1, 0, 1, 2]],
    ],
)
def test_broken_buckets_leave_ddp_as_it_was(alone: None, buckets: list[list[int]]) -> None:
    ddp = layers(2)
    before = ddp.reducer
    with pytest.raises(ValueError, match="each of 4 gradients once"):
        install_buckets(ddp, buckets)
    assert ddp.reducer is before
    ddp(torch.ones(1, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in ddp.parameters())


def test_optimizer_in_backward_is_refused(alone: None) -> None:
    ddp = layers(2)
    vars(next(ddp.parameters()))["_in_backward_optimizers"] = [object()]
    with pytest.raises(OptionError, match="an optimizer that runs in backward"):
        install_buckets(ddp, [[0, 1, 2, 3]])


@pytest.mark.parametrize("name", ["_comm_hooks", "bucket_bytes_cap_default"])
def test_torch_that_has_changed_is_refused_by_name(alone: None, name: str) -> None:
    ddp = layers(2)
    delattr(ddp, name)
    with pytest.raises(OptionError, match=f"has no {name}, which regrouping needs"):
        install_buckets(ddp, [[0, 1, 2, 3]])


def test_fixed_reducer_forgets_what_it_remembers_for_filling_again(alone: None) -> None:
    forgotten = []

    class Forgetful(FixedReducer):
        forget_steps = 3

        def _reset_state(self) -> None:
            forgotten.append(1)
            attrgetter("_reset_state")(super())()

    ddp = layers(2)
    install_buckets(ddp, [[3, 2], [1, 0]], lasting=False, fixed=Forgetful)
    for _ in range(10):
        ddp(torch.ones(1, 64)).sum().backward()
    assert len(forgotten) == 3
    assert bucket_sizes_bytes(ddp) == (16640, 16640)
