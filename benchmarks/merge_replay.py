"""Replay histories of several tuners: what text merges do to a bank, and what ours does.

    python benchmarks/merge_replay.py [--merges N] [--seed N] [--json FILE]

Each merge is two branches of a bank that several tuners work on: records added, tuned again
and removed, now and then a target renamed. The same three versions are merged as text by
`git merge-file`, in the layouts in which people keep banks, and record by record by
`aoebank.merging`. What should come out is known, since the branches are lists of edits.

Counted are, per way of merging:

- conflicts: merges that ended in conflict markers, or with keys left for a person;
- false conflicts: those of them where no key was changed differently on the two sides;
- lost: records that should be there, in a merge without conflict, and are not;
- invented: records that are none of the three versions of their key;
- duplicates: keys that stand twice in one file;
- broken: merges without conflict whose result is no JSON.

Records have times, and both sides often tune the same workload: ours decides by them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from aoebank.formats.registry import get_format
from aoebank.formats.unified.format import workload_key
from aoebank.merging.file import merge_file
from aoebank.merging.versions import MergeContext, Versions

Bank = dict[str, Any]  # the value of each key, as in the file
NAME = "Ascend910B2_24_AiCore_matmul.json"
SECTIONS = 12  # workloads of a model stand together, and tuners work on models


@dataclass(slots=True)
class Counts:
    """What one way of merging did to all the histories."""

    merges: int = 0
    conflicts: int = 0
    false_conflicts: int = 0
    lost: int = 0
    invented: int = 0
    duplicates: int = 0
    broken: int = 0

    def add(self, case: Case, outcome: Outcome) -> None:
        """Count one merge."""
        self.merges += 1
        self.broken += outcome.is_broken
        self.conflicts += outcome.has_conflict
        self.false_conflicts += outcome.has_conflict and not case.contested
        if outcome.has_conflict or outcome.is_broken:
            return
        keys = [key for key, _ in outcome.records]
        self.duplicates += len(keys) - len({*keys})
        found = dict(outcome.records)
        self.lost += sum(key not in found for key in case.expected)
        for key, value in outcome.records:
            known = [version.get(key) for version in (case.base, case.ours, case.theirs)]
            self.invented += value not in known


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Three versions of a bank."""

    base: Bank
    ours: Bank
    theirs: Bank
    expected: frozenset[str] = field(init=False)  # Keys the result must have
    contested: frozenset[str] = field(init=False)  # Keys both sides changed, in different ways

    def __post_init__(self) -> None:
        keys = self.base.keys() | self.ours.keys() | self.theirs.keys()
        values = {
            key: tuple(version.get(key) for version in (self.base, self.ours, self.theirs))
            for key in keys
        }
        contested = {
            key
            for key, (base, ours, theirs) in values.items()
            if ours != theirs and base not in (ours, theirs)
        }
        kept = {
            key
            for key, (base, ours, theirs) in values.items()
            if (theirs if ours == base else ours) is not None
        }
        object.__setattr__(self, "contested", frozenset(contested))
        object.__setattr__(self, "expected", frozenset(kept - contested))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out of a merge: its records in file order, as far as it could be read."""

    records: tuple[tuple[str, Any], ...] = ()
    has_conflict: bool = False
    is_broken: bool = False


def make_record(rng: Random, number: int) -> tuple[str, Any]:
    """Return key and value of a record for a workload, freshly tuned."""
    workload = {"op_type": "matmul", "A_shape": [number + 1, 16], "B_shape": [16, 64]}
    strategy = {
        "block_dim": [rng.choice((8, 16, 24)), 1],
        "tile": rng.choice((8, 16, 32, 64)),
        "double_buffer": rng.random() < 0.5,
    }
    answer = {
        "knowledge": strategy,
        "info_dict": workload,
        "cost_time": round(rng.uniform(5, 500), 2),
        "origin": f"tuner {rng.randrange(4)}",
    }
    return workload_key(workload), [answer]


def tune(rng: Random, bank: Bank, fresh: Iterator[int], popular: list[int]) -> Bank:
    """Return the bank after one tuner worked on a model of his."""
    result = list(bank.items())
    for _ in range(rng.randrange(0, 4)):  # new workloads, some at the end, some in their place
        number = rng.choice(popular) if rng.random() < 0.1 else next(fresh)
        key, value = make_record(rng, number)
        if key not in dict(result):
            place = len(result) if rng.random() < 0.4 else rng.randrange(len(result) + 1)
            result.insert(place, (key, value))
    size = max(1, len(result) // SECTIONS)
    first = rng.randrange(max(1, len(result) - size))
    for place in range(first, min(first + size, len(result))):
        key, value = result[place]
        if rng.random() < 0.3:  # tuned again: a new time at least
            result[place] = (key, tuned_again(rng, value))
    if rng.random() < 0.15:
        result.pop(rng.randrange(len(result)))
    return dict(result)


def tuned_again(rng: Random, value: Any) -> Any:
    """Return a record measured again, often with another strategy, or mended by hand."""
    (answer,) = value
    strategy = dict(answer["knowledge"])
    if rng.random() < 0.1:  # somebody knows better, and does not measure
        return [{**answer, "knowledge": {**strategy, "tile": rng.choice((4, 256))}}]
    if rng.random() < 0.6:
        strategy["tile"] = rng.choice((8, 16, 32, 64, 128))
    time = round(answer["cost_time"] * rng.uniform(0.7, 1.05), 2)
    return [{**answer, "knowledge": strategy, "cost_time": time}]


def make_cases(rng: Random, merges: int) -> Iterator[Case]:
    """Yield merges: branches leave a common bank, which goes on growing."""
    fresh = iter(range(10**9))
    bank = dict(make_record(rng, next(fresh)) for _ in range(120))
    for _ in range(merges):
        popular = [10**6 + rng.randrange(30) for _ in range(5)]  # of networks all tune
        branches = []
        for _ in range(2):
            branch = bank
            for _ in range(rng.randrange(1, 3)):
                branch = tune(rng, branch, fresh, popular)
            branches.append(branch)
        yield Case(base=bank, ours=branches[0], theirs=branches[1])
        bank = branches[rng.randrange(2)]
        if len(bank) > 200:
            bank = dict([*bank.items()][-120:])


def one_line(bank: Bank) -> str:
    """Return a record per line, in the order of the bank: as CANN's writers do."""
    members = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in bank.items())
    return "{\n" + members + "\n}\n"


