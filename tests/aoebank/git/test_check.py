"""`aoebank git check` finds what keeps git from asking the drivers."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from support.git_work_tree import SAMPLES, WorkTree
from support.tiers import few_every_day

BANKS = {f"banks/{bank.name}": bank.data for bank in SAMPLES.values()}
NAME = next(iter(BANKS))


def _check(tree: WorkTree, *options: str) -> dict[str, dict[str, object]]:
    """Return the problems by code; there is one of each."""
    result = tree.aoebank("git", "check", "--json", *options)
    problems = json.loads(result.stdout)["problems"]
    assert result.returncode == (1 if problems else 0)
    assert len({problem["code"] for problem in problems}) == len(problems)
    return {problem["code"]: problem for problem in problems}


@pytest.fixture
def banks(tree: WorkTree) -> WorkTree:
    """Return a work tree with drivers and a bank file of each format."""
    tree.commit("banks", BANKS)
    return tree


def test_installed_drivers_are_in_order(banks: WorkTree) -> None:
    assert _check(banks) == {}
    output = banks.aoebank("git", "check").stdout
    assert output == "in order: git merges 15 of 15 bank files record by record\n"


def test_fresh_clone_is_declared_but_not_registered(banks: WorkTree) -> None:
    other = banks.top.with_name("other")
    banks.git("clone", "-q", str(banks.top), str(other))
    result = banks.aoebank("git", "check", cwd=other)
    assert result.returncode == 1
    assert "not_registered merge.aoebank.driver" in result.stdout
    assert "hint: aoebank git install" in result.stdout
    banks.aoebank("git", "install", cwd=other)
    assert banks.aoebank("git", "check", cwd=other).returncode == 0


def test_unregistered_driver_lets_git_merge_lines(banks: WorkTree) -> None:
    bank = next(iter(SAMPLES.values()))
    banks.git("config", "--remove-section", "merge.aoebank")
    banks.fork({NAME: bank.without(0, 1)}, {NAME: bank.without(0)}, {NAME: bank.without(1)})
    assert banks.try_git("merge", "theirs").returncode == 1
    assert b"<<<<<<<" in banks.read(NAME)
    assert [*_check(banks)] == ["not_registered"]


def test_committed_lines_are_all_that_counts_for_ci(banks: WorkTree) -> None:
    banks.git("config", "--unset", "merge.aoebank.driver")
    assert _check(banks, "--committed") == {}
    banks.commit("gone", {".gitattributes": None})
    assert [*_check(banks, "--committed")] == ["not_declared"]


def test_registered_but_not_declared(banks: WorkTree) -> None:
    banks.commit("gone", {".gitattributes": None})
    problem = _check(banks)["not_declared"]
    assert problem["paths"] == sorted(BANKS)


def test_repository_without_banks_is_in_order_once_installed(tree: WorkTree) -> None:
    assert _check(tree) == {}


def test_program_that_does_not_start(banks: WorkTree) -> None:
    (banks.home / "bin" / "aoebank").rename(banks.home / "bin" / "elsewhere")
    result = banks.run(str(banks.home / "bin" / "elsewhere"), "git", "check")
    assert result.returncode == 1
    assert "not_runnable merge.aoebank.driver: aoebank: cannot be started (exit code 127)" in (
        result.stdout
    )
    assert "--command" in result.stdout


@pytest.mark.parametrize("command", few_every_day(["true", "git", "echo aoebank-like; false"]))
def test_program_that_is_another_one(banks: WorkTree, command: str) -> None:
    banks.git("config", "merge.aoebank.driver", f"{command} merge-driver %O %A %B %L %P")
    assert (
        "not_runnable"
        in json.loads(banks.aoebank("git", "check", "--json").stdout)["problems"].__repr__()
    )


@pytest.mark.parametrize(
    ("key", "value"),
    few_every_day(
        [
            ("merge.aoebank.driver", "aoebank merge-driver %O %A %B"),
            ("merge.aoebank.driver", "aoebank merge-driver %O %A %B %L %P"),
            ("merge.aoebank.driver", "my-driver %O %A %B"),
            ("merge.aoebank.recursive", "binary"),
            ("diff.aoebank.textconv", "cat"),
        ]
    ),
)
def test_setting_that_this_version_does_not_write(banks: WorkTree, key: str, value: str) -> None:
    banks.git("config", key, value)
    document = json.loads(banks.aoebank("git", "check", "--json").stdout)
    found = {(problem["code"], problem["where"]) for problem in document["problems"]}
    assert ("other_command", key) in found
    banks.aoebank("git", "install")
    assert _check(banks) == {}


def test_textconv_of_git_config_may_be_missing_by_itself(banks: WorkTree) -> None:
    banks.git("config", "--unset", "diff.aoebank.textconv")
    assert _check(banks)["other_command"]["where"] == "diff.aoebank.textconv"


@pytest.mark.parametrize(
    ("line", "code"),
    few_every_day(
        [
            (b"*.json merge=union\n", "shadowed"),
            (b"*.json !merge\n", "not_covered"),
            (b"*.json -merge\n", "shadowed"),
            (b"* text=auto\n", "shadowed"),
        ],
        2,
    ),
)
def test_later_line_takes_files_away(banks: WorkTree, line: bytes, code: str) -> None:
    lines = banks.read(".gitattributes")
    banks.commit("shadow", {".gitattributes": lines + line})
    assert [*_check(banks)] == [code]
    is_all = line.startswith(b"* ")
    named = [name for name in sorted(BANKS) if is_all or name.endswith(".json")]
    assert _check(banks)[code]["paths"] == named
    banks.commit("above", {".gitattributes": line + lines})
    assert _check(banks) == {}


@pytest.mark.slow
def test_line_of_a_folder_below_takes_its_files_away(banks: WorkTree) -> None:
    banks.commit("below", {"banks/.gitattributes": b"*_gradient_fusion.json -merge\n"})
    paths = _check(banks)["shadowed"]["paths"]
    assert paths == [name for name in sorted(BANKS) if "gradient" in name]


@pytest.mark.slow
def test_bank_file_of_an_unusual_name_is_found_by_its_content(banks: WorkTree) -> None:
    banks.commit("odd", {"banks/mine.json": BANKS[NAME], "package.json": b"{}\n"})
    assert _check(banks)["not_covered"]["paths"] == ["banks/mine.json"]


def test_old_lines(banks: WorkTree) -> None:
    lines = banks.read(".gitattributes").replace(b"*.provenance.jsonl", b"*.other ")
    banks.commit("old", {".gitattributes": lines})
    assert [*_check(banks)] == ["old_block"]
    banks.aoebank("git", "install")
    assert _check(banks) == {}


def test_lines_a_person_wrote_will_do(banks: WorkTree) -> None:
    banks.commit("own", {".gitattributes": b"banks/** merge=aoebank\n"})
    assert _check(banks) == {}


def test_committed_conflict_file(banks: WorkTree) -> None:
    banks.write(f"{NAME}.conflicts", b"{}")
    banks.git("add", "-f", f"{NAME}.conflicts")
    assert _check(banks)["conflict_file"]["paths"] == [f"{NAME}.conflicts"]


@pytest.mark.slow
def test_lines_that_hide_conflict_files_are_old(banks: WorkTree) -> None:
    exclude = banks.top / ".git" / "info" / "exclude"
    lines = exclude.read_text().replace(".*.aoebank-tmp", "*.json.conflicts\n.*.aoebank-tmp")
    exclude.write_text(lines)
    assert _check(banks)["old_block"]["where"] == ".git/info/exclude"
    assert _check(banks, "--committed") == {}
    banks.aoebank("git", "install")
    assert _check(banks) == {}


@pytest.mark.slow
def test_many_paths_are_cut_in_text_only(banks: WorkTree) -> None:
    bank = next(bank for bank in SAMPLES.values())
    more: Mapping[str, bytes] = {f"more/{n}.json": bank.data for n in range(8)}
    banks.commit("many", more)
    assert "and 3 more" in banks.aoebank("git", "check").stdout
    assert len(_check(banks)["not_covered"]["paths"]) == 8  # type: ignore[arg-type]


@pytest.mark.slow
def test_link_loops_and_missing_files_do_not_matter(banks: WorkTree) -> None:
    (banks.top / "banks" / "a_1_AiCore_b.json").symlink_to("nowhere")
    banks.commit("link")
    (banks.top / NAME).unlink()
    assert _check(banks) == {}
