"""What must hold of every command, whatever bytes a bank file has."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.storage.bank import load_file
from aoebank.validation.run import validate
from support import golden_harness

PLACE = Path("s", "unified_bank")


def check_commands(top: Path, whole: bytes | None, bad: bytes, name: str) -> None:
    """Run the commands on a file and a mutated one, in `a` and `b` below `top`; it is the cwd."""
    places = [top / side / PLACE / name for side in ("a", "b")]
    for path, data in zip(places, (whole, bad), strict=True):
        path.parent.mkdir(parents=True)
        if data is not None:
            path.write_bytes(data)
    mutated = str(places[1])
    check_quiet(["validate", "b"], ["show", mutated], ["ls", "b"], ["textconv", mutated])
    check_quiet(["diff", "a", "b"], ["diff", "b", "b", "--json"])
    if whole is not None:
        for ours, theirs in (("a", "b"), ("b", "a")):
            _check_merge(top, ours, theirs, name)
            _check_driver(top, ours, theirs, name)
    _check_fixed_once(places[1])


def check_quiet(*calls: list[str]) -> None:
    """Run commands: none may end with an internal error."""
    for call in calls:
        outcome = golden_harness.run("aoebank", call)
        assert outcome.exit_code in (0, 1, 2, 3), (call, outcome)
        assert "internal error" not in outcome.stderr


def _check_merge(top: Path, ours: str, theirs: str, name: str) -> None:
    """Merge two ways: every key of both is in the result, and the result can be read.

    Two kinds of record may be missing, each as a conflict the policy decides: a record that
    cannot be read, and one under a wrong key whose workload the result has under another key.
    """
    output = f"{ours}-{theirs}"
    call = ["merge", ours, theirs, "-o", output, "--policy", "ours", "--allow-other-soc"]
    outcome = golden_harness.run("aoebank", call)
    assert outcome.exit_code in (0, 1, 3), (call, outcome)
    result = top / output / PLACE / name
    if outcome.exit_code == 3 or name.endswith(".jsonl"):
        return
    merged, a, b = (load_file(top / side / PLACE / name) for side in (output, ours, theirs))
    assert find_error(merged) is None
    left_out = ({*a.keys} | {*b.keys}) - {*merged.keys}
    assert {*merged.keys} <= {*a.keys} | {*b.keys}
    kept = {_text(record.workload) for record in _readable(merged).values()}
    lost = {key: one for side in (a, b) for key, one in _readable(side).items() if key in left_out}
    assert {_text(record.workload) for record in lost.values()} <= kept
    assert outcome.exit_code == 1 or not left_out, outcome
    assert result.read_bytes()


def _readable(parsed: ParsedFile) -> dict[str, Record]:
    """Return the records that can be read, by their keys."""
    found = {}
    for number, key in enumerate(parsed.keys):
        with suppress(RecordError):
            found[key] = parsed.format.record(parsed, number)
    return found


def _check_driver(top: Path, ours: str, theirs: str, name: str) -> None:
    """Merge as git does, `a` being the base: what was readable stays readable."""
    driver = top / "driver" / name
    driver.parent.mkdir(exist_ok=True)
    driver.write_bytes((top / ours / PLACE / name).read_bytes())
    was_broken = _is_broken(driver)
    words = [
        str(top / "a" / PLACE / name),
        str(driver),
        str(top / theirs / PLACE / name),
        "7",
        name,
    ]
    check_quiet(["merge-driver", *words])
    assert was_broken or not _is_broken(driver)


def _check_fixed_once(file: Path) -> None:
    before = None if _is_broken(file) or file.name.endswith(".jsonl") else _used(load_file(file))
    check_quiet(["validate", "--fix", str(file)])
    once = file.read_bytes()
    if before is not None:
        assert {*_used(load_file(file))} == {*before}
    check_quiet(["validate", "--fix", str(file)])
    assert file.read_bytes() == once


def _used(parsed: ParsedFile) -> list[str]:
    return [_text(record.strategy) for record in parsed.iter_records()]


def _text(value: JsonValue) -> str:
    return json.dumps(value, default=dict, sort_keys=True)


def _is_broken(file: Path) -> bool:
    if file.name.endswith(".jsonl"):
        return bool(validate([file]).findings)
    return find_error(load_file(file)) is not None
