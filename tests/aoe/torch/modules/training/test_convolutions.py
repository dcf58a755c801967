"""Convolutions of training graphs: each way to compute them agrees with autograd in float64."""

from __future__ import annotations

import copy
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.trainings_compiled import (  # noqa: E402
    Always,
    LoopCalls,
    compiled,
    region_settings,
)
from torch import nn  # noqa: E402

import aoe  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.device.registry import resolve_target  # noqa: E402
from aoe.device.toolchain import find_toolchain  # noqa: E402
from aoe.errors import MeasurementError  # noqa: E402
from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training import choice  # noqa: E402
from aoe.torch.modules.training.convolution_ways import (  # noqa: E402
    WAYS,
    Attributes,
    Convolution,
    Library,
    Part,
    load_library,
)
from aoe.torch.modules.training.convolutions import (  # noqa: E402
    ConvolutionModule,
    choose_ways,
)
from aoe.torch.modules.training.graphs import TrainingGraph  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.workload import TRAINING_CONVOLUTION  # noqa: E402
from aoebank import quarantine_add  # noqa: E402

ONES, NONE = (1, 1), (0, 0)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    """Let Dynamo forget what other tests compiled; one thread, so that sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")  # which Dynamo looks at
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


def _library(env: Mapping[str, str]) -> Library:
    _, target = resolve_target(None, 1)
    kept = LoopCompiler(region_settings(env))
    return load_library(kept, find_toolchain(env), target.l2_bytes)


@pytest.fixture(scope="module")
def library() -> Library:
    """Return the kernels."""
    return _library(os.environ)


def _convolution(
    image: Sequence[int],
    weights: Sequence[int],
    strides: tuple[int, int] = ONES,
    pads: tuple[int, int] = NONE,
    dilations: tuple[int, int] = ONES,
    groups: int = 1,
    is_last: bool = False,
) -> Convolution:
    attributes = Attributes(strides=strides, pads=pads, dilations=dilations, groups=groups)
    return Convolution(
        attributes=attributes, image=tuple(image), weights=tuple(weights), is_last=is_last
    )


CASES = {
    "odd": (_convolution((2, 5, 9, 11), (7, 5, 3, 3), pads=ONES), {"products", "winograd_4x4"}),
    "no zeros": (_convolution((1, 17, 4, 6), (33, 17, 3, 3)), {"products", "winograd_4x4"}),
    "more zeros": (
        _convolution((3, 20, 13, 5), (50, 20, 3, 3), pads=(2, 1)),
        {"products", "winograd_4x4"},
    ),
    "one pixel": (
        _convolution((3, 4, 1, 1), (6, 4, 3, 3), pads=ONES),
        {"products", "winograd_4x4"},
    ),
    "strides": (_convolution((2, 6, 11, 8), (5, 6, 3, 2), (2, 3), (1, 0)), {"products"}),
    "dilated": (
        _convolution((2, 6, 11, 9), (5, 6, 3, 3), pads=ONES, dilations=(2, 3)),
        {"products"},
    ),
    "large filter": (_convolution((1, 3, 19, 15), (8, 3, 7, 7), (2, 2), (3, 3)), {"products"}),
    "pointwise": (_convolution((3, 6, 5, 7), (9, 6, 1, 1)), {"products"}),
    "pointwise, strides": (_convolution((3, 6, 5, 7), (9, 6, 1, 1), (2, 2)), {"products"}),
    "pointwise, zeros": (_convolution((2, 6, 5, 7), (9, 6, 1, 1), pads=ONES), {"products"}),
    "depthwise": (
        _convolution((2, 6, 9, 4), (6, 1, 7, 7), pads=(3, 3), groups=6),
        {"planes"},
    ),
    "depthwise, no zeros": (_convolution((2, 5, 9, 8), (10, 1, 5, 5), groups=5), {"planes"}),
    "even filter": (_convolution((2, 4, 9, 8), (4, 1, 2, 4), pads=(1, 2), groups=4), {"planes"}),
    "groups": (_convolution((2, 6, 5, 11), (15, 2, 3, 3), pads=ONES, groups=3), {"planes"}),
    "groups, strides": (_convolution((2, 6, 5, 9), (6, 2, 3, 3), (2, 2), ONES, groups=3), set()),
    "large groups": (_convolution((1, 40, 5, 9), (40, 20, 3, 3), pads=ONES, groups=2), set()),
    "channels last": (
        _convolution((3, 21, 8, 5), (21, 1, 7, 7), pads=(3, 3), groups=21, is_last=True),
        {"planes"},
    ),
    "channels last, dense": (
        _convolution((3, 21, 8, 5), (21, 21, 3, 3), pads=ONES, is_last=True),
        set(),
    ),
}


def _arguments(convolution: Convolution, part: Part) -> list[Any]:
    layout = torch.channels_last if convolution.is_last else torch.contiguous_format
    image, gradient = (
        torch.randn(shape).contiguous(memory_format=layout)
        for shape in (convolution.image, convolution.result)
    )
    weights, bias = torch.randn(convolution.weights), torch.randn(convolution.weights[0])
    return {
        Part.RESULT: [image, weights, bias],
        Part.IMAGE: [gradient, weights],
        Part.WEIGHTS: [image, gradient],
    }[part]


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("case", CASES)
def test_every_way_agrees_with_autograd_in_float64(case: str, part: Part, library: Library) -> None:
    convolution, expected = CASES[case]
    arguments, eager = _arguments(convolution, part), convolution.eager(part)
    offered = set()
    for name, way in WAYS.items():
        compute = way(convolution, part, library)
        if compute is None:
            continue
        offered.add(name)
        assert choice.disagreement(eager, compute, arguments, spreads=True) == ""
        assert compute(*arguments).stride() == eager(*arguments).stride()
        if part is Part.RESULT:
            assert choice.disagreement(eager, compute, arguments[:2], spreads=True) == ""
    if not convolution.is_last or part is Part.WEIGHTS:
        assert offered == expected


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_on_a_cpu_without_wide_vectors(case: str) -> None:
    convolution, _ = CASES[case]
    narrow = _library({**os.environ, "CC": "cc -mno-avx512f"})
    for part in Part:
        arguments, eager = _arguments(convolution, part), convolution.eager(part)
        for way in WAYS.values():
            compute = way(convolution, part, narrow)
            if compute is not None:
                assert choice.disagreement(eager, compute, arguments, spreads=True) == ""


@pytest.mark.parametrize("case", ["odd", "depthwise", "channels last"])
def test_results_are_floats_on_the_cpu_whatever_the_defaults_are(
    case: str, library: Library
) -> None:
    convolution, names = CASES[case]
    arguments = _arguments(convolution, Part.WEIGHTS)
    expected = convolution.eager(Part.WEIGHTS)(*arguments)
    for name in names:
        call = WAYS[name](convolution, Part.WEIGHTS, library)
        assert call is not None
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("meta"):
                found = call(*arguments)
        finally:
            torch.set_default_dtype(before)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("unusual", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_hidden(unusual: float, library: Library) -> None:
    convolution, _ = CASES["odd"]
    for part in Part:
        arguments = _arguments(convolution, part)
        for argument in arguments:
            argument.view(-1)[argument.numel() // 3] = unusual
        eager = convolution.eager(part)(*arguments)
        for way in WAYS.values():
            compute = way(convolution, part, library)
            if compute is not None:
                assert not torch.isfinite(compute(*arguments)[~torch.isfinite(eager)]).any()


class Images(nn.Module):
    """Convolutions of each kind, with and without bias, and too few elements for a region."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, 2, 1, bias=False)
        self.dense = nn.Conv2d(24, 24, 3, 1, 1)
        self.depthwise = nn.Conv2d(24, 24, 7, 1, 3, groups=24)
        self.pointwise = nn.Conv2d(24, 32, 1)
        self.line = nn.Conv1d(32, 8, 3)
        self.up = nn.ConvTranspose2d(32, 6, 2, 2)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.dense(torch.relu(self.stem(image))))
        x = self.pointwise(x + self.depthwise(x))
        return self.up(x).square().mean() + self.line(x.flatten(2)).sin().mean()


