"""Scripts that end before tuning is done, and scripts that cannot be tuned."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support.ddp.scripts import run_under_aoe  # noqa: E402
from torch import nn  # noqa: E402

from aoe.errors import OptionError  # noqa: E402
from aoe.torch import apply_gradient_strategy, tune_gradients  # noqa: E402

START = """
import os, signal, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 64)).square().sum().backward()
        optimizer.step()
"""
END = """
open(f"weights_{rank}", "w").write(str([p.double().sum().item() for p in ddp.parameters()]))
dist.destroy_process_group()
"""


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("dist.destroy_process_group(); sys.exit(0)", 0, "before tuning was finished"),
        slow("", 0, "before tuning was finished"),
        slow("sys.exit(5)", 5, "before tuning was finished"),
        slow("raise KeyError('label')", 1, "failed: KeyError: 'label'"),
        slow("os._exit(6)", 6, ""),  # ends the process at once, whatever anybody has to say
        slow("os.kill(os.getpid(), signal.SIGTERM)", 143, "interrupted"),
    ],
)
def test_script_that_ends_early_is_told_so_and_ends_with_its_own_code(
    tmp_path: Path, end: str, code: int, told: str
) -> None:
    ended = run_under_aoe(tmp_path, f"{START}\ntrain(12)\n{end}\n")
    assert ended.code == code, ended.said
    assert told in ended.said[0] and "internal error" not in "".join(ended.said)
    if code == 0:
        assert told not in ended.said[1]  # the first process speaks for all


@pytest.mark.slow
def test_one_document_says_that_tuning_was_not_finished(tmp_path: Path) -> None:
    ended = run_under_aoe(tmp_path, f"{START}\ntrain(12)\n{END}", options="--json")
    assert ended.code == 0, ended.said
    assert ['{"schema": "aoe.error/1"' in said for said in ended.said] == [True, False]
    assert "warning: not tuned" in ended.said[1]


@pytest.mark.slow
def test_hint_names_only_what_is_not_set(tmp_path: Path) -> None:
    """And a script that trained nothing has nothing to call finished."""
    for options, steps, code in (("", 12, 0), ("--tuning_time_limit=600", 12, 0), ("", 0, 3)):
        ended = run_under_aoe(tmp_path, f"{START}\ntrain({steps})\n{END}", options=options)
        assert ended.code == code, ended.said
        assert ("let it train longer" in ended.said[0]) == (code == 0)
        named = "give --tuning_time_limit" in ended.said[0]
        assert named == (code == 0 and not options), ended.said[0]


JOIN = """
from torch.distributed.algorithms.join import Join
for epoch in range(int(sys.argv[3])):
    with Join([ddp]):
        train(int(sys.argv[1 + rank]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [("14", "7"), ("9", "1")])
def test_uneven_inputs_end_the_tuning_and_not_the_training(
    tmp_path: Path, inputs: tuple[str, str]
) -> None:
    ended = run_under_aoe(tmp_path, START + JOIN + END, *inputs, "2")
    assert ended.code == 0, ended.said
    for said in ended.said:
        assert "not tuned: torch.distributed.algorithms.Join: a rank has no more inputs" in said
    tuned = (tmp_path / "weights_0").read_text()
    assert tuned == (tmp_path / "weights_1").read_text()
    plain = run_under_aoe(tmp_path, START + JOIN + END, *inputs, "2", tuned=False)
    assert plain.code == 0, plain.said
    assert tuned == (tmp_path / "weights_0").read_text()


@pytest.mark.slow
def test_even_inputs_inside_join_are_tuned_across_epochs(tmp_path: Path) -> None:
    ended = run_under_aoe(tmp_path, START + JOIN + END, "6", "6", "3")
    assert ended.code == 0, ended.said
    assert "ended after 17 steps, before tuning was finished" in ended.said[0]


POWER_SGD = """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
state = power.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=3)
ddp.register_comm_hook(state, power.powerSGD_hook)
train(12)
"""


@pytest.mark.slow
def test_script_with_a_power_sgd_hook_is_left_alone(tmp_path: Path) -> None:
    ended = run_under_aoe(tmp_path, START + POWER_SGD + END)
    assert ended.code == 0, ended.said
    assert (
        "StrategyWarning: not tuned: " in ended.said[0]
        and "PowerSGD communication hook" in ended.said[0]
    )
    tuned = (tmp_path / "weights_0").read_text()
    assert run_under_aoe(tmp_path, START + POWER_SGD + END, tuned=False).code == 0
    assert tuned == (tmp_path / "weights_0").read_text()


FSDP = """
import torch.distributed.fsdp as fsdp
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
{shard}
open(f"went_on_{{rank}}", "w")
"""


@pytest.mark.parametrize(
    "shard", [slow("fsdp.FullyShardedDataParallel(model)"), slow("fsdp.fully_shard(model)")]
)
def test_script_with_fsdp_is_refused_where_it_shards(tmp_path: Path, shard: str) -> None:
    ended = run_under_aoe(tmp_path, START + FSDP.format(shard=shard))
    assert ended.code == 2, ended.said
    for said in ended.said:
        assert said.count("FSDP shards gradients") == 1 and "Traceback" not in said
    assert not list(tmp_path.glob("went_on_*"))


def test_sharded_model_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.fsdp import FSDPModule

    class FSDPLinear(FSDPModule, nn.Linear):
        """As `fully_shard` makes it."""

    model = nn.Linear(4, 4)
    model.__class__ = FSDPLinear
    with pytest.raises(OptionError, match=r"FSDP shards gradients.*FSDPLinear"):
        tune_gradients(model, lambda: None)
    with pytest.raises(OptionError, match="FSDP shards gradients"):
        apply_gradient_strategy(model)


def test_unknown_keyword_is_named() -> None:
    with pytest.raises(OptionError, match=r"no such argument.*got bnak"):
        apply_gradient_strategy(nn.Linear(4, 4), bnak="folder")
    with pytest.raises(TypeError, match="bnak"):
        tune_gradients(nn.Linear(4, 4), lambda: None, bnak="folder")  # type: ignore[call-arg]


def test_arguments_of_another_kind_are_refused() -> None:
    with pytest.raises(OptionError, match=r"step: cannot be called.*got Tensor"):
        tune_gradients(nn.Linear(4, 4), torch.ones(1))
    with pytest.raises(OptionError, match=r"settings: is no GdatSettings.*got dict"):
        tune_gradients(nn.Linear(4, 4), lambda: None, settings={"loops": 3})  # type: ignore[arg-type]


LAST_WORDS = """
import atexit
atexit.register(lambda: print(f"handler of {rank}", flush=True))
unclosed = open(f"unclosed_{rank}", "w")
unclosed.write("all of it")
class Torn:
    def __del__(self): print("torn down", flush=True)
kept = sys.modules["kept"] = Torn()
"""


def test_process_ends_with_its_handlers_and_files_and_is_not_torn_down(tmp_path: Path) -> None:
    ended = run_under_aoe(tmp_path, f"{START}{LAST_WORDS}\ntrain(12)\nsys.exit(7)\n")
    assert ended.code == 7, ended.said
    for rank, said in enumerate(ended.said):
        assert f"handler of {rank}" in said and "torn down" not in said
        assert (tmp_path / f"unclosed_{rank}").read_text() == "all of it"
