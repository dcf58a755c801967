"""A machine with banks in odd places, and what `resolve` says there."""

from __future__ import annotations

from pathlib import Path

from aoebank import Bank, Reader, Record, ResolveResult
from aoebank.model.resolution import Hazard, Query
from aoebank.resolving.report import ResolveReport
from aoebank.resolving.run import WantedWorkload, resolve
from aoebank.storage.readers.environment import surroundings

SOC = "Ascend910B2"
LATEST = "home/Ascend/latest/data/aoe/custom/op"
CANN = "home/Ascend/cann/data/aoe/custom/op"
GRAPH = "home/Ascend/latest/data/aoe/custom/graph"
QUERY = Query(soc_version=SOC, core_num=24, op_type="MatMulV3")


class World:
    """One folder with a home and an opp directory, and everything set to point there."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.forbidden: dict[Path, int] = {}
        self.env = {
            "HOME": str(self.folder("home")),
            "ASCEND_OPP_PATH": str(self.folder("opp")),
            "AOE_BUILT_IN_BANK": "off",
        }

    def folder(self, name: str) -> Path:
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def file(self, name: str, text: str = "{}") -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def bank(self, root: str, *records: Record, soc: str = SOC) -> Path:
        path = self.base / root / soc / "unified_bank" / f"{soc}_24_AiCore_MatMulV3.json"
        Bank(self.base / root).put(path, records)
        return path

    def resolve(
        self,
        *readers: Reader,
        query: Query = QUERY,
        workload: WantedWorkload | None = None,
        writers: bool = False,
        **options: str,
    ) -> ResolveResult:
        around = surroundings(
            env=self.env,
            cwd=self.base,
            **options,
            access=lambda path, mode: not self.forbidden.get(path, 0) & mode,
        )
        return resolve(
            around=around, query=query, readers=readers, workload=workload, writers=writers
        )

    def hazards(self, *readers: Reader, query: Query = QUERY, **options: str) -> list[Hazard]:
        return list(self.resolve(*readers, query=query, **options).hazards)


def codes(hazards: list[Hazard]) -> list[str]:
    return [hazard.code for hazard in hazards]


def exit_code(result: ResolveResult) -> int:
    return ResolveReport(result=result, explain=False).exit_code
