"""The command, git's driver and the check of merge commits merge a file the same way."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.merge_files import NAMES, Answer, make_file

from aoebank import DriverOutcome, merge
from aoebank.git.driver import DriverCall, DriverFiles, run_merge_driver
from aoebank.git.re_merge import ReMerge, read_trees
from aoebank.git.verify import verify_merges
from aoebank.merging.decisions import Decision, MergeRules, Policy
from aoebank.storage.git.merges import list_merges

VERSIONS = ("base", "ours", "theirs")
TODAY = date(2026, 3, 1)


@st.composite
def versions(draw: st.DrawFn) -> tuple[str, Mapping[str, bytes]]:
    """Draw three versions of a file of one format, none of them empty: git would say deleted."""
    name = draw(st.sampled_from(["unified", "runtime_kb", "vector"]))
    costs = st.sampled_from([10.0, 10.1, 20.0]) if name != "runtime_kb" else st.none()
    answers = st.builds(Answer, tile=st.integers(1, 3), cost_us=costs | st.none())
    files = st.dictionaries(st.integers(0, 4), answers, min_size=1, max_size=5)
    return name, {version: make_file(name, draw(files)) for version in VERSIONS}


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


# each example starts git: 6 every day, 75 with `-m slow`
@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(drawn=versions(), policy=st.sampled_from([Policy.KEEP_BEST, Policy.THEIRS, Policy.FAIL]))
def test_command_driver_and_check_give_the_same_bytes_and_decisions(
    drawn: tuple[str, Mapping[str, bytes]], policy: Policy
) -> None:
    name, files = drawn
    rules = MergeRules(policy=policy, may_be_unrelated=True)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        for version, data in files.items():
            (top / version).mkdir()
            (top / version / NAMES[name]).write_bytes(data)
        subprocess.run(["git", "init", "-q", "."], cwd=top, check=True)
        config = top / ".git" / "config"
        config.write_text(f'{config.read_text()}[aoebank "merge"]\npolicy = {policy}\n')

        written, said = _by_command(top, NAMES[name], rules)
        outcome, data = _by_driver(top, NAMES[name])
        assert data == written
        assert outcome.plan.decisions == said

        _commit(top, NAMES[name], {**files, "merge": data})
        (commit,) = list_merges("merge", cwd=top)
        again = ReMerge(commit, trees=read_trees(top), rules=rules)
        for paths in again.iter_paths():
            merged = again.merge(paths, again.versions(paths))
            assert merged.data == written
            assert merged.plan.decisions == said
        verdict, *_ = verify_merges(["merge"], cwd=top, rules=rules)  # then what waits in the tree
        assert verdict.problems == ()


def _by_command(top: Path, name: str, rules: MergeRules) -> tuple[bytes, tuple[Decision, ...]]:
    base, ours, theirs = (top / version / name for version in VERSIONS)
    out = top / "out" / name
    result = merge(
        ours,
        theirs,
        base=base,
        output=out,
        policy=rules.policy,
        allow_unrelated=rules.may_be_unrelated,
        verbose=True,
    )
    (step,) = result.steps
    return out.read_bytes(), step.decisions


def _by_driver(top: Path, name: str) -> tuple[DriverOutcome, bytes]:
    base, ours, theirs = (top / version / name for version in VERSIONS)
    files = DriverFiles(base=base, ours=ours, theirs=theirs, path=Path(name))
    call = DriverCall(cwd=top, env={}, today=TODAY, verbose=True)
    return run_merge_driver(files, call), ours.read_bytes()


def _commit(top: Path, name: str, contents: Mapping[str, bytes]) -> None:
    """Make a commit of each version, on a branch of that name, with the parents it has."""
    parents = {"base": [], "ours": ["base"], "theirs": ["base"], "merge": ["ours", "theirs"]}
    stream = b""
    for branch, (first, *others) in ((key, [*names, ""]) for key, names in parents.items()):
        links = [f"from refs/heads/{first}"] if first else []
        links += [f"merge refs/heads/{other}" for other in others if other]
        data = contents[branch]
        head = [f"commit refs/heads/{branch}", "committer a <a@b> 1772323200 +0000", "data 0"]
        lines = [*head, *links, f"M 100644 inline {name}", f"data {len(data)}", ""]
        stream += "\n".join(lines).encode() + data + b"\n"
    subprocess.run(["git", "fast-import", "--quiet"], cwd=top, input=stream, check=True)
