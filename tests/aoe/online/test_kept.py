"""Conversions that are kept for the next start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoe.online.kept import BankRoots, KeptModels, key_of

KEY = key_of({"model": "m"})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file to keep."""
    file = tmp_path / "some.om"
    file.write_bytes(b"m" * 100)
    return file


def test_model_is_found_again(tmp_path: Path, model: Path) -> None:
    KeptModels(tmp_path / "cache", 1000).put(KEY, model)
    kept = KeptModels(tmp_path / "cache", 1000)
    found = kept.find(KEY)
    assert found is not None and found.read_bytes() == model.read_bytes()
    assert kept.knows(KEY) and not kept.knows(key_of({"model": "n"}))


def test_that_there_is_nothing_is_known_too(tmp_path: Path) -> None:
    kept = KeptModels(tmp_path / "cache", 1000)
    kept.put(KEY, None)
    assert kept.find(KEY) is None and kept.knows(KEY)


@pytest.mark.parametrize(("root", "limit"), [(None, 1000), ("cache", 0)])
def test_nothing_is_kept_without_a_place(
    tmp_path: Path, model: Path, root: str | None, limit: int
) -> None:
    kept = KeptModels(tmp_path / root if root is not None else None, limit)
    kept.put(KEY, model)
    kept.put(KEY, None)
    assert not kept.knows(KEY) and not (tmp_path / "cache").exists()


def test_what_was_not_used_for_the_longest_time_goes(tmp_path: Path, model: Path) -> None:
    kept = KeptModels(tmp_path / "cache", 250)
    keys = [key_of({"model": number}) for number in range(3)]
    for age, key in enumerate(keys[:2]):
        kept.put(key, model)
        os.utime(tmp_path / "cache" / "online" / f"{key}.om", (age, age))
    kept.find(keys[0])
    kept.put(keys[2], model)
    assert [kept.knows(key) for key in keys] == [True, False, True]


def test_folder_that_may_not_be_written_is_no_error(tmp_path: Path, model: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file")
    kept = KeptModels(tmp_path / "cache", 1000)
    kept.put(KEY, model)
    assert not kept.knows(KEY)


def test_model_that_others_could_have_put_there_is_not_found(tmp_path: Path, model: Path) -> None:
    kept = KeptModels(tmp_path / "cache", 1000)
    kept.put(KEY, model)
    (file,) = (tmp_path / "cache" / "online").iterdir()
    file.chmod(0o666)
    assert kept.find(KEY) is None and not kept.knows(KEY)
    file.chmod(0o644)
    assert kept.find(KEY) == file
    (tmp_path / "cache").chmod(0o777)
    assert kept.find(KEY) is None and not kept.knows(KEY)


def test_digest_is_empty_without_records_for_the_target(tmp_path: Path) -> None:
    (tmp_path / "other" / "unified_bank").mkdir(parents=True)
    (tmp_path / "other" / "unified_bank" / "a.json").write_text("{}")
    assert BankRoots(soc_version="here", roots=(tmp_path, tmp_path / "none")).digest() == ""


def test_digest_tells_banks_apart_by_what_is_in_them(tmp_path: Path) -> None:
    def digest(*contents: str) -> str:
        roots = []
        for number, content in enumerate(contents):
            root = tmp_path / f"{len(list(tmp_path.iterdir()))}_{number}"
            (root / "here").mkdir(parents=True)
            (root / "here" / "a.json").write_text(content)
            roots.append(root)
        return BankRoots(soc_version="here", roots=tuple(roots)).digest()

    assert digest("1") == digest("1") != digest("2")
    assert digest("1", "2") != digest("2", "1")


def test_digest_tells_rules_of_several_banks_apart(tmp_path: Path) -> None:
    roots = (tmp_path / "a", tmp_path / "b")
    for root in roots:
        (root / "here").mkdir(parents=True)
        (root / "here" / "a.json").write_text("{}")
    first, best = (
        BankRoots(soc_version="here", roots=roots, union=one) for one in ("first", "best")
    )
    assert first.digest() != best.digest()
