"""Merge two sides file by file: what each file of the result is, still in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aoebank.errors import BankPathError, HistoryError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX, ProvenanceLog
from aoebank.formats.registry import get_format
from aoebank.model.digest import sha256_of
from aoebank.ops.merge.decide import MergeContext
from aoebank.ops.merge.exclusions import Exclusions
from aoebank.ops.merge.file import merge_file
from aoebank.ops.merge.inputs import Trio
from aoebank.ops.merge.lines import merge_quarantines, merge_side_cars
from aoebank.ops.merge.measured import Measurements
from aoebank.ops.merge.plan import Decision, FilePlan, Source
from aoebank.ops.merge.policy import MergeRules
from aoebank.ops.merge.verdicts import PersonalVerdict
from aoebank.ops.merge.versions import Versions
from aoebank.ops.workers import map_files, takes_two
from aoebank.storage.quarantine import FILE, FOLDER
from aoebank.storage.twins import BY_TUNER_ONLY

QUARANTINE_NAME = f"{FOLDER}/{FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """SHA-256 of a file and of what stands beside it, as they were read; None: not there."""

    bank: str | None = None
    side_car: str | None = None
    twin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One file of the result and what stands beside it; None where there is to be none.

    Attributes:
        plan: Without its edits, which are carried out.
        twin: Bytes of the binary twin, where readers want one.
        found: What there is where the result goes, if that is a side.
        conflicts: Decisions nobody made yet, also those of earlier steps.
        kin: How the base and each side are related here.
    """

    plan: FilePlan
    data: bytes | None
    side_car: bytes | None = None
    twin: bytes | None = None
    found: Found | None = None
    conflicts: tuple[Decision, ...] = ()
    kin: Mapping[Source, Kin]

    def twin_of(self, bank: Path) -> Path | None:
        """Return what readers want beside this file, once it lies at `bank`."""
        return get_format(self.plan.format).companion(bank) if self.plan.format else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """Whether the base has anything to do with a side, in one file or in all."""

    base_has_records: bool = False
    side_has_records: bool = False
    share_a_key: bool = False

    @property
    def are_strangers(self) -> bool:
        """Return whether both have records, and no key in common."""
        return self.base_has_records and self.side_has_records and not self.share_a_key

    def __or__(self, other: Kin) -> Kin:
        return Kin(
            base_has_records=self.base_has_records or other.base_has_records,
            side_has_records=self.side_has_records or other.side_has_records,
            share_a_key=self.share_a_key or other.share_a_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The merge of one side into what there is so far.

    Attributes:
        verdicts: What a person decided, by file.
        target: The version that is where the result goes, if it is one of them.
    """

    trio: Trio
    rules: MergeRules
    exclusions: Exclusions
    verdicts: Mapping[str, Mapping[str, PersonalVerdict]]
    says_all: bool = False
    target: Source | None = None

    def run(self) -> Iterator[MergedFile]:
        """Yield the files of the result, one at a time in memory.

        Raises:
            BankFormatError: a file is broken, or versions do not fit together.
            BankPathError: a file cannot be read, or has a twin only its tuner can write.
            HistoryError: the base shares no record with a side, or verdicts are stale.
        """
        names = self.trio.names()
        self._demand_all_known(names)
        kin = {source: Kin() for source in (Source.OURS, Source.THEIRS)}
        in_two = takes_two(names, self.trio.size())
        work = partial(self._merge, uses_all_cores=not in_two)
        for file in map_files(names, work, in_two=in_two):
            kin = {source: each | file.kin[source] for source, each in kin.items()}
            yield file
        if self.trio.base is not None and not self.rules.may_be_unrelated:
            self._demand_related(kin)

    def quarantine(self) -> tuple[bytes | None, str | None]:
        """Return the merged quarantine of trees, and the SHA-256 of what the target has.

        Both are None where there is none.
        """
        if not self.trio.is_tree:
            return None, None
        found = {source: self.trio.read(source, QUARANTINE_NAME) for source in Source}
        if found[Source.OURS] is None and found[Source.THEIRS] is None:
            return None, None
        base, ours, theirs = (found[source] or b"" for source in Source)
        merged = merge_quarantines(base, ours, theirs, Path(QUARANTINE_NAME))
        return merged, sha256_of(found[self.target]) if self.target else None

    def _merge(self, name: str, *, uses_all_cores: bool) -> MergedFile:
        versions = self.trio.load(name, uses_all_cores=uses_all_cores)
        context = MergeContext(
            rules=self.rules,
            is_two_way=self.trio.base is None,
            exclusions=self.exclusions,
            verdicts=self.verdicts.get(name, {}),
            times_of_ours=Measurements(self._log(Source.OURS, name)),
            times_of_theirs=Measurements(self._log(Source.THEIRS, name)),
            says_all=self.says_all,
        )
        merge = merge_file(versions, name, context)
        plan, data = merge.plan, merge.data
        return MergedFile(
            plan=replace(plan, replaced={}, removed=frozenset(), added=()),
            data=data,
            side_car=self._side_car(name, is_gone=data is None),
            twin=self._twin(name, versions, data),
            conflicts=plan.conflicts,
            found=self._found(name, versions),
            kin={
                source: _kin(versions.base, versions.of(source))
                for source in (Source.OURS, Source.THEIRS)
            },
        )

    def _found(self, name: str, versions: Versions) -> Found | None:
        if self.target is None:
            return None
        target = versions.of(self.target)
        own = self.trio.name_in(self.target, name)
        twin = versions.any().format.companion(Path(own))
        read = partial(self.trio.read, self.target)
        return Found(
            bank=None if target is None else sha256_of(target.data),
            side_car=sha256_of(read(own + SUFFIX)),
            twin=sha256_of(read(twin.as_posix())) if twin else None,
        )

    def _log(self, source: Source, name: str) -> Callable[[], ProvenanceLog]:
        side = self.trio.of(source)
        assert side is not None
        return lambda: side.load_provenance(self.trio.name_in(source, name))

    def _side_car(self, name: str, *, is_gone: bool) -> bytes | None:
        texts = [
            self.trio.read(source, self.trio.name_in(source, name) + SUFFIX) for source in Source
        ]
        if texts[1] is None and texts[2] is None:
            return None
        merged = merge_side_cars(*(text or b"" for text in texts))
        return None if is_gone and not merged else merged

    def _twin(self, name: str, versions: Versions, data: bytes | None) -> bytes | None:
        """Return the binary twin that goes with the merged file.

        Raises:
            BankPathError: there would have to be a new one.
        """
        twin = versions.any().format.companion(Path(name))
        if twin is None or data is None:
            return None
        twins: dict[Source, bytes | None] = {}
        for source in (Source.OURS, Source.THEIRS):
            own = versions.any().format.companion(Path(self.trio.name_in(source, name)))
            twins[source] = self.trio.read(source, own.as_posix()) if own else None
        for source, found in twins.items():
            version = versions.of(source)
            if version is not None and version.data == data:
                return found
        if any(found is not None for found in twins.values()):
            raise BankPathError(
                BY_TUNER_ONLY, path=twin, hint="take the file of one side, with its twin"
            )
        return None

    def _demand_related(self, kin: Mapping[Source, Kin]) -> None:
        for source, each in kin.items():
            if not each.are_strangers:
                continue
            side, base = self.trio.of(source), self.trio.base
            raise HistoryError(
                "base shares no record with this side",
                where=side.label if side else "",
                got=base.label if base else None,
                expected="the version both sides started from",
                hint="--allow-unrelated",
            )

    def _demand_all_known(self, names: tuple[str, ...]) -> None:
        for name in self.verdicts:
            if name not in names:
                raise HistoryError(
                    "decision about a file that no side has",
                    where=name,
                    hint="save the decisions again: --decisions",
                )


def _kin(base: ParsedFile | None, side: ParsedFile | None) -> Kin:
    has_base, has_side = (each is not None and len(each) > 0 for each in (base, side))
    share = False
    if base is not None and side is not None:
        share = any(side.find(key) is not None for key in base.keys)
    return Kin(base_has_records=has_base, side_has_records=has_side, share_a_key=share)
