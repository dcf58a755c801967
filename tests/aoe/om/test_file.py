"""The `.om` file: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.offline import make_manifest, make_use

from aoe.errors import AoeError, OfflineModelError, OutputError
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MANIFEST,
    MODEL,
    PARTS,
    WEIGHTS,
    read_manifest,
    unpack,
    write_offline_model,
)
from aoe.workload import Precision


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Return a directory with one small file for each part, and one that is none."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in PARTS:
        (folder / name).write_bytes(name.encode() * 100)
    (folder / "variant.onnx").write_bytes(b"left over")
    return folder


@pytest.fixture
def om(parts: Path, tmp_path: Path) -> Path:
    """Return a file made of `parts`."""
    file = tmp_path / "net.om"
    write_offline_model(file, parts, make_manifest(kernels=(make_use(),)))
    return file


def _rewritten(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of an `.om` with another manifest."""
    copy = file.with_name("changed.om")
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(copy, "w") as sink:
        for name in source.namelist():
            data = source.read(name)
            if name == MANIFEST:
                value = json.loads(data)
                changed = change(value)
                data = json.dumps(value if changed is None else changed).encode()
            sink.writestr(name, data)
    return copy


def test_what_was_packed_is_unpacked(om: Path, parts: Path, tmp_path: Path) -> None:
    manifest = unpack(om, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == set(PARTS)
    for name in PARTS:
        assert (tmp_path / "out" / name).read_bytes() == (parts / name).read_bytes()
    assert manifest == read_manifest(om)
    assert manifest.kernels == (make_use(),)
    assert manifest.cpu_features == ()
    assert set(manifest.parts) == set(PARTS)


def test_model_without_kernels_has_no_library(parts: Path, tmp_path: Path) -> None:
    (parts / LIBRARY).unlink()
    write_offline_model(tmp_path / "net.om", parts, make_manifest())
    assert set(unpack(tmp_path / "net.om", tmp_path / "out").parts) == {MODEL, FALLBACK, WEIGHTS}


def test_same_parts_give_the_same_bytes(parts: Path, tmp_path: Path) -> None:
    for name in ("a.om", "b.om"):
        write_offline_model(tmp_path / name, parts, make_manifest())
        for part in PARTS:
            (parts / part).touch()
    assert (tmp_path / "a.om").read_bytes() == (tmp_path / "b.om").read_bytes()


def test_weights_are_stored_and_aligned_for_nothing_but_reading(om: Path) -> None:
    with zipfile.ZipFile(om) as archive:
        assert archive.namelist()[0] == MANIFEST
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None


def test_missing_directory_is_made(parts: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "deep" / "net.om"
    write_offline_model(file, parts, make_manifest())
    assert file.is_file()
    assert file.stat().st_mode & 0o777 == 0o644


def test_existing_file_is_replaced(om: Path, parts: Path) -> None:
    (parts / LIBRARY).unlink()
    write_offline_model(om, parts, make_manifest(name="other"))
    assert read_manifest(om).name == "other"


@pytest.mark.usefixtures("no_room")
def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, parts: Path) -> None:
    file = tmp_path / "out" / "net.om"
    file.parent.mkdir()
    file.write_bytes(b"old")
    with pytest.raises(OutputError, match=r"net\.om: cannot be written: No space left on device"):
        write_offline_model(file, parts, make_manifest())
    assert file.read_bytes() == b"old"
    assert list(file.parent.iterdir()) == [file]


def test_interrupted_writing_leaves_nothing(
    tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_offline_model(tmp_path / "out" / "net.om", parts, make_manifest())
    assert list((tmp_path / "out").iterdir()) == []


def test_no_permission_is_an_output_error(
    tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", denied)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        write_offline_model(tmp_path / "net.om", parts, make_manifest())


@pytest.mark.parametrize("blocker", ["file", "directory"])
def test_place_that_is_taken_is_an_output_error(tmp_path: Path, parts: Path, blocker: str) -> None:
    if blocker == "file":
        (tmp_path / "taken").write_text("")
        file = tmp_path / "taken" / "net.om"
    else:
        file = tmp_path / "net.om"
        file.mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_offline_model(file, parts, make_manifest())


def test_very_long_model_name_can_be_written(parts: Path, tmp_path: Path) -> None:
    file = tmp_path / ("n" * 245 + ".om")
    write_offline_model(file, parts, make_manifest())
    assert read_manifest(file).name == "net"


# ---- reading what is broken ----


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OfflineModelError, match=r"gone\.om: no such file"):
        read_manifest(tmp_path / "gone.om")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04" + bytes(100)])
def test_file_that_is_no_om_says_how_one_is_made(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.om"
    file.write_bytes(content)
    with pytest.raises(OfflineModelError, match="not a tuned model of this engine") as caught:
        read_manifest(file)
    assert "aoe --model" in str(caught.value.hint)


def test_directory_and_foreign_zip_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "foreign.om", "w") as archive:
        archive.writestr("readme.txt", "hello")
    for file in (tmp_path, tmp_path / "foreign.om"):
        with pytest.raises(OfflineModelError, match="not a tuned model"):
            read_manifest(file)


@pytest.mark.parametrize("schema", ["aoe.om/3", None, 1, ["aoe.om/1"]])
def test_unknown_version_says_which_is_known(om: Path, schema: object) -> None:
    changed = _rewritten(om, lambda value: value.update(schema=schema))
    with pytest.raises(OfflineModelError, match=r"unknown version .*expected aoe\.om/1"):
        read_manifest(changed)


@pytest.mark.parametrize("value", [[], "text", 3, None])
def test_manifest_that_is_no_object_is_refused(om: Path, value: object) -> None:
    with pytest.raises(OfflineModelError, match="unknown version"):
        read_manifest(_rewritten(om, lambda _: value if value is not None else [None]))


_MEMBERS = [
    "name",
    "model_sha256",
    "soc_version",
    "core_num",
    "cpu_features",
    "nchwc_block",
    "versions",
    "kernels",
    "parts",
]


@pytest.mark.parametrize("member", _MEMBERS)
def test_missing_member_is_named(om: Path, member: str) -> None:
    with pytest.raises(OfflineModelError, match=f"manifest is incomplete.*{member}"):
        read_manifest(_rewritten(om, lambda value: {k: v for k, v in value.items() if k != member}))


_TEXTS = ("name", "model_sha256", "soc_version", "accuracy")
_WRONG = [
    (member, wrong)
    for member in (*_MEMBERS, "precision", "accuracy")
    for wrong in (None, True, 1.5, -1, 10**30, "text", [1], [{}], [[]], {"a": 1})
    if not (member in _TEXTS and wrong == "text")
]


@pytest.mark.parametrize(("member", "wrong"), _WRONG)
def test_member_of_another_type_is_named(om: Path, member: str, wrong: object) -> None:
    changed = _rewritten(om, lambda value: value.update({member: wrong}))
    with pytest.raises(OfflineModelError, match=f"manifest is (wrong|incomplete): /{member}"):
        read_manifest(changed)


@pytest.mark.parametrize("member", ["name", "op_names"])
def test_member_of_a_kernel_of_another_type_is_named(om: Path, member: str) -> None:
    changed = _rewritten(om, lambda value: value["kernels"][0].update({member: 1}))
    with pytest.raises(OfflineModelError, match=f"wrong: /kernels/0/{member}: 1 is not of type"):
        read_manifest(changed)


def test_whole_number_written_as_a_fraction_is_one(om: Path) -> None:
    changed = _rewritten(om, lambda value: value.update(core_num=2.0, nchwc_block=8.0))
    manifest = read_manifest(changed)
    assert isinstance(manifest.core_num, int)
    assert isinstance(manifest.nchwc_block, int)


def test_precision_of_a_model_and_of_its_kernels_is_told(parts: Path, tmp_path: Path) -> None:
    lower = make_use(precision=Precision.BFLOAT16)
    manifest = make_manifest(
        kernels=(make_use(), lower), precision=Precision.BFLOAT16, accuracy="cosine 0.9999"
    )
    file = tmp_path / "lower.om"
    write_offline_model(file, parts, manifest)
    found = read_manifest(file)
    assert (found.precision, found.accuracy) == (Precision.BFLOAT16, "cosine 0.9999")
    assert [use.precision.value for use in found.kernels] == ["float32", "bfloat16"]


def test_manifest_that_names_no_precision_is_of_float32(om: Path) -> None:
    def older(value: dict[str, Any]) -> None:
        del value["precision"], value["accuracy"], value["kernels"][0]["precision"]

    found = read_manifest(_rewritten(om, older))
    assert found == read_manifest(om)
    assert found.precision is Precision.FLOAT32


def test_precision_this_version_does_not_know_is_refused(om: Path) -> None:
    with pytest.raises(OfflineModelError, match="float4"):
        read_manifest(_rewritten(om, lambda value: value.update(precision="float4")))


def test_member_of_a_later_version_is_ignored(om: Path) -> None:
    def later(value: dict[str, Any]) -> None:
        value.update(later=[1, 2])
        value["kernels"][0].update(later=1)

    changed = _rewritten(om, later)
    assert read_manifest(changed) == read_manifest(om)


@pytest.mark.parametrize("part", [MODEL, FALLBACK, WEIGHTS])
def test_manifest_without_a_needed_part_is_refused(om: Path, part: str) -> None:
    with pytest.raises(OfflineModelError, match=f"incomplete: /parts: '{part}'"):
        read_manifest(_rewritten(om, lambda value: value["parts"].pop(part) and None))


def test_part_that_leads_out_of_the_directory_is_refused(om: Path, tmp_path: Path) -> None:
    changed = _rewritten(om, lambda value: value["parts"].update({"../evil": "0"}))
    with pytest.raises(OfflineModelError, match=r"unknown part \(got '\.\./evil'\)"):
        unpack(changed, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


# ---- a zip that somebody else has made ----


def _with_member(file: Path, member: str | zipfile.ZipInfo, **how: Any) -> Path:
    """Return a copy of an `.om` with one more member."""
    copy = file.with_name("changed.om")
    copy.write_bytes(file.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, of a name that is there twice
        with zipfile.ZipFile(copy, "a") as archive:
            archive.writestr(member, b"evil", **how)
    return copy


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("../evil", "unknown part"),
        ("/tmp/evil", "unknown part"),
        ("sub/model.onnx", "unknown part"),
        ("run.sh", "unknown part"),
        ("kernels_1.so", "a part its manifest does not name"),
        (MODEL, "is in the file twice"),
        (MANIFEST, "is in the file twice"),
    ],
)
def test_member_the_manifest_does_not_name_is_refused(om: Path, name: str, problem: str) -> None:
    """The engine would pass over it, and `unzip` would write it."""
    with pytest.raises(OfflineModelError, match=problem):
        read_manifest(_with_member(om, name))


def test_member_that_is_a_link_is_refused(om: Path, parts: Path, tmp_path: Path) -> None:
    (parts / LIBRARY).unlink()
    write_offline_model(om, parts, make_manifest())
    link = zipfile.ZipInfo(LIBRARY)
    link.external_attr = 0o120777 << 16
    with pytest.raises(OfflineModelError, match=r"kernels\.so: no plain file"):
        unpack(_with_member(om, link), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bomb", [MANIFEST, WEIGHTS])
def test_compressed_part_is_refused_before_it_is_unpacked(
    om: Path, tmp_path: Path, bomb: str
) -> None:
    file = tmp_path / "bomb.om"
    with zipfile.ZipFile(om) as source, zipfile.ZipFile(file, "w") as sink:
        for name in source.namelist():
            data = bytes(64 << 20) if name == bomb else source.read(name)
            how = zipfile.ZIP_DEFLATED if name == bomb else zipfile.ZIP_STORED
            sink.writestr(name, data, how)
    assert file.stat().st_size < 1 << 20
    for read in (read_manifest, lambda file: unpack(file, tmp_path / "out")):
        with pytest.raises(OfflineModelError, match=f"{bomb}: compressed, and parts") as caught:
            read(file)
    assert "zip -0" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_manifest_has_a_limit(om: Path) -> None:
    huge = _rewritten(om, lambda value: value.update(later="x" * (64 << 20)))
    with pytest.raises(OfflineModelError, match=r"manifest\.json: too large .*at most 67108864"):
        read_manifest(huge)


def test_parts_that_share_their_bytes_are_refused(om: Path, tmp_path: Path) -> None:
    """Two names for one stretch of the file: more comes out than went in."""
    content = bytearray(om.read_bytes())
    last = content.rindex(b"PK\x01\x02")  # its head in the directory; both sizes are at 20
    content[last + 20 : last + 28] = len(content).to_bytes(4, "little") * 2
    (tmp_path / "shared.om").write_bytes(content)
    with pytest.raises(OfflineModelError, match="parts are larger than the file"):
        read_manifest(tmp_path / "shared.om")


@pytest.mark.parametrize("part", PARTS)
def test_damaged_part_is_named_with_both_digests(om: Path, tmp_path: Path, part: str) -> None:
    changed = _rewritten(om, lambda value: value["parts"].update({part: "f" * 64}))
    with pytest.raises(OfflineModelError, match=f"{part}: damaged part") as caught:
        unpack(changed, tmp_path / "out")
    assert f"expected {'f' * 64}" in str(caught.value)
    assert "tune the model again" in str(caught.value.hint)


@given(data=st.data())
def test_damaged_bytes_are_found_or_harmless(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in PARTS:
        (folder / name).write_bytes(name.encode())
    write_offline_model(folder / "good.om", folder, make_manifest())
    content = bytearray((folder / "good.om").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    (folder / "bad.om").write_bytes(content[: max(cut, len(content) - 30)])
    try:
        unpack(folder / "bad.om", folder / "out")
    except OfflineModelError:
        return
    for name in PARTS:
        assert (folder / "out" / name).read_bytes() == name.encode()


def test_full_disk_while_unpacking_is_an_output_error(om: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in PARTS:
        (tmp_path / "out" / name).symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left on device"):
        unpack(om, tmp_path / "out")


def test_empty_part_is_a_part(tmp_path: Path) -> None:
    for name in PARTS:
        (tmp_path / name).write_bytes(b"")
    write_offline_model(tmp_path / "net.om", tmp_path, make_manifest())
    unpack(tmp_path / "net.om", tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == set(PARTS)


def test_errors_are_engine_errors() -> None:
    assert issubclass(OfflineModelError, AoeError)
