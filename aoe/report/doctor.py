"""Report of `aoe doctor`, as text and as one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.device.protocol import Soundness
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from aoe.runs.configuration.resolving import ResolvedSetting
    from aoe.runs.doctor.run import Examination
    from aoebank import Text

_MARKS = {
    Soundness.GOOD: ("ok", "green"),
    Soundness.DOUBTFUL: ("!!", "yellow"),
    Soundness.STOPS: ("NO", "red"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(Report):
    """Settings with their sources, and what was looked at; 1 if something would stop a run."""

    examination: Examination
    schema: str = "aoe.doctor/1"

    @property
    def exit_code(self) -> int:
        """0 if a run could begin, else 1."""
        return 0 if self.examination.is_ready else 1

    def document(self) -> Mapping[str, object]:
        return {
            "ready": self.examination.is_ready,
            "settings": [
                {
                    "name": one.setting.name,
                    "value": setting_text(one),
                    **members(one, "source place option=setting.option"),
                    "file_key": one.setting.key or one.setting.ini_key,
                    "variable": one.setting.variable,
                    "valid": one.error is None,
                }
                for one in self.examination.settings
            ],
            "checks": [
                members(check, "name verdict found advice") for check in self.examination.checks
            ],
        }

    def write(self, text: Text) -> None:
        text.line(("settings (option > file > environment > default)", "bold"))
        text.columns(
            self.examination.settings,
            ("setting", "n", lambda one: one.setting.name),
            ("value", "-", setting_text),
            ("from", "-", _origin),
        )
        text.line("")
        text.line(("checks", "bold"))
        for check in self.examination.checks:
            text.line("  ", _MARKS[check.verdict], f"  {check.name}: {check.found}")
            if check.advice:
                text.line(f"      -> {check.advice}")
        text.line("")
        text.line(self._summary())

    def _summary(self) -> str:
        verdicts = [check.verdict for check in self.examination.checks]
        if stops := verdicts.count(Soundness.STOPS):
            return f"a run would stop: {stops} of {len(verdicts)} checks say no"
        caveats = verdicts.count(Soundness.DOUBTFUL)
        doubts = f"; {plural(caveats, 'thing')} may make it worse" if caveats else ""
        return f"a run can begin{doubts}"


def setting_text(one: ResolvedSetting) -> str:
    """Return a value as people write it, the default in words."""
    if one.value is None or not one.place:
        return one.setting.default_text.replace("`", "")
    if isinstance(one.value, tuple):
        return ",".join(map(str, one.value))
    return str(one.value)


def _origin(one: ResolvedSetting) -> str:
    return f"{one.source.value}: {one.place}" if one.place else one.source.value
