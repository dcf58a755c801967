"""Gradients in 16 bits in real processes: only where allowed, checked first, never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from support.ddp.cases import COMPRESSED  # noqa: E402
from support.ddp.processes import Found  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from aoe.errors import OptionError  # noqa: E402
from aoe.gradients.compression import TOLERANCE, Compression  # noqa: E402
from aoe.results.gradients import load_gdat_report  # noqa: E402
from aoe.torch import apply_gradient_strategy  # noqa: E402
from aoe.torch.ddp.compressed import CompressedDdpTraining  # noqa: E402
from aoe.torch.ddp.ranks import Ranks  # noqa: E402
from aoe.torch.ddp.training import DdpTraining  # noqa: E402
from aoebank import Bank  # noqa: E402

pytestmark = pytest.mark.slow
CASES = COMPRESSED
_HOOK = ["_sum_in_bfloat16"]


def test_allowed_type_is_in_use_once_it_won(found: Found) -> None:
    case = found[0]["allowed"]
    assert case["outcomes"][:2] == [["add", "add"], ["reserved", "reserved"]]
    assert case["hooks"][:2] == [_HOOK, _HOOK]


def test_without_leave_the_record_of_all_bits_is_used(found: Found) -> None:
    case = found[0]["allowed"]
    assert case["outcomes"][2] == ["reserved", None]
    assert case["hooks"][2] == [] and case["hooks"][5] == []


def test_looking_up_uses_it_only_where_that_very_type_is_allowed(found: Found) -> None:
    case = found[0]["allowed"]
    assert case["hooks"][3] == _HOOK and case["hooks"][4] == []
    assert len(case["warnings"]) == 1 and "results differ in rounding" in case["warnings"][0]


def test_sums_differ_in_rounding_and_by_no_more_than_the_tolerance(found: Found) -> None:
    case = found[0]["allowed"]
    short, full, exact = map(torch.tensor, case["gradients"])
    assert torch.equal(full, exact) and not torch.equal(short, full)
    assert (short - full).norm() <= TOLERANCE * full.norm()
    assert 0 < case["deviation"] <= TOLERANCE
    assert any("gradients differ by" in line for line in case["told"])


def test_processes_have_the_same_sums(found: Found) -> None:
    one, two = (rank["allowed"]["gradients"] for rank in found)
    assert one == two


def test_record_has_a_key_of_its_own_and_the_side_car_says_the_type(
    found: Found, folder: Path
) -> None:
    plain, compressed = found[0]["allowed"]["hashes"]
    assert plain != compressed
    bank = Bank(folder / "allowed")
    (file,) = (folder / "allowed").glob("*_gradient_fusion.json")
    assert {record.key for record in bank.iter_records(file)} == {plain, compressed}
    for entry in bank.iter_provenance(file):
        expected = "bfloat16" if entry.key == compressed else None
        assert entry.search.get("summed_in") == expected


def test_result_file_says_what_differs_and_is_read_back(found: Found, folder: Path) -> None:
    case = found[0]["allowed"]
    report = load_gdat_report(folder / "allowed" / case["result"])
    compression = report.compression
    assert compression is not None and compression.compression is Compression.BFLOAT16
    assert compression.tolerance == TOLERANCE and compression.deviation == case["deviation"]
    assert compression.tuning is not None and compression.tuning.modelhash == case["hashes"][1]
    assert compression.tuning.candidates[0].name
    text = (folder / "allowed" / case["result"]).read_text()
    assert "gradients are summed in bfloat16: results differ in rounding" in text


def test_what_the_type_cannot_hold_is_not_used(found: Found) -> None:
    case = found[0]["too_inexact"]
    assert "which is more than 1%" in case["problem"]
    assert case["compressed"] is False and case["hooks"] == []


def test_training_that_is_left_alone_has_all_bits_again(found: Found) -> None:
    assert found[0]["left_alone"] == {"before": _HOOK, "after": []}


# ---- what cannot be compressed ----


@pytest.fixture
def compressed() -> object:
    """Return what makes a compressed training of a module, in a group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def make(ddp: DistributedDataParallel) -> CompressedDdpTraining:
        ranks = Ranks(None, ddp.device, timeout_s=None)
        plain = DdpTraining(ddp, lambda: None, ranks, compress=CompressedDdpTraining)
        return CompressedDdpTraining(plain, Compression.BFLOAT16, None)

    yield make
    dist.destroy_process_group()


def test_hook_of_the_script_is_left_alone(compressed: object) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    ddp = DistributedDataParallel(nn.Linear(4, 4))
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    assert compressed(ddp).problem() == "the script has a communication hook of its own"


def test_gradients_of_16_bits_have_nothing_to_save(compressed: object) -> None:
    ddp = DistributedDataParallel(nn.Linear(4, 4).to(torch.bfloat16))
    assert compressed(ddp).problem() == "its gradients have 16 bits already"


def test_type_the_library_cannot_sum_is_named(
    compressed: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("Invalid scalar type\nsomewhere")

    training = compressed(DistributedDataParallel(nn.Linear(4, 4)))
    monkeypatch.setattr(dist, "all_reduce", refuse)
    assert training.problem() == "gloo cannot sum bfloat16: Invalid scalar type"


def test_unknown_type_is_refused(compressed: object) -> None:
    with pytest.raises(OptionError, match="allow_compression: gradients cannot be summed in it"):
        apply_gradient_strategy(nn.Linear(4, 4), allow_compression="int8")


def test_training_nobody_wants_compressed_says_so(compressed: object) -> None:
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    training = DdpTraining(ddp, lambda: None, Ranks(None, ddp.device, timeout_s=None))
    with pytest.raises(OptionError, match="cannot be compressed"):
        training.compressed(Compression.FLOAT16, None)
