"""What every bank file format must do, as tests to inherit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.protocol import Format, ParsedFile, find_error, iter_or_none
from aoebank.model.finding import Finding
from aoebank.model.record import Record
from aoebank.model.resolution import Query


class FormatTests:
    """Inherit and set the three attributes; the tests come along."""

    format: Format  # The format under test
    file_name: str  # A name the format recognises
    example: bytes  # Bytes of a file with three or more records of different keys, no findings

    def parse(self, data: bytes) -> ParsedFile:
        """Parse bytes under the usual file name."""
        return self.format.parse(data, Path(self.file_name))

    def all_findings(self, data: bytes) -> list[Finding]:
        """Return everything the format has to say about bytes."""
        parsed = self.parse(data)
        return [*parsed.findings, *self.format.check(parsed)]

    def records(self, data: bytes) -> list[Record]:
        """Return the readable records of bytes."""
        return list(self.parse(data).iter_records())

    def test_recognizes_its_file_name(self) -> None:
        assert self.format.parse_name(self.file_name) is not None
        assert self.format.parse_name("README.md") is None
        assert any(fnmatchcase(self.file_name, glob) for glob in self.format.globs)

    def test_name_it_builds_tells_what_it_was_built_from(self) -> None:
        name = self.format.parse_name(self.file_name)
        assert name is not None
        built = self.format.build_name(name).replace("<KiB>", "512").replace("<time>", "1")
        again = self.format.parse_name(built)
        assert again is not None
        if name.soc_version is None:
            assert again.soc_version is None
        else:
            assert self.format.is_soc(again.soc_version or "", name.soc_version)
        assert again.op_type == name.op_type
        if not self.format.has_target_in_rows:
            assert "<soc_version>" in self.format.build_name(Query())

    def test_recognizes_its_content(self) -> None:
        assert self.format.recognizes_content(self.example[:4096])
        assert not self.format.recognizes_content(b"# A bank\n")

    def test_example_is_without_findings(self) -> None:
        assert len(self.parse(self.example)) >= 3
        assert self.all_findings(self.example) == []

    def test_empty_file_has_no_record_and_no_error(self) -> None:
        parsed = self.parse(self.format.empty)
        assert len(parsed) == 0
        assert find_error(parsed) is None

    def test_records_know_their_bytes_and_their_place(self) -> None:
        for record in self.records(self.example):
            assert record.location is not None
            start, end = record.location.start, record.location.end
            assert self.example[start:end] == record.raw

    def test_find_gives_each_record_by_its_key(self) -> None:
        parsed = self.parse(self.example)
        for number, key in enumerate(parsed.keys):
            assert parsed.find(key) == number
        assert parsed.find("no such key") is None

    def test_file_parsed_like_another_version_is_the_same(self) -> None:
        parsed = self.parse(self.example)
        less = self.format.serialize(parsed, {parsed.keys[0]: None})
        for like in (None, parsed, self.parse(less)):
            again = self.format.parse_like(self.example, parsed.path, like)
            assert (again.keys, again.starts, again.ends) == (
                parsed.keys,
                parsed.starts,
                parsed.ends,
            )

    def test_record_united_with_itself_is_itself(self) -> None:
        for record in self.records(self.example):
            assert record.raw is not None
            assert self.format.unite(record.raw, record.raw) == record.raw

    def test_header_does_not_depend_on_the_records(self) -> None:
        parsed = self.parse(self.example)
        less = self.parse(self.format.serialize(parsed, {parsed.keys[0]: None}))
        assert self.format.header(less) == self.format.header(parsed)

    def test_file_without_changes_is_written_back_byte_for_byte(self) -> None:
        assert self.format.serialize(self.parse(self.example), {}) == self.example

    def test_storing_unchanged_records_again_changes_no_byte(self) -> None:
        parsed = self.parse(self.example)
        changes = {record.key: record for record in parsed.iter_records()}
        assert self.format.serialize(parsed, changes) == self.example

    def test_records_written_to_a_new_file_come_back_equal(self) -> None:
        for records in (
            self.records(self.example),
            [
                replace(record, origin=record.origin) for record in self.records(self.example)
            ],  # no raw
        ):
            data = self._write(records)
            assert self.records(data) == records
            assert self.all_findings(data) == []

    def test_removing_one_record_keeps_the_bytes_of_the_others(self) -> None:
        originals = self.records(self.example)
        for gone in originals:
            parsed = self.parse(self.example)
            data = self.format.serialize(parsed, {gone.key: None})
            left = self.records(data)
            assert [record.raw for record in left] == [
                record.raw for record in originals if record.key != gone.key
            ]
            assert self.all_findings(data) == []

    def test_removing_all_records_leaves_a_usable_file(self) -> None:
        parsed = self.parse(self.example)
        data = self.format.serialize(parsed, dict.fromkeys(parsed.keys))
        assert len(self.parse(data)) == 0
        assert find_error(self.parse(data)) is None
        records = self.records(self.example)
        again = self.format.serialize(self.parse(data), {record.key: record for record in records})
        assert self.records(again) == records

    def test_one_record_cut_short_hides_no_other(self) -> None:
        parsed = self.parse(self.example)
        middle = len(parsed) // 2
        start, end = parsed.starts[middle], parsed.ends[middle]
        data = self.example[: (start + end) // 2] + self.example[end:]
        damaged = self.parse(data)
        assert {*parsed.keys} - {parsed.keys[middle]} <= {*damaged.keys}
        assert self.all_findings(data)

    @pytest.mark.parametrize("depth", [200, 100_000])
    @pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
    def test_deep_nesting_is_a_finding(self, depth: int, bracket: bytes) -> None:
        parsed = self.parse(self.example)
        start = parsed.starts[1]
        assert self.all_findings(self.example[:start] + bracket * depth + self.example[start:])

    @given(data=st.binary(max_size=400))
    def test_random_bytes_never_raise(self, data: bytes) -> None:
        self._survives(data)

    @given(share=st.floats(0, 1))
    def test_truncated_files_never_raise(self, share: float) -> None:
        self._survives(self.example[: int(len(self.example) * share)])

    @given(share=st.floats(0, 1), junk=st.binary(min_size=1, max_size=20))
    def test_overwritten_bytes_never_raise(self, share: float, junk: bytes) -> None:
        place = int(len(self.example) * share)
        self._survives(self.example[:place] + junk + self.example[place + len(junk) :])

    def _survives(self, data: bytes) -> None:
        self.format.recognizes_content(data)
        for finding in self.all_findings(data):
            assert finding.message
        parsed = self.parse(data)
        assert all(record.raw is not None for record in parsed.iter_records())
        named = parsed.name.op_type if parsed.name else None
        columns = (
            self.format.iter_op_types(parsed),
            self.format.iter_times_us(parsed),
            self.format.iter_targets(parsed),
        )
        for record, op_type, time_us, target in zip(iter_or_none(parsed), *columns, strict=True):
            assert time_us == (record.cost_us if record else None)
            assert record is None or target == record.soc_version
            assert record is None or op_type == (record.op_type or named)
        if find_error(parsed) is None:
            assert self.format.serialize(parsed, {}) == data

    def _write(self, records: Sequence[Record]) -> bytes:
        return self.format.serialize(
            self.parse(self.format.empty), {record.key: record for record in records}
        )
