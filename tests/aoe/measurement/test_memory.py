"""Memory of sessions: orders of loading are averaged, processes have a median."""

from __future__ import annotations

from aoe.measurement.memory import MemoryUse, ModelMemory, mean_memory, median_memory


def _memory(
    baseline: float, tuned: float, peaks: tuple[float | None, float | None] = (None, None)
) -> ModelMemory:
    return ModelMemory(
        baseline=MemoryUse(resident_bytes=baseline, peak_bytes=peaks[0]),
        tuned=MemoryUse(resident_bytes=tuned, peak_bytes=peaks[1]),
    )


def test_both_orders_count_alike() -> None:
    found = mean_memory([_memory(100, 140, (120, 200)), _memory(80, 180, (100, 220))])
    assert found == _memory(90, 160, (110, 210))


def test_an_odd_process_does_not_count() -> None:
    found = median_memory([_memory(100, 150), _memory(102, 900), _memory(101, 151)])
    assert found == _memory(101, 151)


def test_what_is_not_known_everywhere_is_not_told() -> None:
    assert median_memory([_memory(1, 2), None]) is None
    assert mean_memory([None, None]) is None
    assert mean_memory([]) is None
    found = mean_memory([_memory(100, 150, (120, 200)), _memory(100, 150, (120, None))])
    assert found == _memory(100, 150, (120, None))
