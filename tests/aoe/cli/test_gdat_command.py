"""`aoe --job_type=4 --script`, and `2,4`: what is refused, and a script that never notices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aoe.cli import app as app_module
from aoe.cli.gdat_command import split_script

PREFIX = "--script_argument="


def run(
    arguments: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> tuple[Any, str]:
    """Run `aoe` in this process; return its exit code and standard error."""
    with pytest.raises(SystemExit) as ended:
        app_module.main(arguments)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        ([], []),
        (["--model=m.onnx"], ["--model=m.onnx"]),
        (["--script", "t.py"], ["--script=t.py"]),
        (["--script=t.py"], ["--script=t.py"]),
        (["--script"], ["--script"]),
        (["-j", "4", "--script=t.py", "--json"], ["-j", "4", "--script=t.py", f"{PREFIX}--json"]),
        (
            ["--script", "t.py", "--script", "x", "-q", "a b", ""],
            ["--script=t.py", *(f"{PREFIX}{word}" for word in ("--script", "x", "-q", "a b", ""))],
        ),
    ],
)
def test_what_follows_the_script_is_the_script_s(arguments: list[str], split: list[str]) -> None:
    assert split_script(arguments) == split


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--job_type=4"], "needs a training script"),
        (["--job_type=3"], "needs a training script"),
        (["--job_type=gdat"], "torchrun --nproc-per-node=2"),
        (["--job_type=2,4"], "needs a training script"),
        (["--job_type=2,4", "--script=t.py"], "no such file"),
        (["--job_type=1,4", "--script=t.py"], "no subgraphs of its own (got 1,4, expected 2, 4 or"),
        (["-j1", "--script=t.py"], "aoe --job_type=1 --model_path=DUMP"),
        (["-j2,4", "--model=m.onnx"], "gradients of a model file are tuned alone"),
        (["--job_type=4", "--model=m.onnx", "--script=t.py"], "given together with --model"),
        (["--script=t.py"], "no such file"),
        (["--inputs=d", "--script=t.py"], "--inputs: no option of a training script"),
        (["-j2", "--allow_compression=bf16", f"--script={__file__}"], "it is for gradient tuning"),
        (["-j4", "--om=m.om"], "--om: no option of gradient tuning"),
        (["-j4", "--model=m", "--base_result=b"], "--base_result: gradients have no"),
        (["-j4", "--model=m", "--input=x:x.npy"], "--input: no option of gradient tuning"),
        (["-j4", "--model=m", "--dynamic_dims=1;2"], "--dynamic_dims: no option of gradient"),
        (["--job_type=4", "--script=not_there.py"], "no such file"),
        (["--job_type=4", "--script=."], "no such file"),
        (["plan", "-j4", "--trials=3", "--script=t.py"], "--trials: it is for what runs without"),
        (["plan", "-j4", "--soc_version=x", "--script=t.py"], "--soc_version: it is for what runs"),
        (["plan", "-j4", "--loss_name=l", "--script=t.py"], "--loss_name: it is for the training"),
        (["plan", "m.onnx", "-j4", "--base_result=b"], "--base_result: it is for what runs"),
        (["plan", "m.onnx", "-j4", "--aicore_num=1"], "--aicore_num: it is for what runs"),
        (["plan", "m.onnx", "-j4", "--custom_ops_library=l.so"], "--custom_ops_library: it is for"),
        (["plan", "m.onnx", "--world=2"], "--world: it is for the training of a model file or a"),
        (["plan", "m.onnx", "--loss_name=l"], "--loss_name: it is for the training of a model"),
        (["verify", "--sample=3", "--script=t.py"], "--sample: it is for what runs without"),
        (["verify", "--stale-only", "--script=t.py"], "--stale-only: it is for what runs without"),
        (["verify", "--seed=1", "--script=t.py"], "--seed: it is for what runs without a training"),
        (["verify", "--input_shape=x:1", "--script=t.py"], "--input_shape: it is for what runs"),
        (["verify", "--model=m", "--loss_name=l", "--worst"], "--worst: it is for what runs"),
        (["verify", "--world=2"], "--world: it is for the training of a model file or a training"),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(
    arguments: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, error = run(arguments, capsys)
    assert code == 2 and text in error


@pytest.mark.parametrize(
    "option", ["--model_path=nets", "--weight=w.caffemodel", "--input_shape=x:1,3", "-f3"]
)
def test_options_of_model_files_are_refused_beside_a_script(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = run(["--job_type=2,4", option, "--script=not_there.py"], capsys)
    assert code == 2 and "no option of a training script" in error


def test_options_of_subgraph_tuning_are_told_of_a_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, error = run(["--job_type=4", "--Fnonhomo_split", "--script=not_there.py"], capsys)
    assert "warning: --Fnonhomo_split changes nothing here" in error


def test_options_of_a_search_are_told_where_a_training_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--trials=3", "--search=random", "--seed=7"]
    for job in ("2", "4", "2,4"):
        _, error = run([f"--job_type={job}", *words, "--script=not_there.py"], capsys)
        for word in words:
            assert f"warning: {word.partition('=')[0]} changes nothing here: " in error
    _, error = run(["--job_type=4", *words, "--model=m.onnx", "--dynamic_dims="], capsys)
    assert "--trials changes nothing" in error and "--seed changes nothing" not in error
    _, error = run(["--job_type=2", "--script=not_there.py"], capsys)
    assert "changes nothing here" not in error


def test_processes_of_torchrun_are_as_many_as_it_has_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text("")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = ["--world=3", f"--script={tmp_path / 'train.py'}"]
    for command in (["plan", "-j4"], ["verify"], ["-j4"]):
        code, error = run([*command, *words], capsys)
        assert code == 2 and "--world: the processes are started by torchrun" in error
    code, error = run(["-j4", "--loss_name=l", words[1]], capsys)
    assert code == 2 and "--loss_name: it is for a model file" in error


def test_plan_of_a_training_reads_the_settings_tuning_reads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPEAT_TUNE", "perhaps")
    code, error = run(["plan", "-j4", "--script=t.py"], capsys)
    assert code == 2 and "REPEAT_TUNE" in error


def test_missing_torch_is_named_with_the_way_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    monkeypatch.setitem(sys.modules, "torch", None)
    code, error = run(["--job_type=4", f"--script={script}"], capsys)
    assert code == 3
    assert "PyTorch, which is not installed" in error and "aoebank[torch]" in error
    code, error = run(["--job_type=4", "--model=net.onnx"], capsys)
    assert code == 3
    assert "PyTorch, which is not installed" in error and "aoebank[gdat]" in error


def test_help_imports_no_torch() -> None:
    text = "import sys, aoe.cli.app, aoe.torch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


TRAIN = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
def net(): return DDP(torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(6)]))
tuned, plain = net(), net()
plain.module.load_state_dict(tuned.module.state_dict())
optimizers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9) for each in (tuned, plain)]
torch.manual_seed(dist.get_rank())
for step in range(int(sys.argv[1])):
    data = torch.randn(4, 20)
    for ddp, optimizer in zip((tuned, plain), optimizers):
        optimizer.zero_grad()
        ddp(data).square().mean().backward()
        optimizer.step()
same = all(torch.equal(a, b) for a, b in zip(tuned.parameters(), plain.parameters()))
open(f"same_{dist.get_rank()}", "w").write(str(same))
print("trained", sys.argv[1:])
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_script_under_torchrun_trains_bit_for_bit_as_plain_ddp(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "aoe",
        "--job_type=4",
        "--output=out",
        "--tuning_time_limit=1",
        "--json",
        "--script",
        "train.py",
        "2000",
        "--json",
    ]
    env = {**os.environ, "TUNE_BANK_PATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "aoe.gdat/1" and document["steps"] > 0
    assert (tmp_path / document["result_file"]).exists()
    assert [(tmp_path / f"same_{rank}").read_text() for rank in (0, 1)] == ["True", "True"]


def test_mode_4_under_torchrun_does_what_the_option_script_does(tmp_path: Path) -> None:
    """The script says `import aoe.torch`; the variable says the rest."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(f"import aoe.torch\n{TRAIN}")
    (tmp_path / "bank").mkdir()
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", "12"]
    env = {**os.environ, "TUNE_BANK_PATH": str(tmp_path / "bank"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**env, "AOE_MODE": "4", "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=180,
        check=False,
    )
    ended = re.search(r"ended after (\d+) steps, before tuning was finished", done.stderr)
    assert ended is not None and int(ended[1]) >= 10, done.stderr
    assert [(tmp_path / f"same_{rank}").read_text() for rank in (0, 1)] == ["True", "True"]
