"""Lines and columns of offsets, in time that does not grow with how many are asked for."""

from __future__ import annotations

from aoebank.formats.lines import LineIndex


def test_long_line_with_many_findings_is_not_read_again_for_each() -> None:
    decoded = 0

    class Counting(bytes):
        def __getitem__(self, key: object) -> bytes:  # type: ignore[override]
            nonlocal decoded
            piece: bytes = super().__getitem__(key)  # type: ignore[index]
            decoded += len(piece)
            return piece

    data = Counting("ä".encode() * 10_000)
    lines = LineIndex(data)
    for number in range(10_000):
        assert lines.position(2 * number) == (1, number + 1)
    assert decoded <= len(data)


def test_columns_may_be_asked_for_in_any_order() -> None:
    lines = LineIndex("\ufeffäb\nöß".encode())
    places = {3: (1, 1), 5: (1, 2), 0: (1, 1), 7: (2, 1), 9: (2, 2), 6: (1, 3)}
    for offset in (9, 5, 7, 3, 0, 6, 5, 9, 3):
        assert lines.position(offset) == places[offset]
