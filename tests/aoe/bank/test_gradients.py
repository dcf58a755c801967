"""Gradient bank: what is stored comes back, what nobody should use does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import hash_of, make_gradient_trace
from support.version_banks import keep_out

from aoe.bank.gradients import GradientBank, gradient_banks
from aoe.bank.journal import BankJournal
from aoe.bank.records.gradient import GradientVerdict, Miss, StoredGradients
from aoe.gradients.choose import Origin
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation, optimal
from aoe.gradients.trace import GradientTrace
from aoe.measurement import SpeedupEstimate
from aoebank import Bank, BankNotFoundError, Event, UnionBank
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
COST = AllReduceCost(latency_us=100, us_per_byte=0.002, residuals=(0.01, -0.01))
TRACE = make_gradient_trace([4096, 1 << 20, 8192, 64], [50.25, 100.5, 101.0, 400.75])
KEY = hash_of(TRACE)
ESTIMATE = SpeedupEstimate(median=1.1, low=1.05, high=1.15, pairs=20, coverage=0.95)


def make_bank(folder: Path | Bank, cluster: Mapping[str, Any] | None = None) -> GradientBank:
    journal = BankJournal(
        folder,
        "x86-64-test",
        fingerprint={"torch": "2.13.0", "cpu_model": "a cpu"},
        model={"name": "net"},
        engine_version="0.1.0",
        clock=lambda: NOW,
    )
    return GradientBank(journal, cluster=cluster)


def make_verdict(**changes: Any) -> GradientVerdict:
    verdict = GradientVerdict(
        event=Event.ADD,
        world_size=4,
        backend="gloo",
        cost=COST,
        segmentation=Segmentation(ends=(2, 4)),
        origin=Origin.INFLATED,
        inflation=1.5,
        estimate=ESTIMATE,
        baseline_us=(110.0, 111.0),
        tuned_us=(100.0, 101.0),
    )
    return replace(verdict, **changes)


@pytest.fixture
def bank(tmp_path: Path) -> GradientBank:
    return make_bank(tmp_path)


def items(bank: GradientBank) -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = json.loads(bank.file.read_text())
    return value


def item(sizes: list[Any], times: list[Any], key: int = KEY) -> dict[str, Any]:
    return {"modelhash": str(key), "modelvalue": {"gradientSize": sizes, "gradientTime": times}}


def test_record_is_what_readers_of_the_format_expect(bank: GradientBank, tmp_path: Path) -> None:
    bank.save(KEY, TRACE, make_verdict())
    assert bank.file == tmp_path / "x86-64-test_gradient_fusion.json"
    start = 1772366400000000  # NOW in microseconds
    assert items(bank) == [item([4096, 1 << 20, 8192, 64], [start, 50, 1, 299])]


def test_everything_comes_back(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    stored = bank.find(KEY, TRACE.sizes_bytes)
    assert stored is not None
    assert replace(stored.trace, ready_us=TRACE.ready_us) == TRACE
    assert stored.trace.ready_us == pytest.approx(TRACE.ready_us, abs=1)
    assert stored.trace.ready_us[0] == TRACE.ready_us[0]
    assert "?" not in stored.trace.names
    assert (stored.world_size, stored.backend, stored.cost) == (4, "gloo", COST)
    assert (stored.segmentation, stored.origin) == (Segmentation(ends=(2, 4)), Origin.INFLATED)
    assert (stored.inflation, stored.speedup) == (1.5, 1.1)
    assert (stored.speedup_low, stored.speedup_high) == (1.05, 1.15)


@given(
    st.lists(st.tuples(st.integers(0, 2**50), st.floats(0, 1e9)), min_size=1, max_size=30).filter(
        lambda gradients: any(size for size, _ in gradients)
    )
)
def test_times_come_back_to_the_microsecond(
    tmp_path_factory: pytest.TempPathFactory, gradients: list[tuple[int, float]]
) -> None:
    bank = make_bank(tmp_path_factory.mktemp("bank"))
    ready = sorted(time for _, time in gradients)
    trace = make_gradient_trace([size for size, _ in gradients], ready)
    bank.save(7, trace, make_verdict(segmentation=None))
    stored = bank.find(7, trace.sizes_bytes)
    assert stored is not None
    assert stored.trace.sizes_bytes == trace.sizes_bytes
    assert stored.trace.ready_us == pytest.approx(trace.ready_us, abs=1.01)
    times = items(bank)[0]["modelvalue"]["gradientTime"]
    assert all(type(time) is int and 0 <= time < 2**64 for time in times)


def test_written_bank_is_valid_with_its_side_car(bank: GradientBank) -> None:
    from aoebank.validation.run import validate

    bank.save(KEY, TRACE, make_verdict())
    bank.note(KEY, make_verdict(event=Event.RESERVED), TRACE)
    assert validate([bank.file.parent]).findings == ()


def test_side_car_says_where_and_how_well(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict(search={"trials": 9}))
    side_car = bank.file.with_name(bank.file.name + ".provenance.jsonl")
    entry = json.loads(side_car.read_text())
    assert entry["fingerprint"] == {
        "torch": "2.13.0",
        "cpu_model": "a cpu",
        "world_size": 4,
        "backend": "gloo",
    }
    assert entry["search"]["cost"]["latency_us"] == 100
    assert (entry["search"]["trials"], entry["search"]["loops"]) == (9, 5)
    assert entry["search"]["segmentation"] == [2, 4]
    assert (entry["speedup"], entry["speedup_low"], entry["speedup_high"]) == (1.1, 1.05, 1.15)


@pytest.mark.parametrize(
    ("content", "miss"),
    [
        ([], Miss.ABSENT),
        ([item([1, 2], [5, 6], key=8)], Miss.ABSENT),
        ([item([0] * 5, [0] * 5)], Miss.PLACEHOLDER),
        ([item([1, 2, 3, 4, 5], [0] * 5)], Miss.PLACEHOLDER),
        ([item([0] * 5, [9, 1, 1, 1, 1])], Miss.PLACEHOLDER),
        ([item([], [])], Miss.PLACEHOLDER),
        ([item([0, 0], [5, 6])], Miss.PLACEHOLDER),
        ([item([1, 2], [5])], Miss.BROKEN),
        ([item([1, -2], [5, 6])], Miss.BROKEN),
        ([item([1, 2], [5, -6])], Miss.BROKEN),
        ([item([1, 2.5], [5, 6])], Miss.BROKEN),
        ([item([1, "2"], [5, 6])], Miss.BROKEN),
        ([item([1, 2], [5, 10**400])], Miss.BROKEN),
        ([{"modelhash": str(KEY)}], Miss.BROKEN),
        ([{"modelhash": str(KEY), "modelvalue": {"gradientSize": [1]}}], Miss.BROKEN),
        ([item([4096, 1 << 20, 8192, 64], [5, 6, 7, 8])] * 2, Miss.TWICE),
        ([item([1, 2], [5, 6]), item([1, 2], [7, 8])], Miss.TWICE),
        ([item([4096, 1 << 20, 8192], [5, 6, 7])], Miss.FOREIGN),
        ([item([4096, 1 << 20, 8192, 65], [5, 6, 7, 8])], Miss.FOREIGN),
    ],
)
def test_unusable_record_is_a_miss_and_saving_replaces_it(
    bank: GradientBank, content: list[Any], miss: Miss
) -> None:
    bank.file.write_text(json.dumps(content))
    found = bank.look_up(KEY, TRACE.sizes_bytes)
    assert (found.miss, found.stored) == (miss, None)
    assert bank.find(KEY, TRACE.sizes_bytes) is None
    others = [member for member in content if member["modelhash"] != str(KEY)]
    bank.save(KEY, TRACE, make_verdict())
    assert [member for member in items(bank) if member["modelhash"] != str(KEY)] == others
    assert sum(member["modelhash"] == str(KEY) for member in items(bank)) == 1
    assert bank.find(KEY, TRACE.sizes_bytes) is not None


def test_order_of_the_gradients_asked_for_does_not_matter(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    assert bank.find(KEY, sorted(TRACE.sizes_bytes)) is not None


def test_record_of_another_tuner_has_no_names_and_counts_from_its_first_gradient(
    bank: GradientBank,
) -> None:
    bank.file.write_text(json.dumps([item([10, 20, 30], [4657707485836, 7, 8])]))
    stored = bank.find(KEY)
    assert stored is not None
    assert stored.trace.ready_us == (0, 7, 15)
    assert "?" in stored.trace.names
    assert (stored.world_size, stored.cost, stored.segmentation) == (None, None, None)


def test_side_car_of_a_record_somebody_replaced_does_not_count(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    bank.file.write_text(json.dumps([item([4096, 1 << 20, 8192, 64], [5, 6, 7, 8])]))
    stored = bank.find(KEY, TRACE.sizes_bytes)
    assert stored is not None
    assert (stored.world_size, stored.segmentation, "?" in stored.trace.names) == (None, None, True)


def test_rewritten_text_of_the_same_lists_keeps_its_side_car(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    bank.file.write_text(json.dumps(items(bank), indent=4))
    stored = bank.find(KEY)
    assert stored is not None
    assert stored.world_size == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"cost": 3},
        {"cost": {"kind": "line", "latency_us": "x", "us_per_byte": 1}},
        {"segmentation": "no"},
        {"segmentation": [1, 2]},
        {"segmentation": [4, 2]},
        {"segmentation": [2.0, 4]},
        {"segmentation": [True, 4]},
        {"origin": 7},
        {"origin": []},
        {"first_ready_us": "soon"},
        {"first_ready_us": -1},
        {"loops": None},
        {"dtypes": [1, 2, 3, 4]},
        {"dtypes": "abcd"},
        {"inflation": True},
        {"inflation": 1e999},
        {"inflation": 10**400},
        {"cost": {"kind": "line", "latency_us": 10**400, "us_per_byte": 1}},
    ],
)
def test_edited_side_car_never_breaks_a_look_up(
    bank: GradientBank, changes: dict[str, Any]
) -> None:
    bank.save(KEY, TRACE, make_verdict())
    side_car = bank.file.with_name(bank.file.name + ".provenance.jsonl")
    entry = json.loads(side_car.read_text())
    entry["search"].update(changes)
    side_car.write_text(json.dumps(entry) + "\n")
    stored = bank.find(KEY)
    assert stored is not None
    stored.segment(COST, world_size=4, backend="gloo")


def test_where_it_was_measured_the_winner_is_used(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    stored = bank.find(KEY)
    assert stored is not None
    assert stored.segment(COST, world_size=4, backend="gloo") == Segmentation(ends=(2, 4))


@pytest.mark.parametrize(("world_size", "backend"), [(8, "gloo"), (4, "nccl")])
def test_elsewhere_it_is_computed_anew(bank: GradientBank, world_size: int, backend: str) -> None:
    bank.save(KEY, TRACE, make_verdict())
    stored = bank.find(KEY)
    assert stored is not None
    other = AllReduceCost(latency_us=1, us_per_byte=1e-6)
    expected = optimal(stored.trace, AllReduceCost(latency_us=1.5, us_per_byte=1.5e-6))
    assert stored.segment(other, world_size=world_size, backend=backend) == expected


def test_latest_entry_counts(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    bank.save(KEY, TRACE, make_verdict(event=Event.UPDATE, world_size=2))
    stored = bank.find(KEY)
    assert stored is not None
    assert stored.world_size == 2
    assert len(items(bank)) == 1


def test_default_was_best_only_where_that_was_found(bank: GradientBank) -> None:
    def is_known(modelhash: int = KEY, world_size: int = 4) -> bool:
        return bank.last_failure(modelhash, world_size=world_size, backend="gloo") is not None

    assert not is_known()
    bank.note(KEY, make_verdict(event=Event.UNSATISFIED, segmentation=None), TRACE)
    assert is_known() and not is_known(world_size=8) and not is_known(KEY + 1)
    assert not bank.file.exists()
    bank.save(KEY, TRACE, make_verdict())
    assert not is_known()


def test_conditions_of_a_search_that_found_nothing_are_kept(bank: GradientBank) -> None:
    verdict = make_verdict(
        event=Event.UNSATISFIED, segmentation=None, step_us=1234.5, time_limit_s=60.0
    )
    bank.note(KEY, verdict, TRACE)
    found = bank.last_failure(KEY, world_size=4, backend="gloo")
    assert found is not None
    assert (found.step_us, found.time_limit_s, found.world_size) == (1234.5, 60.0, 4)
    assert found.cost == verdict.cost


def test_step_time_of_a_side_car_without_one_is_that_of_its_samples(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict(step_us=None, tuned_us=(900.0, 1000.0, 1300.0)))
    stored = bank.find(KEY)
    assert stored is not None and stored.conditions.step_us == 1000.0
    assert stored.conditions.time_limit_s is None


@pytest.mark.parametrize("modelhash", [-1, 2**64])
def test_hash_that_is_no_u64_is_refused(bank: GradientBank, modelhash: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        bank.save(modelhash, TRACE, make_verdict())


def test_folder_is_where_the_tuner_of_cann_writes(tmp_path: Path) -> None:
    named = tmp_path / "bank"
    named.mkdir()
    env = {"TUNE_BANK_PATH": str(named), "HOME": str(tmp_path)}
    assert gradient_banks(env, tmp_path, "soc").root == named
    default = gradient_banks({"HOME": str(tmp_path)}, tmp_path, "soc").root
    assert default == tmp_path / "Ascend/latest/data/aoe/custom/graph/soc"
    with pytest.raises(BankNotFoundError):
        gradient_banks({"TUNE_BANK_PATH": str(tmp_path / "no")}, tmp_path, "soc")


def test_default_folder_is_made_on_the_first_record(tmp_path: Path) -> None:
    bank = make_bank(gradient_banks({"HOME": str(tmp_path)}, tmp_path, "x86-64-test").root)
    bank.save(KEY, TRACE, make_verdict())
    assert bank.find(KEY) is not None


def test_real_bank_reads_as_a_trace(shared_data: Path) -> None:
    folder = shared_data / "cann_banks" / "gradient"
    journal = BankJournal(folder, "Ascend910", fingerprint={}, model={}, engine_version="0")
    bank = GradientBank(journal)
    stored = bank.find(15294858920613849201)
    assert isinstance(stored, StoredGradients)
    trace: GradientTrace = stored.trace
    assert (len(trace), trace.total_bytes) == (161, 102236324)
    assert trace.backward_end_us == 9571533
    assert len(optimal(trace, COST)) > 1


def quarantine(bank: GradientBank, *, any_strategy: bool) -> None:
    """Put the record of TRACE into quarantine; it stays in the file."""
    (record,) = Bank(bank.file.parent).iter_records(bank.file)
    entry = QuarantineEntry(
        key=record.key,
        reason="times of a broken machine",
        who="Ann",
        when="2026-01-01T00:00:00Z",
        soc_version="x86-64-test",
        strategy_sha256=None if any_strategy else digest_of(record.strategy),
    )
    keep_out(bank.file.parent, entry)


def test_record_in_quarantine_is_a_miss_and_gets_replaced_by_other_times(
    bank: GradientBank,
) -> None:
    bank.save(KEY, TRACE, make_verdict())
    quarantine(bank, any_strategy=False)
    assert bank.look_up(KEY).miss is Miss.QUARANTINED
    later = replace(TRACE, ready_us=(50.25, 150.0, 160.0, 500.0))
    bank.save(KEY, later, make_verdict())
    assert bank.look_up(KEY).stored is not None


def test_model_in_quarantine_as_a_whole_gets_no_record_back(bank: GradientBank) -> None:
    bank.save(KEY, TRACE, make_verdict())
    quarantine(bank, any_strategy=True)
    before = bank.file.read_bytes()
    bank.save(KEY, replace(TRACE, ready_us=(1.0, 2.0, 3.0, 4.0)), make_verdict())
    assert bank.file.read_bytes() == before
    assert bank.look_up(KEY).miss is Miss.QUARANTINED


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return three folders of gradient banks; nobody has written one yet."""
    found = [tmp_path / name for name in ("team", "other", "own")]
    for folder in found:
        folder.mkdir()
    return found


