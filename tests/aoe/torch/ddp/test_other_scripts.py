"""Scripts as other people write them compute the same bits while their gradients are tuned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.ddp.other_scripts import SCRIPTS
from support.ddp.scripts import run_under_aoe

_STEPS = 250
_ENDED = re.compile(r"ended after (\d+) steps, before tuning was finished")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_computes_the_same_bits_under_tuning(name: str, tmp_path: Path) -> None:
    tuned = run_under_aoe(tmp_path, SCRIPTS[name], str(_STEPS))
    assert tuned.code == 0, tuned.said
    assert "Traceback" not in tuned.said[0], tuned.said[0]
    if "not tuned" in tuned.said[0]:  # it is short: tuning goes on to its end, or nearly so
        ended = _ENDED.search(tuned.said[0])
        assert ended is not None and int(ended[1]) > _STEPS // 4 - 4, tuned.said[0]
    found = [(tmp_path / f"digest_{rank}").read_text() for rank in "01"]
    plain = run_under_aoe(tmp_path, SCRIPTS[name], str(_STEPS), tuned=False)
    assert plain.code == 0, plain.said
    assert found == [(tmp_path / f"digest_{rank}").read_text() for rank in "01"]