def indented(bank: Bank) -> str:
    """Return what `json.dump(indent=1)` writes, in the order of the bank."""
    return json.dumps(bank, indent=1) + "\n"


def sorted_lines(bank: Bank) -> str:
    """Return a record per line, sorted by key."""
    return one_line(dict(sorted(bank.items())))


def sorted_indented(bank: Bank) -> str:
    """Return what `json.dump(indent=1, sort_keys=True)` writes."""
    return json.dumps(bank, indent=1, sort_keys=True) + "\n"


def minified(bank: Bank) -> str:
    """Return everything in one line."""
    return json.dumps(bank, separators=(",", ":")) + "\n"


Layout = Callable[[Bank], str]
LAYOUTS: dict[str, Layout] = {
    "text, one line in all": minified,
    "text, one line per record": one_line,
    "text, one line per record, sorted": sorted_lines,
    "text, indented": indented,
    "text, indented, sorted": sorted_indented,
}
OURS = "aoebank merge"


def merge_text(case: Case, layout: Layout, folder: Path) -> Outcome:
    """Merge with `git merge-file`."""
    paths = []
    for name, bank in (("ours", case.ours), ("base", case.base), ("theirs", case.theirs)):
        path = folder / name
        path.write_text(layout(bank), encoding="utf-8")
        paths.append(str(path))
    result = subprocess.run(["git", "merge-file", "-p", *paths], capture_output=True, check=False)
    if result.returncode:
        return Outcome(has_conflict=True)
    return read(result.stdout)


def read(data: bytes) -> Outcome:
    """Read a merged text, keys that come twice included."""
    try:
        pairs = json.loads(data, object_pairs_hook=list)
    except ValueError:
        return Outcome(is_broken=True)
    return Outcome(records=tuple((key, _plain(value)) for key, value in pairs))


def _plain(value: Any) -> Any:
    """Turn lists of pairs back into objects."""
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return {key: _plain(member) for key, member in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def merge_records(case: Case) -> Outcome:
    """Merge record by record."""
    format_ = get_format("unified")
    base, ours, theirs = (
        format_.parse(one_line(bank).encode(), Path(NAME))
        for bank in (case.base, case.ours, case.theirs)
    )
    merge = merge_file(Versions(base=base, ours=ours, theirs=theirs), NAME, MergeContext())
    outcome = read(merge.data or b"{}")
    return Outcome(
        records=outcome.records,
        is_broken=outcome.is_broken,
        has_conflict=bool(merge.plan.conflicts),
    )


def replay(*, merges: int, seed: int) -> dict[str, Counts]:
    """Return the counts of every way of merging over the same histories."""
    counts = {name: Counts() for name in (*LAYOUTS, OURS)}
    with tempfile.TemporaryDirectory() as folder:
        for case in make_cases(Random(seed), merges):
            for name, layout in LAYOUTS.items():
                counts[name].add(case, merge_text(case, layout, Path(folder)))
            counts[OURS].add(case, merge_records(case))
    return counts


def table(counts: dict[str, Counts]) -> Iterable[str]:
    """Yield the lines of a Markdown table."""
    names = Counts.__slots__
    yield "| | " + " | ".join(name.replace("_", " ") for name in names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for way, total in counts.items():
        yield f"| {way} | " + " | ".join(str(getattr(total, name)) for name in names) + " |"


def main() -> None:
    """Replay what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--merges", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    counts = replay(merges=given.merges, seed=given.seed)
    print("\n".join(table(counts)))
    if given.json is not None:
        document = {
            way: {name: getattr(total, name) for name in Counts.__slots__}
            for way, total in counts.items()
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
