"""Raw results survive, are resumed, and never mix machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparison.files import write_whole
from comparison.results import ResultsError, environment, load_results, open_results


def _record(network: str, threads: int, **more: Any) -> dict[str, Any]:
    return {"network": network, "threads": threads, "settings": {}, "peers": {}, **more}


def test_records_are_there_for_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "peers.json"
    with open_results(file) as opened:
        opened.put(_record("resnet18", 1))
        opened.put(_record("resnet18", 2))
    with open_results(file) as opened:
        assert opened.find("resnet18", 2) is not None
        assert opened.find("bert6", 2) is None
        opened.put(_record("bert6", 2))
    assert len(load_results(file)["records"]) == 3


def test_record_of_the_same_network_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    with open_results(file) as opened:
        opened.put(_record("resnet18", 1, note="old"))
        opened.put(_record("resnet18", 2))
        opened.put(_record("resnet18", 1, note="new"))
        found = opened.find("resnet18", 1)
    assert found is not None and found["note"] == "new"
    assert len(load_results(file)["records"]) == 2


def test_every_record_has_a_date_and_a_line(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    with open_results(file) as opened:
        opened.put(_record("resnet18", 1))
        opened.put(_record("bert6", 1))
    lines = [line for line in file.read_text().splitlines() if line.startswith('{"network"')]
    assert len(lines) == 2 and all('"date": "2' in line for line in lines)


def test_second_run_at_once_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    with open_results(file), pytest.raises(ResultsError, match="another run"), open_results(file):
        pass


def _elsewhere(**versions: str | None) -> dict[str, Any]:
    """Return this machine with other versions of packages."""
    here = environment()
    return {**here, "versions": {**here["versions"], **versions}}


def test_results_of_other_versions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    with open_results(file) as opened:
        opened.put(_record("resnet18", 1))
    expected = r"peers\.json: results of another .*onnxruntime .* there, 0\.0 here(.|\n)*--results"
    other = _elsewhere(onnxruntime="0.0")
    with pytest.raises(ResultsError, match=expected), open_results(file, here=other):
        pass


def test_engines_may_differ_where_records_name_theirs(tmp_path: Path) -> None:
    file = tmp_path / "subgraphs.json"
    first, second = ({**environment(), "engine": name} for name in ("first", "second"))
    with open_results(file, here=first) as opened:  # before records named theirs
        opened.put(_record("resnet18", 1))
    with (
        pytest.raises(ResultsError, match="engine first there, second here"),
        open_results(file, here=second),
    ):
        pass
    with open_results(file, is_mixed=True, here=second) as opened:
        opened.put(_record("bert6", 1))
        assert opened.find("resnet18", 1) is not None
    engines = {record["network"]: record["engine"] for record in load_results(file)["records"]}
    assert engines == {"resnet18": "first", "bert6": "second"}


def test_mixed_results_are_of_one_machine_and_of_packages_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "subgraphs.json"
    with open_results(file, is_mixed=True) as opened:
        opened.put(_record("resnet18", 1))
    with open_results(file, is_mixed=True, here=_elsewhere(onnxscript=None)) as opened:
        assert opened.find("resnet18", 1) is not None
    other = _elsewhere(onnxruntime="0.0")
    with (
        pytest.raises(ResultsError, match="onnxruntime"),
        open_results(file, is_mixed=True, here=other),
    ):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other/1"}'])
def test_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "peers.json"
    file.write_text(text)
    with pytest.raises(ResultsError, match=r"peers\.json"), open_results(file):
        pass
    assert file.read_text() == text


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_whole(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "new \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
