"""`aoe.torch.optimize`: a drop-in module, never silently wrong."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from support.forked import end_in_time  # noqa: E402
from support.optimized_modules import Linear, computed_by_torch, optimize, snapshot  # noqa: E402
from support.temp_folder import temp_folder  # noqa: E402
from torch import nn  # noqa: E402

import aoe.torch  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.errors import OptionError, OutputError  # noqa: E402
from aoe.torch.modules.compiled import OptimizedModule  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402
from aoe.tuner.progress import Progress  # noqa: E402

pytestmark = pytest.mark.usefixtures("inference")


class Net(nn.Module):
    """Keyword arguments, a dict of nested outputs, a plain tensor attribute, a Python number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.scale = torch.tensor(2.0)
        self.factor = 3.0

    def forward(self, x: Any, mask: Any = None, *, double: bool = False) -> Any:
        hidden = F.mish(self.norm(self.conv(x))) * self.factor
        if mask is not None:
            hidden = hidden * mask
        if double:
            hidden = hidden * 2
        return {"mean": hidden.mean((2, 3)) * self.scale, "all": (hidden, None, 3, x, [hidden])}


def _net() -> tuple[Net, Any]:
    net = Net().eval()
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 7, 9)


@cache
def _optimized_net() -> OptimizedModule:
    net, x = _net()
    return optimize(net, x)


@cache
def _optimized_linear() -> OptimizedModule:
    return optimize(Linear().eval(), torch.randn(2, 4))


def _tuned_net() -> tuple[Net, OptimizedModule, Any]:
    """Return a copy of one that is exported once for all tests."""
    tuned = copy.deepcopy(_optimized_net())
    return tuned.original, tuned, torch.randn(2, 3, 7, 9)


def _linear() -> tuple[Linear, OptimizedModule, Any]:
    tuned = copy.deepcopy(_optimized_linear())
    return tuned.original, tuned, torch.randn(2, 4)


def _new_linear(**options: Any) -> tuple[Linear, OptimizedModule, Any]:
    module, x = Linear().eval(), torch.randn(2, 4)
    return module, optimize(module, x, **options), x


def _assert_served(module: OptimizedModule, *args: Any, **kwargs: Any) -> Any:
    """Return the result; fail if PyTorch computed it."""
    with computed_by_torch(module) as calls:
        result = module(*args, **kwargs)
    assert not calls, "PyTorch computed it"
    return result


def _same(left: Any, right: Any) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


# ---- the same results ----


def test_results_are_nested_as_the_module_nests_them() -> None:
    net, tuned, x = _tuned_net()
    found, expected = _assert_served(tuned, x), net(x)
    _same(found["mean"], expected["mean"])
    _same(found["all"][0], expected["all"][0])
    assert found["all"][1:3] == (None, 3)
    assert found["all"][3] is x
    assert found["all"][4][0] is found["all"][0]


@pytest.mark.slow
def test_keywords_and_positions_are_the_same_call() -> None:
    net, x = _net()
    mask = torch.rand(7, 9)
    tuned = optimize(net, (x,), example_kwargs={"mask": mask, "double": True})
    expected = net(x, mask, double=True)["mean"]
    _same(_assert_served(tuned, x, mask, double=True)["mean"], expected)
    _same(_assert_served(tuned, double=True, mask=mask, x=x)["mean"], expected)


def test_another_value_of_a_plain_argument_is_another_call() -> None:
    net, tuned, x = _tuned_net()
    with pytest.warns(FallbackWarning, match="tuned for other inputs"):
        found = tuned(x, double=True)
    _same(found["mean"], net(x, double=True)["mean"])


def test_non_contiguous_and_channels_last_inputs_compute_the_same() -> None:
    net, tuned, x = _tuned_net()
    for other in (
        x.contiguous(memory_format=torch.channels_last),
        torch.randn(2, 3, 9, 7).transpose(2, 3),
        torch.randn(4, 3, 7, 9)[::2],
    ):
        tuned(other)  # PyTorch shows once how results of such strides lie in memory
        _same(_assert_served(tuned, other)["mean"], net(other)["mean"])


