"""Which device and target a `--soc_version` means, and refusals of any other."""

from __future__ import annotations

import pytest

from aoe.device.registry import DEVICES, default_device, device_of, resolve_target
from aoe.errors import OptionError, TargetError


@pytest.mark.parametrize("name", [None, "", "host"])
def test_no_soc_version_means_this_machine(name: str | None) -> None:
    assert resolve_target(name, None) == (default_device(), default_device().describe())


@pytest.mark.parametrize("core_num", [0, -3])
def test_number_of_cores_that_is_none_is_refused(core_num: int) -> None:
    with pytest.raises(OptionError, match=f"--aicore_num: no number of cores .got {core_num}"):
        resolve_target(None, core_num)


def test_own_soc_version_is_accepted() -> None:
    host = default_device().describe(1)
    assert resolve_target(host.soc_version, 1) == (default_device(), host)


@pytest.mark.parametrize("name", ["Ascend910B1", "ascend310p3", "Ascend910_9391"])
def test_ascend_without_cann_says_what_to_install_and_what_still_works(name: str) -> None:
    with pytest.raises(TargetError, match="needs a CANN toolkit") as caught:
        resolve_target(name, None)
    assert name in str(caught.value)
    host = default_device().describe(1)
    for words in (f"--soc_version=host is for this CPU ({host.soc_version})", "CANN", "aoebank"):
        assert words in str(caught.value.hint)


def test_other_cpu_is_refused_with_this_one_s_name() -> None:
    with pytest.raises(TargetError, match="another target") as caught:
        resolve_target("x86-64-pentium4", None)
    assert f"expected {default_device().describe().soc_version}" in str(caught.value)


@pytest.mark.parametrize("name", ["x86-64-zen5", "aarch64-neoverse-n1", "x86-64-v4"])
def test_cpus_of_other_machines_are_still_cpus(name: str) -> None:
    assert device_of(name) is DEVICES["cpu"]