def _of_list(folders: list[Path], world_size: int = 4) -> GradientBank:
    """Return the look-up over folders, of which the last is written."""
    cluster = {"world_size": world_size, "backend": "gloo"}
    return make_bank(UnionBank(folders[-1], folders), cluster)


def test_record_of_any_member_of_a_list_answers(folders: list[Path]) -> None:
    make_bank(folders[1]).save(KEY, TRACE, make_verdict())
    bank = _of_list(folders)
    found = bank.find(KEY, TRACE.sizes_bytes)
    assert found is not None and found.segmentation == Segmentation(ends=(2, 4))
    assert bank.modelhashes() == (str(KEY),)
    line = bank.last_figure(KEY)
    assert line is not None and line.speedup == ESTIMATE.median
    assert not bank.file.exists()


@pytest.mark.parametrize(("world_size", "ends"), [(2, (4,)), (4, (2, 4)), (8, (4,))])
def test_record_of_a_cluster_like_this_one_goes_first(
    folders: list[Path], world_size: int, ends: tuple[int, ...]
) -> None:
    """Where there is none, the first record answers, and a grouping is computed from it."""
    one = make_verdict(world_size=2, segmentation=Segmentation(ends=(4,)))
    make_bank(folders[0]).save(KEY, TRACE, one)
    make_bank(folders[1]).save(KEY, TRACE, make_verdict())
    found = _of_list(folders, world_size).find(KEY)
    assert found is not None and found.segmentation == Segmentation(ends=ends)