@pytest.mark.slow
def test_one_tensor_given_twice_in_the_example_stays_two_arguments() -> None:
    class Difference(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a - 2 * b

    module, x, y = Difference().eval(), torch.randn(4), torch.randn(4)
    tuned = optimize(module, (x, x))
    _same(_assert_served(tuned, x, y), x - 2 * y)


def test_nested_arguments_reach_the_right_place() -> None:
    class Nested(nn.Module):
        def forward(self, pair: Any, **named: Any) -> Any:
            return pair[0] - pair[1]["a"] + 3 * named["b"], named["b"].shape[0]

    a, b, c = torch.randn(2, 3), torch.randn(2, 3), torch.randn(2, 3)
    module = Nested().eval()
    tuned = optimize(module, ((a, {"a": b}),), example_kwargs={"b": c})
    found = _assert_served(tuned, (b, {"a": c}), b=a)
    _same(found[0], b - c + 3 * a)
    assert found[1] == 2


def test_integer_and_bool_inputs_and_a_scalar_result() -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, index: Any, keep: Any) -> Any:
            return (self.table(index) * keep[..., None]).sum(), index + 1

    module = Lookup().eval()
    index, keep = torch.tensor([[1, 9, 3]]), torch.tensor([[True, False, True]])
    found = _assert_served(optimize(module, (index, keep)), index, keep)
    expected = module(index, keep)
    _same(found[0], expected[0])
    assert found[0].shape == ()
    assert torch.equal(found[1], expected[1]) and found[1].dtype == torch.int64


def test_results_are_fresh_tensors() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return x * 2, self.weight, self.weight + 1, x.view(3)

    module, x = Constant().eval(), torch.arange(3.0)
    tuned = optimize(module, x)
    first = _assert_served(tuned, x)
    for result in first:
        result.zero_()
    second = tuned(x)
    assert second[0].tolist() == [0, 2, 4]
    assert second[1].tolist() == [1, 1, 1]
    assert second[2].tolist() == [2, 2, 2]
    assert module.weight.tolist() == [1, 1, 1]


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        slow(nn.LSTM(8, 16, 2, dropout=0.5, batch_first=True), (torch.randn(2, 5, 8),)),
        slow(nn.MultiheadAttention(16, 4, dropout=0.5), (torch.randn(5, 2, 16),) * 3),
        slow(nn.TransformerEncoderLayer(16, 4, 32), (torch.randn(5, 2, 16),)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (torch.randn(2, 4),)),
        slow(torch.fx.symbolic_trace(nn.Sequential(nn.Mish(), nn.ELU())), (torch.randn(2, 4),)),
    ],
)
def test_modules_of_many_kinds_are_served(module: Any, inputs: Any) -> None:
    module.eval()
    tuned = optimize(module, inputs)
    _same(_assert_served(tuned, *inputs), module(*inputs))


# ---- falling back ----


def test_a_module_warns_of_its_first_fallback_and_counts_all() -> None:
    module, tuned, x = _linear()
    parent = nn.Sequential(tuned)
    assert not aoe.torch.fallbacks(parent)
    other, wide = torch.randn(5, 4), torch.randn(2, 4, dtype=torch.float64)
    with pytest.warns(FallbackWarning, match=r"float32\[5, 4\].*fallbacks") as caught:
        for rows in (5, 6, 7):
            _same(tuned(other[:rows]), module(other[:rows]))
        with pytest.raises(RuntimeError):
            tuned(wide)  # what PyTorch says to that
        with torch.enable_grad():
            parent(x)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    _assert_served(tuned, x)
    counts = aoe.torch.fallbacks(parent)
    assert counts == {"other inputs": 4, "gradients are wanted": 1}
    assert counts.total() == 5


def test_a_wrong_call_raises_what_the_module_raises() -> None:
    _, tuned, x = _linear()
    with pytest.raises(TypeError, match="forward"):
        tuned(x, 1, 2, unknown=3)


def test_training_mode_runs_in_pytorch_silently_and_comes_back() -> None:
    module, tuned, x = _linear()
    tuned.train()
    assert module.training and tuned.training
    with torch.enable_grad():
        assert tuned(x).requires_grad
    tuned.eval()
    assert not module.training
    _same(_assert_served(tuned, x), module(x))


@pytest.mark.slow
def test_a_child_in_training_mode_is_not_overlooked() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    x = torch.ones(64, 4)
    tuned = optimize(module, x)
    module[1].train()
    assert (tuned(x) == 0).any()
    module[1].eval()
    assert not (_assert_served(tuned, x) == 0).any()


def test_gradients_are_computed_by_pytorch_with_one_warning() -> None:
    module, tuned, x = _linear()
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="gradients") as caught:
        tuned(x).sum().backward()
        tuned(x)
    assert len(caught) == 1
    assert module.fc.weight.grad is not None
    module.requires_grad_(False)
    with torch.enable_grad():
        assert not tuned(x).requires_grad
        x.requires_grad_(True)
        assert tuned(x).requires_grad


Change = Callable[[Net], Any]


