"""Two releases of a real bank as two snapshots of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank.history.changes import Move
from aoebank.history.edits import carry_out
from aoebank.history.log import verify_history
from aoebank.history.restore import plan_restore
from aoebank.selection import RecordFilter
from aoebank.storage.history.database import history_path


@pytest.mark.slow
def test_release_and_the_one_before_it(shared_data: Path, tmp_path: Path) -> None:
    releases = [shared_data / "cann_banks" / name for name in ("v8.5.0", "v9.0.0")]
    root = tmp_path / "bank"
    moves = []
    for release in releases:
        for folder in root.glob("Ascend*"):
            shutil.rmtree(folder)
        shutil.copytree(release, root, dirs_exist_ok=True)
        moves.append(banks.snap(root, release.name, tag=release.name).moves)
    assert moves == [{Move.ADDED: 4248}, {Move.ADDED: 249, Move.REMOVED: 100}]
    carry_out(plan_restore(root, "v8.5.0", RecordFilter()), banks.author())
    assert banks.state(root) == banks.state(releases[0])
    assert verify_history(root).problems == ()
    assert history_path(root).stat().st_size < 2_000_000  # of 4.3 MB and 4.5 MB
