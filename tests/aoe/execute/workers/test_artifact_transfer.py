"""Files travel by content: what the receiver has is not sent again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoe.execute.workers.artifact_transfer import ArtifactStore, pack


def _files(folder: Path, **contents: bytes) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for name, content in contents.items():
        files.append(folder / name)
        files[-1].write_bytes(content)
    return files


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """Return an empty store that holds 100 bytes."""
    (tmp_path / "store").mkdir()
    return ArtifactStore(tmp_path / "store", kept_bytes=100)


def _unpacked(store: ArtifactStore, artifacts: object, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    store.unpack(artifacts, folder)  # type: ignore[arg-type]
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_files_arrive_under_their_names(tmp_path: Path, store: ArtifactStore) -> None:
    sent = pack(_files(tmp_path / "in", a=b"one", b=b"two"), ())
    assert _unpacked(store, sent, tmp_path / "out") == {"a": b"one", "b": b"two"}


def test_known_content_goes_without_its_bytes_whatever_its_name(
    tmp_path: Path, store: ArtifactStore
) -> None:
    first = pack(_files(tmp_path / "in", a=b"one"), ())
    _unpacked(store, first, tmp_path / "out")
    again = pack(_files(tmp_path / "in", other=b"one"), {first[0].digest})
    assert [artifact.content for artifact in again] == [None]
    assert store.missing(again) == ()
    assert _unpacked(store, again, tmp_path / "out2") == {"other": b"one"}


def test_two_names_of_one_content_are_two_files(tmp_path: Path, store: ArtifactStore) -> None:
    sent = pack(_files(tmp_path / "in", a=b"", b=b""), ())
    assert _unpacked(store, sent, tmp_path / "out") == {"a": b"", "b": b""}


def test_what_is_not_there_any_more_is_asked_for(tmp_path: Path, store: ArtifactStore) -> None:
    (artifact,) = pack(_files(tmp_path / "in", a=b"one"), ())
    (unsent,) = pack(_files(tmp_path / "in", a=b"one"), {artifact.digest})
    assert store.missing([unsent]) == (artifact.digest,)
    assert store.missing([artifact]) == ()


def test_oldest_goes_first_and_never_what_is_needed_now(
    tmp_path: Path, store: ArtifactStore
) -> None:
    artifacts = [
        pack(_files(tmp_path / "in", a=bytes([number]) * 60), ())[0] for number in range(3)
    ]
    for number, artifact in enumerate(artifacts):
        _unpacked(store, [artifact], tmp_path / f"out{number}")
        os.utime(tmp_path / "store" / artifact.digest, (number, number))
    kept = {file.name for file in (tmp_path / "store").iterdir()}
    assert kept == {artifacts[2].digest}


def test_what_was_made_here_need_not_be_sent(tmp_path: Path, store: ArtifactStore) -> None:
    files = _files(tmp_path / "made", k=b"object")
    store.keep(files)
    sent = pack(files, {pack(files, ())[0].digest})
    assert store.missing(sent) == ()
    assert _unpacked(store, sent, tmp_path / "out") == {"k": b"object"}
