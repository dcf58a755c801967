"""Processes of a group on this machine: what they are told, and which exit code is that of all."""

from __future__ import annotations

import os
from pathlib import Path

from aoe.torch.model_files.launching import run_group

TELL = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "MASTER_ADDR")
open(sys.argv[1] + os.environ["RANK"], "w").write(" ".join(os.environ[name] for name in names))
"""
FAIL = """
import os, sys, time
rank = int(os.environ["RANK"])
if rank == int(sys.argv[1]):
    print("rank", rank, "is out of data", file=sys.stderr)
    sys.exit(5)
"""


def environment_without_group() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def test_every_process_knows_its_place_and_its_share_of_the_cores(tmp_path: Path) -> None:
    place = f"{tmp_path}/told_"
    code, text = run_group(["-c", TELL, place], 3, cores=7, env=environment_without_group())
    told = [Path(f"{place}{rank}").read_text() for rank in range(3)]
    assert (code, text) == (0, "")
    assert told == [f"{rank} {rank} 3 3 2 127.0.0.1" for rank in range(3)]


def test_threads_of_the_user_stay(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "5"}
    run_group(["-c", TELL, f"{tmp_path}/"], 2, cores=8, env=env)
    assert (tmp_path / "1").read_text().split()[4] == "5"


def test_failure_of_the_first_process_is_told_by_itself() -> None:
    assert run_group(["-c", FAIL, "0"], 2, cores=2, env=os.environ) == (5, "")


def test_failure_of_another_process_is_handed_back_with_its_words() -> None:
    code, text = run_group(["-c", FAIL, "1"], 2, cores=2, env=os.environ)
    assert code == 5 and text.split() == ["rank", "1", "is", "out", "of", "data"]
