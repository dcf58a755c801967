"""Operators of other libraries: known to every session, recorded in the tuned model."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.commands import aoe_exit_code
from support.engine.models import save_model
from support.engine.online import Script

import aoe
import aoe.kernels
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain
from aoe.errors import OptionError, RunError
from aoe.om.file import digest_of, read_manifest
from aoe.ort.custom_operators import try_operators
from aoe.ort.sessions import session_options

_SHAPE = (1, 8, 16, 16)
_NET = """
    <ir_version: 8, opset_import: ["" : 18, "acme" : 1]>
    net (float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y) {
        [sp] a = Softplus(x)
        [twice] b = acme.Twice(a)
        [th] y = Tanh(b)
    }
"""


def _net() -> onnx.ModelProto:
    return onnx.parser.parse_model(_NET)


def _feed() -> dict[str, Any]:
    return {"x": np.linspace(-3, 3, 2048, dtype=np.float32).reshape(_SHAPE)}


def _expected() -> Any:
    return np.tanh(2 * np.log1p(np.exp(_feed()["x"])))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Path:
    """Return the library of `twice_operator.c`."""
    file = tmp_path_factory.mktemp("operators") / "twice.so"
    glue = Path(aoe.kernels.__file__).parent / "glue"
    source = Path(__file__).with_name("twice_operator.c")
    toolchain.run(
        ["-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{glue}", "-o", str(file), str(source)],
        what="building",
    )
    return file


@pytest.fixture(scope="module")
def om(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Path:
    """Return the model with the operator, converted with an empty bank."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "bank").mkdir()
    result = aoe.tune(
        save_model(_net(), folder / "net.onnx"),
        custom_ops_library=library,
        bank=folder / "bank",
        output=folder / "out",
        core_num=min(2, os.cpu_count() or 1),
        lookup_only=True,
    )
    assert result.om_file is not None
    return result.om_file


def test_sessions_of_a_device_know_the_operators(library: Path) -> None:
    device = default_device().with_operators([library])
    options = session_options(threads=1, optimize=True)
    for _ in range(2):  # the same options may be used for several sessions
        session = device.open_session(_net().SerializeToString(), options)
        np.testing.assert_allclose(session.run(None, _feed())[0], _expected(), rtol=1e-5)


def test_a_model_whose_operator_nobody_has_says_what_to_give() -> None:
    options = session_options(threads=1, optimize=True)
    with pytest.raises(RunError, match="acme:Twice") as refused:
        default_device().open_session(_net().SerializeToString(), options)
    assert "--custom_ops_library=FILE.so" in str(refused.value.hint)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--custom_ops_library: no such file"):
        try_operators([tmp_path / "none.so"])
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(OptionError, match="not a library of operators that can be loaded here"):
        try_operators([tmp_path / "text.so"])


def test_tuned_model_names_the_library(om: Path, library: Path) -> None:
    (needed,) = read_manifest(om).operators
    assert (needed.path, needed.sha256) == (str(library), digest_of(library))


def test_tuned_model_runs_with_the_library(om: Path, library: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = aoe.load(om, custom_ops_library=str(library))
    np.testing.assert_allclose(model.run(None, _feed())[0], _expected(), rtol=1e-5)


def test_tuned_model_is_not_loaded_without_it(om: Path) -> None:
    with pytest.raises(OptionError, match=r"needs operators .* \(expected .*twice.so\)"):
        aoe.load(om)


def test_another_library_than_it_was_tuned_with_is_told(
    om: Path, library: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copy(library, tmp_path / "other.so"))
    with other.open("ab") as file:
        file.write(b"\0")
    with pytest.warns(UserWarning, match="tuned with another library of operators"):
        model = aoe.load(om, custom_ops_library=[other])
    np.testing.assert_allclose(model.run(None, _feed())[0], _expected(), rtol=1e-5)


def test_commands_take_the_library(
    om: Path, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> Any:
        code = aoe_exit_code(["run", str(om), *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    assert run()[0] == 2
    code, told = run("--custom_ops_library", str(library))
    assert code == 0 and told["outputs"][0]["shape"] == list(_SHAPE)


def test_session_in_memory_has_the_operators_and_so_has_its_tuned_model(
    om: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "bank" / default_device().describe().soc_version / "unified_bank"
    folder.mkdir(parents=True)
    (folder / "records.json").write_text("{}")
    script = Script(lambda asked: om)
    with script.session_class()(
        _net(), bank=tmp_path / "bank", custom_ops_library=str(library)
    ) as session:
        (form,) = session.forms
        assert form.stage == "looked up" and not form.problem
        np.testing.assert_allclose(session.run(None, _feed())[0], _expected(), rtol=1e-5)
    (asked,) = script.asked
    assert asked.operators == (str(library),)
    assert type(asked).parse(asked.to_text()) == asked


def test_session_without_the_operators_is_onnx_runtimes_own_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="acme"):
        aoe.InferenceSession(_net(), bank=tmp_path)


def test_session_refuses_what_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--custom_ops_library: no such file"):
        aoe.InferenceSession(_net(), bank=tmp_path, custom_ops_library=tmp_path / "none.so")