def _optimizer_step(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.enable_grad():
        net(torch.randn(2, 3, 7, 9))["mean"].sum().backward()
    optimizer.step()


CHANGES: dict[str, Change] = {
    "in place": lambda net: net.conv.weight.add_(1),
    "an optimizer step": _optimizer_step,
    "a new child": lambda net: setattr(net, "conv", nn.Conv2d(3, 5, 1)),
    "a buffer": lambda net: net.norm.running_var.mul_(3),
    "a plain tensor": lambda net: setattr(net, "scale", torch.tensor(5.0)),
    "a plain tensor in place": lambda net: net.scale.add_(1),
    "a plain tensor through .data": lambda net: net.scale.data.mul_(3),
    "a plain tensor of another shape": lambda net: setattr(net, "scale", torch.full((1,), 9.0)),
    "a plain tensor removed": lambda net: delattr(net, "scale") or setattr(net, "scale", 7),
    "a number": lambda net: setattr(net, "factor", 4.0),
    "a hook": lambda net: net.conv.register_forward_hook(lambda m, i, o: o * 0),
    "a removed child": lambda net: setattr(net, "norm", nn.Identity()),
}
"""Some of each kind, and all of plain tensors; `test_state` has every way to change the rest."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_module_is_never_served_by_the_old_model(name: str) -> None:
    net, tuned, x = _tuned_net()
    _assert_served(tuned, x)
    CHANGES[name](net)
    with pytest.warns(FallbackWarning, match="optimize the module again") as caught:
        _same(tuned(x)["mean"], net(x)["mean"])
        tuned(x)
    assert len(caught) == 1


def test_an_equal_tensor_in_place_of_another_changes_nothing() -> None:
    net, tuned, x = _tuned_net()
    for _ in range(2):  # as weight normalisation does in each forward
        net.scale = net.scale.clone()
        _assert_served(tuned, x)
    net.scale.add_(1)
    with pytest.warns(FallbackWarning, match="scale was changed"):
        _same(tuned(x)["mean"], net(x)["mean"])


def test_attributes_set_through_the_wrapper_reach_the_module() -> None:
    net, tuned, x = _tuned_net()
    tuned.factor = 5.0
    assert net.factor == 5.0
    with pytest.warns(FallbackWarning, match="factor was changed"):
        _same(tuned(x)["mean"], net(x)["mean"])
    del tuned.factor
    assert not hasattr(net, "factor")


# ---- the module's state ----


def test_state_is_the_original_one() -> None:
    net, tuned, _ = _tuned_net()
    names = list(net.state_dict())
    assert list(tuned.state_dict()) == names
    assert [name for name, _ in tuned.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert all(a is b for a, b in zip(tuned.parameters(), net.parameters(), strict=True))
    assert tuned.conv is net.conv and tuned.factor == 3.0
    other = Net().eval()
    tuned.load_state_dict(other.state_dict())
    assert torch.equal(net.conv.weight, other.conv.weight)
    parent = nn.Sequential(tuned)
    assert list(parent.state_dict()) == [f"0.{name}" for name in names]
    parent.load_state_dict({f"0.{k}": v * 0 for k, v in net.state_dict().items()})
    assert not net.conv.weight.any()
    parent.double()
    assert net.conv.weight.dtype == torch.float64
    with pytest.raises(AttributeError, match="nothing"):
        _ = tuned.nothing


def test_optimizing_leaves_the_module_untouched() -> None:
    net = Net()
    net.conv.train(False)
    net.conv.bias.requires_grad_(False)
    handle = net.norm.register_forward_hook(lambda m, i, o: None)
    before = snapshot(net)
    state = torch.get_rng_state()
    optimize(net, torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(1)))
    assert snapshot(net) == before
    assert torch.equal(torch.get_rng_state(), state)
    handle.remove()


@pytest.mark.slow
def test_a_module_in_training_mode_is_exported_in_its_inference_form() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    x = torch.ones(8, 4)
    tuned = optimize(module, x)
    assert module.training and module[1].training
    tuned.eval()
    _same(_assert_served(tuned, x), module(x))


@pytest.mark.slow
def test_an_optimized_module_is_optimized_anew() -> None:
    module, tuned, x = _linear()
    module.fc.weight.mul_(2)
    again = optimize(tuned, x)
    assert again.original is module
    _same(_assert_served(again, x), module(x))


def test_tracing_sees_the_original() -> None:
    module, tuned, x = _linear()
    program = torch.export.export(tuned, (x,))
    _same(program.module()(x), module(x))


# ---- pickling, copying, threads, processes ----


@pytest.mark.parametrize("through", ["pickle", "deepcopy"])
def test_a_copy_computes_without_the_original(through: str) -> None:
    net, tuned, x = _tuned_net()
    expected = net(x)["mean"]
    copied = pickle.loads(pickle.dumps(tuned)) if through == "pickle" else copy.deepcopy(tuned)
    net.conv.weight.zero_()
    del tuned
    gc.collect()
    _same(_assert_served(copied, x)["mean"], expected)
    copied.original.conv.weight.zero_()
    with pytest.warns(FallbackWarning, match="changed"):
        _same(copied(x)["mean"], net(x)["mean"])


def test_a_stale_module_stays_stale_through_a_pickle() -> None:
    module, tuned, x = _linear()
    module.fc.weight.mul_(2)
    copied = pickle.loads(pickle.dumps(tuned))
    with pytest.warns(FallbackWarning, match="changed"):
        _same(copied(x), module(x))


def test_pickling_in_training_mode_keeps_the_tuned_form() -> None:
    _, tuned, x = _linear()
    copied = pickle.loads(pickle.dumps(tuned.train())).eval()
    _same(_assert_served(copied, x), tuned.eval()(x))


def test_pickling_after_the_file_is_gone_says_so(tmp_path: Path) -> None:
    _, tuned, x = _new_linear(output=tmp_path)
    tuned.om_file.write_bytes(b"another")
    with pytest.raises(pickle.PicklingError, match="took the place"):
        pickle.dumps(tuned)
    tuned.om_file.unlink()
    with pytest.raises(pickle.PicklingError, match="No such file"):
        pickle.dumps(tuned)
    _assert_served(tuned, x)


def test_threads_compute_the_same_and_warn_once() -> None:
    net, tuned, _ = _tuned_net()
    inputs = [torch.randn(2, 3, 7, 9) for _ in range(16)]
    expected = [net(x)["mean"] for x in inputs]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        with torch.no_grad():
            found[number] = tuned(inputs[number])["mean"]
            tuned(torch.zeros(1, 3, 4, 4))

    with pytest.warns(FallbackWarning) as caught:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(caught) == 1
    for number, result in found.items():
        _same(result, expected[number])
    assert len(found) == 16


def test_a_forked_process_computes_in_pytorch(tmp_path: Path) -> None:
    module, tuned, x = _linear()
    expected = module(x)
    tuned(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: other threads
        child = os.fork()
    if not child:
        end_in_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same = torch.equal(tuned(x), expected)
        (tmp_path / "said").write_text(f"{same} {[str(warning.message) for warning in caught]}")
        os.kill(os.getpid(), signal.SIGKILL)  # nothing of this process ends twice
    os.waitpid(child, 0)
    said = (tmp_path / "said").read_text()
    assert said.startswith("True ") and said.count("forked") == 1


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with temp_folder(tmp_path):
        _, tuned, _ = _new_linear()
        assert len(list(tmp_path.iterdir())) == 1
        del tuned
        gc.collect()
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_behind_by_a_failure(tmp_path: Path) -> None:
    def fails(settings: TuneSettings, env: Any, progress: Progress) -> Path:
        raise OutputError("disk", "is full")

    with temp_folder(tmp_path), pytest.raises(OutputError, match="full"):
        _new_linear(engine=fails)
    assert not list(tmp_path.iterdir())


# ---- options ----


def test_options_reach_the_engine(engine: UntunedEngine, tmp_path: Path) -> None:
    _, tuned, _ = _new_linear(
        bank=tmp_path / "new" / "bank",
        output=tmp_path / "out",
        tuning_time_limit=7,
        trials=3,
        search="random",
        seed=5,
        core_num=1,
        job_type="opat",
        engine=engine,
    )
    (settings,) = engine.asked
    assert settings.output == tmp_path / "out"
    assert (settings.trials, settings.seed) == (3, 5)
    assert settings.tuning_time_limit_s is not None and 0 <= settings.tuning_time_limit_s <= 7
    assert (settings.search, settings.core_num) == ("random", 1)
    assert engine.environments[0]["TUNE_BANK_PATH"] == str(tmp_path / "new" / "bank")
    assert (tmp_path / "new" / "bank").is_dir()
    assert tuned.om_file == tmp_path / "out" / "linear_tune.om"


@pytest.mark.slow
def test_accuracy_is_checked_on_the_example_inputs(engine: UntunedEngine) -> None:
    _new_linear(precision_mode="allow_mix_precision_bf16", engine=engine)
    (given,) = engine.asked[-1].precision.calibration
    assert len(given.files) == 1
    _new_linear(engine=engine)
    assert engine.asked[-1].precision.calibration == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_type": 4}, "only operator tuning"),
        ({"job_type": "x"}, "unknown job type"),
        ({"trails": 3}, "unknown option .got trails"),
        ({"precision_mode": "fast"}, "--precision_mode: unknown .got fast"),
        ({"accuracy": "good"}, "not a metric with a bound"),
    ],
)
def test_bad_options_are_usage_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _new_linear(**options)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(OptionError, match="not a module"):
        optimize(lambda x: x, torch.ones(3))