class By(Always):
    """Uses one way wherever it computes the right results."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0
        self.reasons: list[str] = []

    def order(self, calls: Mapping[str, Any], arguments: Sequence[Any]) -> Sequence[str]:
        return [name for name in calls if name == self.name]

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        self.used += 1
        return True

    def told(self, outcome: Any) -> None:
        if outcome.workloads and outcome.workloads[0].op_type == TRAINING_CONVOLUTION:
            self.reasons.append(outcome.reason)


def _gradients(module: Any, image: Any) -> list[Any]:
    module.zero_grad()
    module(image).backward()
    return [one.grad.clone() for one in module.parameters()]


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("winograd_4x4", torch.contiguous_format),
        ("planes", torch.channels_last),
        pytest.param("products", torch.contiguous_format, marks=pytest.mark.slow),
        pytest.param("planes", torch.contiguous_format, marks=pytest.mark.slow),
    ],
)
def test_training_has_the_gradients_of_eager(name: str, layout: Any, tmp_path: Path) -> None:
    module, by = Images(), By(name)
    image = torch.randn(2, 3, 17, 13).contiguous(memory_format=layout)
    exact = _gradients(copy.deepcopy(module).double(), image.double())
    eager = _gradients(copy.deepcopy(module), image)
    trained = compiled(module, LoopCalls(), by, options={"bank": tmp_path})
    for _ in range(3):
        found = _gradients(trained, image)
        for reference, one, other in zip(exact, eager, found, strict=True):
            assert other.stride() == one.stride()
            bound = 4 * (one - reference).abs().max() + 4e-6 * reference.abs().max()
            assert (other - reference).abs().max() <= bound
    assert by.used


@pytest.mark.parametrize("name", ["winograd_4x4", "products"])
def test_gradient_of_another_layout_is_another_convolution(name: str, tmp_path: Path) -> None:
    """An image of one channel is in planes, and has its channels innermost, at once."""
    image, weights = torch.randn(2, 1, 25, 27), torch.randn(16, 1, 3, 3)
    gradient = torch.randn(2, 16, 25, 27)
    attributes, mask = Attributes(strides=ONES, pads=ONES, dilations=ONES, groups=1), (True,) * 3
    both = [ConvolutionModule(attributes, mask, torch.fx.Graph()) for _ in range(2)]
    last = {"memory_format": torch.channels_last}
    given = [
        (gradient, image, weights),
        (gradient.contiguous(**last), image, weights.to(**last)),
    ]
    for module, tensors in zip(both, given, strict=True):
        module(*tensors)
    env = {**os.environ, "TUNE_BANK_PATH": str(tmp_path)}
    choose_ways(both, partial(region_settings, env), By(name))
    assert both[0].has_kernels
    for module, tensors in zip(both, given, strict=True):
        expected = attributes.gradients(*tensors, mask)
        for one, other in zip(module(*tensors), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


class SharedLevels(nn.Module):
    """Two convolutions of one form: the biases of the second are a number, or every other one."""

    def __init__(self, *, is_number: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.level = nn.Parameter(torch.randn(1 if is_number else 16))
        self.is_number = is_number

    def forward(self, image: Any) -> Any:
        bias = self.level.expand(8) if self.is_number else self.level[::2]
        return nn.functional.conv2d(self.first(image), self.second.weight, bias, padding=1)


@pytest.mark.parametrize("is_number", [True, False])
def test_bias_that_is_no_block_of_memory_is_read_as_it_lies(
    is_number: bool, tmp_path: Path
) -> None:
    module, by = SharedLevels(is_number=is_number), By("winograd_4x4")
    image = torch.randn(2, 8, 17, 13)
    trained = compiled(module, LoopCalls(), by, options={"bank": tmp_path})
    for _ in range(3):
        result = trained(image)
        torch.testing.assert_close(result, module(image), rtol=1e-3, atol=1e-3)
        result.square().mean().backward()
    assert by.used


@pytest.mark.slow
def test_other_shapes_and_empty_images_go_on(tmp_path: Path) -> None:
    module, image, by = Images(), torch.randn(2, 3, 17, 13), By("products")
    trained = compiled(module, LoopCalls(), by, options={"bank": tmp_path})
    for _ in range(2):
        _gradients(trained, image)
    assert by.used
    for other in (image[:1], torch.randn(4, 3, 9, 11), image[:0], image):
        torch.testing.assert_close(
            trained(other), module(other), rtol=1e-4, atol=1e-5, equal_nan=True
        )


class Busy(By):
    """Meets a busy machine wherever it compares."""

    def order(self, calls: Mapping[str, Any], arguments: Sequence[Any]) -> Sequence[str]:
        return [name for name in calls if name]

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        raise MeasurementError("machine", "too busy to compare on")


def test_busy_machine_leaves_nothing_behind(tmp_path: Path) -> None:
    module, image, busy = Images(), torch.randn(2, 3, 17, 13), Busy("products")
    eager = _gradients(copy.deepcopy(module), image)
    trained = compiled(module, LoopCalls(), busy, options={"bank": tmp_path})
    for _ in range(2):
        for one, other in zip(_gradients(trained, image), eager, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert any("it cannot be compared: machine" in reason for reason in busy.reasons)
    torch.compiler.reset()
    by = By("products")
    _gradients(compiled(module, LoopCalls(), by, options={"bank": tmp_path}), image)
    assert by.used


def test_chosen_ways_are_records_that_the_next_run_looks_up(tmp_path: Path) -> None:
    module, image = Images(), torch.randn(2, 3, 17, 13)
    options = {"bank": tmp_path, "tuning_time_limit": 20}
    _gradients(compiled(module, LoopCalls(), By("products"), options=options), image)
    (file,) = tmp_path.rglob("*training_convolution.json")
    steps = [record["knowledge"]["steps"] for (record,) in json.loads(file.read_text()).values()]
    assert steps
    assert all(one == [["algorithm", "products"]] for one in steps)
    lines = [
        json.loads(line)
        for file in tmp_path.rglob("*training_convolution*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert {line["model"]["direction"] for line in lines} == {"forward", "backward"}
    torch.compiler.reset()
    found, nothing = By("products"), By("winograd_4x4")
    for by in (found, nothing):  # a record is of one way: no other is tried
        how = {**options, "lookup_only": True}
        _gradients(compiled(copy.deepcopy(module), LoopCalls(), by, options=how), image)
        torch.compiler.reset()
    assert found.used >= len(steps)
    assert not nothing.used


def test_parts_without_a_faster_way_are_noted_and_not_tried_again(tmp_path: Path) -> None:
    module, image = Images(), torch.randn(2, 3, 17, 13)
    _gradients(compiled(module, LoopCalls(), By(""), options={"bank": tmp_path}), image)
    assert not list(tmp_path.rglob("*training_convolution.json"))
    lines = [
        json.loads(line)
        for file in tmp_path.rglob("*training_convolution*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert lines and {line["event"] for line in lines} == {"unsatisfied"}
    torch.compiler.reset()
    by = By("products")
    again = compiled(copy.deepcopy(module), LoopCalls(), by, options={"bank": tmp_path})
    _gradients(again, image)
    assert not by.used


@pytest.mark.parametrize("is_left", [True, False], ids=["left in the bank", "taken out"])
def test_way_in_quarantine_is_not_used_although_the_cache_has_it(
    tmp_path: Path, is_left: bool
) -> None:
    module, image = Images(), torch.randn(2, 3, 17, 13)
    options = {"bank": tmp_path, "cache_dir": str(tmp_path / "kernels")}

    def reasons(**more: Any) -> list[str]:
        torch.compiler.reset()
        by = By("products")
        train = partial(TrainingGraph, choice=by)
        backend = partial(aoe_backend, train=train, options={**options, **more})
        _gradients(torch.compile(copy.deepcopy(module), backend=backend), image)
        return by.reasons

    first = reasons()
    assert first.count("") > 1
    assert reasons(lookup_only=True) == first
    (file,) = tmp_path.rglob("*training_convolution.json")
    for key in json.loads(file.read_text()):
        quarantine_add(key, tmp_path, reason="wrong", keep=is_left)
    found = reasons(lookup_only=True)
    assert found == [one or "in quarantine: wrong" for one in first]
    assert "" not in reasons()


def test_records_are_measured_again_without_their_training(tmp_path: Path) -> None:
    module, image = Images(), torch.randn(2, 3, 17, 13)
    _gradients(compiled(module, LoopCalls(), By("products"), options={"bank": tmp_path}), image)
    found = aoe.verify(tmp_path, core_num=1, dry_run=True)
    measured = [one for one in found.records if one.one.op_type == "training_convolution"]
    assert measured and all(one.found.measurement is not None for one in measured)
    assert not found.passed_over


def test_without_a_compiler_products_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    module, image, by = Images(), torch.randn(2, 3, 17, 13), By("products")
    eager = _gradients(copy.deepcopy(module), image)
    trained = compiled(module, LoopCalls(), by, options={"bank": tmp_path})
    for _ in range(2):
        found = _gradients(trained, image)
    for one, other in zip(eager, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert by.used
