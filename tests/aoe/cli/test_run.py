"""`aoe run`: results of every kind are told and saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.engine.cpu import open_session
from support.engine.models import results_net
from support.engine.offline import make_manifest

import aoe
from aoe.cli import app as app_module
from aoe.om.loading import OfflineModel
from aoe.ort.sessions import session_options


def test_results_that_are_no_tensors_are_told_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = session_options(threads=1, optimize=True)
    session = open_session(results_net().SerializeToString(), options)
    model = OfflineModel(make_manifest(), session, "")
    monkeypatch.setattr(aoe, "load", lambda om, threads: model)
    np.save(tmp_path / "in.npy", np.arange(32, dtype=np.float32).reshape(4, 8))
    arguments = ["run", "net.om", "--input", str(tmp_path / "in.npy"), "--json"]
    assert app_module.run_app(app_module.app, [*arguments, "--output", str(tmp_path / "out")]) == 0

    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)["outputs"]}
    shapes = {name: one["shape"] for name, one in told.items()}
    assert shapes == {
        "tensor": [4, 8],
        "text": [1, 8],
        "sequence[0]": [4, 8],
        "sequence[1]": [1, 8],
        "optional": [1, 8],
    }
    for name in told:
        saved = np.load(tmp_path / "out" / f"{name}.npy", allow_pickle=False)
        assert list(saved.shape) == shapes[name]
    assert np.load(tmp_path / "out" / "text.npy")[0, 0] == "24"
