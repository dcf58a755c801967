"""What a run tells while it works: passed on through all its parts."""

from __future__ import annotations

from support.engine.fakes import RecordingProgress

from aoe.tuner.progress import continued


def test_everything_else_is_passed_on() -> None:
    inner = RecordingProgress()
    progress = continued(inner)
    progress.step("s")
    progress.detail("d")
    progress.trial("o", 1, 2, None)
    progress.warn("w")
    assert continued(progress) is progress
    assert [event[0] for event in inner.events] == ["step", "detail", "trial", "warn"]
