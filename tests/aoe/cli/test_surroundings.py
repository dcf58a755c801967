"""Files of strangers: what lies in the working directory or beside a model is never imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine.models import matmul_net, save_model

from aoe.cli.commands import COMMANDS

ROOT = Path(__file__).parents[3]
_TRAPS = (
    *("json.py", "onnx.py", "sitecustomize.py", "usercustomize.py", "numpy/__init__.py"),
    *("aoe/__init__.py", "aoebank/__init__.py", "onnxruntime/__init__.py", "pickle.py"),
    *("halide/__init__.py", "distributed/__init__.py", "sklearn/__init__.py", "typing.py"),
)
_TRAP = "import os\nopen(os.path.join(os.environ['CAUGHT'], {name!r}), 'w').close()\n"
_AOE = {
    "": "--model=models/net.onnx --trials=1 --output=out",
    "doctor": "doctor",
    "plan": "plan models/net.onnx",
    "compile": "compile --model=models/net.onnx --output=net",
    "verify": "verify --sample 1",
    "run": "run net.om --input random",
    "benchmark": "benchmark net.om",
    "profile": "profile models/net.onnx",
    "advise": "advise models/net.onnx",
    "sign": "sign net.om --key key",
    "inspect": "inspect net.om",
    "watch": "watch out",
}
_NO_PROCESS_OF_ITS_OWN = {"demo"}
"""Commands that run another one of these, for minutes."""
_AOEBANK = (
    *("ls", "stats", "validate bank", "query 'SELECT 1'", "report --html", "fmt bank"),
    *("diff bank bank", "convert bank -o as_one.db", "snapshot", "log", "quarantine list"),
    *("pack -o bank.tar.gz", "unpack bank.tar.gz unpacked"),
)
_OTHER_USES = {
    "aoe/entry/tensorflow/model_files.py",  # runs a file of the package, in a folder of its own
    "aoe/tensorflow/watching.py",  # names it in a variable
}
_ALL = """
import json, shlex, sys
from contextlib import suppress
import aoe
from aoe.cli.app import main
from aoe.execute.workers.local import connected
from aoebank.cli import main as bank_main

codes = {}
for line in json.loads(sys.argv[1]):
    try:
        main(shlex.split(line))
    except SystemExit as end:
        codes[line] = end.code
for line in json.loads(sys.argv[2]):
    codes[line] = bank_main(shlex.split(line))
with connected(1) as client:
    codes["worker"] = client.submit(abs, 0).result()
with aoe.InferenceSession("models/net.onnx", tune=True, trials=1) as session:
    session.wait_for_tuning()
    codes["session"] = "".join(form.problem for form in session.forms)
print(json.dumps(codes), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, a bank and modules of a stranger everywhere."""
    place = tmp_path_factory.mktemp("place")
    (place / "models").mkdir()
    name = "x86-64-icelake"
    shutil.copytree(ROOT / "sample_banks" / name, place / "bank" / name)
    save_model(matmul_net(), place / "models" / "net.onnx")
    for folder in (place, place / "models", place / "bank"):
        for trap in _TRAPS:
            (folder / trap).parent.mkdir(exist_ok=True)
            (folder / trap).write_text(_TRAP.format(name=trap.replace("/", "_")))
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "key")]
    subprocess.run(key, check=True)
    return place


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no OpenSSH")
def test_nothing_is_imported_from_the_working_directory_or_the_folder_of_a_model(
    place: Path, tmp_path: Path
) -> None:
    assert {*_AOE, *_NO_PROCESS_OF_ITS_OWN} == {"", *COMMANDS}
    caught = tmp_path / "caught"
    caught.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ALL, json.dumps([*_AOE.values()]), json.dumps(_AOEBANK)],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CAUGHT": str(caught),
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "TUNE_BANK_PATH": "bank",
            "AOE_ACCEPT_BUSY": "True",
            "AOE_LOCK_PATH": str(tmp_path / "locks"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert [file.name for file in caught.iterdir()] == []
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stderr.splitlines()[-1])
    weaker = {"verify --sample 1"}  # a busy machine may find the record weaker than it says
    assert {one for one, code in codes.items() if code} <= weaker, done.stderr


_SHOW = """
import sys
sys.path.append(sys.argv.pop(1))
import json, aoe.child_python
print(json.dumps(aoe.child_python.search_path()))
"""


@pytest.mark.parametrize(
    ("words", "stays"), [(("-c", _SHOW), False), (("-m", "show"), False), (("show.py",), True)]
)
def test_children_import_what_the_parent_can_but_not_from_where_it_was_started(
    words: tuple[str, ...], stays: bool, tmp_path: Path
) -> None:
    (tmp_path / "show.py").write_text(_SHOW)
    done = subprocess.run(
        [sys.executable, *words, "/added"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    path = json.loads(done.stdout)
    assert ("" in path, str(tmp_path) in path) == (False, stays)
    assert str(ROOT) in path and path[-1] == "/added"


def test_python_is_started_by_one_module() -> None:
    sources = [*(ROOT / "aoe").rglob("*.py"), *(ROOT / "aoebank").rglob("*.py")]
    found = {file.relative_to(ROOT).as_posix() for file in sources if _names_python(file)}
    assert found == {"aoe/child_python.py", *_OTHER_USES}


def _names_python(file: Path) -> bool:
    text = file.read_text()
    return "sys.executable" in text or "get_executable" in text or '"-m", "aoe' in text
