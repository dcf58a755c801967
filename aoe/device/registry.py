"""The kinds of devices, one line each; the first is what is tuned for if nothing is asked."""

from __future__ import annotations

from aoe.device.cpu.device import Cpu
from aoe.device.protocol import Device
from aoe.errors import OptionError, TargetError
from aoe.settings import environment
from aoe.target import Target

DEVICES: dict[str, Device] = {
    "cpu": Cpu(),
}


def default_device() -> Device:
    """Return the device that is tuned for if nothing else is asked for."""
    return next(iter(DEVICES.values()))


def device_of(soc_version: str) -> Device:
    """Return the kind of device a target is of; the default where no kind knows the name."""
    kinds = (device for device in DEVICES.values() if device.serves(soc_version))
    return next(kinds, default_device())


def resolve_target(soc_version: str | None, core_num: int | None) -> tuple[Device, Target]:
    """Return the device and target of `--soc_version`; tuning is for what is on this machine.

    Raises:
        TargetError: `soc_version` names other hardware.
        OptionError: no number of cores.
    """
    if core_num is not None and core_num < 1:
        raise OptionError("--aicore_num", "no number of cores", got=core_num, expected="1 or more")
    host = default_device().describe(core_num)
    if soc_version in (None, "", "host"):
        return default_device(), host
    here = [(device, device.describe(core_num)) for device in DEVICES.values()]
    found = next((known for known in here if known[1].soc_version == soc_version), None)
    if found is not None:
        return found
    if str(soc_version).lower().startswith("ascend"):
        raise TargetError(
            "--soc_version",
            "tuning for an Ascend processor needs a CANN toolkit on this machine, and its own aoe",
            got=f"{soc_version}, {_toolkit()}",
            hint=f"--soc_version=host is for this CPU ({host.soc_version}); the command aoe "
            f"--soc_version={soc_version} hands a job to the aoe of an installed CANN; Ascend "
            "banks can be managed with aoebank alone",
        )
    raise TargetError(
        "--soc_version",
        "this machine is another target; tuning has to run on the hardware it is for",
        got=soc_version,
        expected=" or ".join(target.soc_version for _, target in here),
        hint="leave --soc_version out to tune for this machine",
    )


def _toolkit() -> str:
    """Return the toolkit that was found, or the places that were searched."""
    from aoebank import find_toolkit  # which loads all formats

    found = find_toolkit(environment())
    looked_at = "ASCEND_TOOLKIT_HOME, ASCEND_HOME_PATH, /usr/local/Ascend, HOME and PATH"
    return f"a toolkit by {found}" if found else f"none by {looked_at}"