def test_record_nobody_should_use_leaves_the_answer_to_the_next_member(
    folders: list[Path],
) -> None:
    for folder in folders[1:]:
        make_bank(folder).save(KEY, TRACE, make_verdict())
    unused = make_bank(folders[0]).file
    for lists in (item([0] * 5, [0] * 5), item([1, 2], [1.0])):
        unused.write_text(json.dumps([lists]))
        assert _of_list(folders).find(KEY) is not None
    (good,) = items(make_bank(folders[1]))
    unused.write_text(json.dumps([good, good]))
    assert _of_list(folders).find(KEY) is not None
    assert _of_list([folders[0], folders[0].parent]).look_up(KEY).miss is Miss.TWICE
    unused.unlink()


@pytest.mark.parametrize("written", [0, 2])
def test_record_in_the_quarantine_of_its_member_answers_nothing(
    folders: list[Path], written: int
) -> None:
    """Whichever member is written: the next one answers, or nobody."""
    for folder in folders[:2]:
        make_bank(folder).save(KEY, TRACE, make_verdict())
    quarantine(make_bank(folders[0]), any_strategy=True)
    bank = make_bank(UnionBank(folders[written], folders))
    assert bank.find(KEY) is not None
    make_bank(folders[1]).file.unlink()
    assert bank.look_up(KEY).miss is Miss.QUARANTINED


def test_result_of_a_run_answers_in_that_run_and_goes_to_the_written_member(
    folders: list[Path],
) -> None:
    make_bank(folders[0]).save(KEY, TRACE, make_verdict())
    bank = _of_list(folders)
    bank.save(KEY, TRACE, make_verdict(segmentation=Segmentation(ends=(1, 4))))
    found = bank.find(KEY)
    assert found is not None and found.segmentation == Segmentation(ends=(1, 4))
    assert make_bank(folders[0]).find(KEY) != found and bank.file.parent == folders[-1]


def test_members_of_a_list_need_not_be_writable_to_be_looked_up(folders: list[Path]) -> None:
    env = {"TUNE_BANK_PATH": ":".join(map(str, folders)), "AOE_BANK_UNION": "best"}
    banks = gradient_banks(env, folders[0], "soc", writes=False)
    assert banks.roots == tuple(folders) and banks.union == "best"
    assert gradient_banks({"TUNE_BANK_PATH": str(folders[0])}, folders[0], "soc").roots in (
        (),
        (folders[0],),
    )
