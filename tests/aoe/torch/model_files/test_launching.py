"""Processes of a group on this machine: what they are told, and which exit code is that of all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
STAY = """
import os, signal, sys, time
place, rank = sys.argv[1], os.environ["RANK"]
def save(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.1)
    open(f"{place}/saved_{rank}", "w").close()
    sys.exit(0)
signal.signal(signal.SIGINT, lambda *_: os._exit(9))
signal.signal(signal.SIGTERM, signal.SIG_IGN if rank == sys.argv[3] else save)
open(f"{place}/here_{rank}", "w").close()
while rank != sys.argv[2] or len([one for one in os.listdir(place) if one < "i"]) < 3:
    time.sleep(0.02)
"""
"""Ends only as rank `argv[2]`, once all three are there; rank `argv[3]` hears nothing."""
RUN = """
import os, sys
from aoe.torch.model_files.launching import run_group
run_group([sys.executable, *sys.argv[1:]], 3, threads=1, env=os.environ)
"""


def environment_without_group() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def test_every_process_knows_its_place_and_its_threads(tmp_path: Path) -> None:
    place = f"{tmp_path}/told_"
    code, text = run_group(
        [sys.executable, "-c", TELL, place], 3, threads=2, env=environment_without_group()
    )
    told = [Path(f"{place}{rank}").read_text() for rank in range(3)]
    assert (code, text) == (0, "")
    assert told == [f"{rank} {rank} 3 3 2 127.0.0.1" for rank in range(3)]


def test_threads_of_the_user_stay(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "5"}
    run_group([sys.executable, "-c", TELL, f"{tmp_path}/"], 2, threads=4, env=env)
    assert (tmp_path / "1").read_text().split()[4] == "5"


def test_failure_of_the_first_process_is_told_by_itself() -> None:
    assert run_group([sys.executable, "-c", FAIL, "0"], 2, threads=1, env=os.environ) == (5, "")


def test_failure_of_another_process_is_handed_back_with_its_words() -> None:
    code, text = run_group([sys.executable, "-c", FAIL, "1"], 2, threads=1, env=os.environ)
    assert code == 5 and text.split() == ["rank", "1", "is", "out", "of", "data"]


def test_processes_that_stay_behind_the_first_are_told_to_end_and_then_ended(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", STAY, str(tmp_path), "0", "2"]
    assert run_group(words, 3, threads=1, env=os.environ, grace_s=0.5) == (0, "")
    assert [one.name for one in tmp_path.glob("saved_*")] == ["saved_1"]


def test_ctrl_c_lets_every_process_save_what_it_has(tmp_path: Path) -> None:
    """A terminal sends it to all of them; one signal each is what a script is written for."""
    parent = subprocess.Popen(
        [sys.executable, "-c", RUN, "-c", STAY, str(tmp_path), "none", "none"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len([*tmp_path.glob("here_*")]) < 3 and parent.poll() is None:
        time.sleep(0.02)
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait(timeout=30) != 0
    assert len([*tmp_path.glob("saved_*")]) == 3
