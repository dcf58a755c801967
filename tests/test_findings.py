"""Scripts of `findings/` have the form of CONTRIBUTING.md, and the command tells what changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.findings import CHANGED, FINDINGS, State, run_finding, run_findings
from support.findings import with_newest_packages as unpin

SCRIPTS = {script.stem: script for script in sorted(FINDINGS.glob("*"))}
FIELDS = ("Expected", "Happens", "Seen with", "Matters", "Handled in")
PLACE = re.compile(r"(?:aoe|aoebank|tests)/[\w./]+")


@pytest.mark.parametrize("name", SCRIPTS)
def test_finding_has_the_form_and_names_places_that_exist(name: str) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    head = text.partition("\nset -euo pipefail\n")[0]
    assert head.startswith("#!/usr/bin/env bash\n")
    assert re.findall(r"^# ([A-Z][a-z]+(?: \w+)?): ", head, re.MULTILINE) == [*FIELDS]
    assert re.search(r"\d{4}-\d\d-\d\d", head.partition("Seen with")[2])
    assert 'folder="$(mktemp -d)"\ntrap \'rm -rf "$folder"\' EXIT\ncd "$folder"\n' in text
    assert "==" in text.partition("pip install")[2]  # a release is pinned
    assert CHANGED in text
    handled = head.partition("Handled in")[2]
    root = FINDINGS.parent
    assert [
        place for place in PLACE.findall(handled) if not (root / place.rstrip(".")).exists()
    ] == []


def test_command_tells_same_changed_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = {
        "as_it_was": 'echo "tool 1.0"; echo more; [[ "$TMPDIR" == "$PWD" ]]',
        "changed": f'echo "tool 2.0"; echo "{CHANGED}: 3, expected 4" >&2; exit 1',
        "no_package": 'echo "ERROR: No matching distribution" >&2; exit 1',
    }
    scripts = []
    for name, body in bodies.items():
        scripts.append(tmp_path / f"{name}.sh")
        scripts[-1].write_text(body)
    assert run_findings(scripts, jobs=2) == 2
    lines = [re.sub(r"\(\d+ s\)", "(0 s)", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "same     as_it_was (0 s): tool 1.0",
        f"changed  changed (0 s): tool 2.0; {CHANGED}: 3, expected 4",
        "not run  no_package (0 s): ERROR: No matching distribution",
        "1 of 3 findings are as they were",
    ]


def test_script_without_an_end_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "waits.sh"
    script.write_text("exec sleep 60")
    assert run_finding(script, limit_s=0.2).state is State.NOT_RUN


def test_newest_packages_are_those_without_their_pins() -> None:
    script = (
        "venv/bin/python -m pip install --quiet \\\n"
        '    numpy==2.4.6 "onnxruntime==$release"\n'
        "python - <<'PY'\nsys.exit(x==1)\nPY\n"
    )
    assert unpin(script) == script.replace("numpy==2.4.6", "numpy")
