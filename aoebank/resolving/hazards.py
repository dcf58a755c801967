"""Surprises in the places readers look into."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aoebank.errors import shell_word
from aoebank.formats.registry import bank_folders, get_format
from aoebank.model.resolution import Failure, Hazard, Query, Reader, ReaderAnswer, Tier
from aoebank.storage.readers.folders import (
    built_in_roots,
    find_files,
    is_asked_for,
    kind_of,
    list_files,
    list_names,
)
from aoebank.storage.readers.places import (
    ASCEND_CACHE_PATH,
    ASCEND_OPP_PATH,
    DEFAULT_FOLDER,
    HOME,
    MDL_BANK_PATH,
    OP_BANK_PATH,
    TUNE_BANK_PATH,
    Place,
    Rules,
    Surroundings,
)
from aoebank.storage.readers.rules import CPP_DEFAULT_FOLDER, FUSION_FOLDER, RULES

CONSEQUENCES = {
    Failure.STOP: "the job ends with an error",
    Failure.WARN: "the custom bank is ignored, with a warning",
    Failure.SILENT: "the custom bank is ignored, silently",
    Failure.DROP_ALL: "no bank is used, the built-in one included",
    Failure.NEXT: "the next place is looked at",
    Failure.UNKNOWN: "what happens then is documented nowhere",
}
_SOURCES = (TUNE_BANK_PATH, ASCEND_CACHE_PATH, ASCEND_OPP_PATH, OP_BANK_PATH, MDL_BANK_PATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    around: Surroundings
    query: Query
    answers: Sequence[ReaderAnswer]

    def readers(self, wanted: Callable[[Rules], bool]) -> tuple[Reader, ...]:
        return tuple(answer.reader for answer in self.answers if wanted(RULES[answer.reader]))

    def custom_roots(self) -> dict[Path, list[ReaderAnswer]]:
        """Return the answers by the root they take."""
        roots: dict[Path, list[ReaderAnswer]] = {}
        for answer in self.answers:
            if answer.root is not None:
                roots.setdefault(answer.root, []).append(answer)
        return roots


def find_hazards(
    around: Surroundings, query: Query, answers: Sequence[ReaderAnswer]
) -> Iterator[Hazard]:
    """Yield the hazards of the places looked into, the order of the codes kept."""
    scene = _Scene(around=around, query=query, answers=answers)
    for check in _CHECKS:
        yield from check(scene)


def _troubles(scene: _Scene) -> Iterator[Hazard]:
    """Yield one hazard per unusable path, with the consequence for each reader."""
    effects: dict[tuple[str, str, Path | None, str], list[tuple[Reader, str]]] = {}
    hints: dict[Path | None, str] = {}
    for answer in scene.answers:
        for trouble in answer.troubles:
            error = trouble.error
            if error.path is None:  # unset variables have codes of their own
                continue
            code = "AR105" if trouble.failure is Failure.DROP_ALL else "AR101"
            effect = CONSEQUENCES[trouble.failure]
            if trouble.cann_code:
                effect += f" ({trouble.cann_code})"
            place = (code, error.variable or "", error.path, error.problem)
            effects.setdefault(place, []).append((answer.reader, effect))
            hints[error.path] = error.hint
    for (code, variable, path, problem), told in effects.items():
        ways = "; ".join(f"{reader}: {effect}" for reader, effect in told)
        yield Hazard(
            code=code,
            path=path,
            readers=tuple(reader for reader, _ in told),
            message=f"{variable}: {problem} ({ways})",
            hint=hints[path],
        )


def _relative_paths(scene: _Scene) -> Iterator[Hazard]:
    for source in _SOURCES:
        text = scene.around.text(source)
        readers = scene.readers(lambda rules, source=source: _has_source(rules, source))  # type: ignore[misc]
        members = scene.around.members(source)
        paths = members or [scene.around.path(source)]
        texts = text.split(os.pathsep) if members else [text]
        relative = [at for at, one in enumerate(filter(None, texts)) if not Path(one).is_absolute()]
        if relative and readers:
            yield Hazard(
                code="AR102",
                path=paths[relative[0]],
                readers=readers,
                message=f"{source} is a relative path, so another directory means another bank",
                hint=f"give an absolute path in {source}",
            )


def _unset_home(scene: _Scene) -> Iterator[Hazard]:
    homeless = tuple(answer.reader for answer in scene.answers if answer.variable is None)
    if homeless and not scene.around.text(HOME):
        yield Hazard(
            code="AR103",
            readers=homeless,
            message="HOME is not set, so there is no default bank",
            hint=f"set HOME, or {TUNE_BANK_PATH} to an existing directory",
        )


def _no_built_in(scene: _Scene) -> Iterator[Hazard]:
    readers = scene.readers(lambda rules: rules.is_reader and _looks_into_cann(rules))
    path = scene.around.path(ASCEND_OPP_PATH)
    if not readers or (path is not None and _is_folder(path)):
        return
    stopped = [
        answer.reader
        for answer in scene.answers
        if answer.stop is not None and answer.stop.variable == ASCEND_OPP_PATH
    ]
    problem = "is not set" if path is None else "does not exist"
    effect = f"; {', '.join(stopped)} ends the job with an error (EC0008)" if stopped else ""
    yield Hazard(
        code="AR104",
        path=path,
        readers=readers,
        message=f"{ASCEND_OPP_PATH} {problem}, so no built-in bank is seen here{effect}",
        hint="source the set_env.sh of CANN, or give --opp-path",
    )


def _looks_into_cann(rules: Rules) -> bool:
    return any(place.source == ASCEND_OPP_PATH for place in rules.built_in)


def _other_default(scene: _Scene) -> Iterator[Hazard]:
    home = scene.around.path(HOME)
    if home is None:
        return
    for answer in scene.answers:
        rules = RULES[answer.reader]
        place = rules.custom[-1]
        others = {DEFAULT_FOLDER: CPP_DEFAULT_FOLDER, CPP_DEFAULT_FOLDER: DEFAULT_FOLDER}
        other = others.get(place.folder)
        if answer.variable != HOME or other is None:
            continue
        files = find_files(rules, place, home / other, scene.query)
        if files:
            yield Hazard(
                code="AR201",
                path=home / other,
                readers=(answer.reader,),
                message=f"{_count(files)} for {answer.reader}, which looks only below "
                f"{home / place.folder}",
                hint=f"set {TUNE_BANK_PATH} to the directory, for all readers alike",
            )


def _not_looked_at(scene: _Scene) -> Iterator[Hazard]:
    wanted: dict[str, Callable[[Rules], bool]] = {
        OP_BANK_PATH: lambda rules: rules.is_operator,
        MDL_BANK_PATH: lambda rules: not rules.is_operator,
        ASCEND_CACHE_PATH: lambda rules: True,
    }
    for source, concerns in wanted.items():
        if not scene.around.text(source):
            continue
        deaf = [
            answer
            for answer in scene.answers
            if concerns(RULES[answer.reader])
            and not _has_source(RULES[answer.reader], source)
            and not (source == ASCEND_CACHE_PATH and answer.variable == TUNE_BANK_PATH)
        ]
        if deaf:
            names = tuple(answer.reader for answer in deaf)
            yield Hazard(
                code="AR202",
                path=scene.around.path(source),
                readers=names,
                message=f"{source} is not looked at by {', '.join(names)}",
                hint=f"set {TUNE_BANK_PATH}, which all of them follow",
            )
    yield from _overruled(scene)


def _overruled(scene: _Scene) -> Iterator[Hazard]:
    for option in (OP_BANK_PATH, MDL_BANK_PATH):
        if not scene.around.text(option):
            continue
        overruled = tuple(
            answer.reader
            for answer in scene.answers
            if _has_source(RULES[answer.reader], option) and answer.variable == TUNE_BANK_PATH
        )
        if overruled:
            yield Hazard(
                code="AR202",
                path=scene.around.path(option),
                readers=overruled,
                message=f"{option} is passed over by {', '.join(overruled)}: "
                f"{TUNE_BANK_PATH} goes first there",
                hint=f"unset {TUNE_BANK_PATH} for the conversion",
            )


def _wrong_folder(scene: _Scene) -> Iterator[Hazard]:
    for answer in scene.answers:
        rules = RULES[answer.reader]
        for root in _flat_roots(answer) if not rules.is_operator else ():
            hidden = [
                path
                for folder in (*_children(root), *_children(root / "graph"))
                for path in list_files(folder)
                if is_asked_for(path.name, rules, scene.query)
            ]
            if hidden:
                yield Hazard(
                    code="AR203",
                    path=hidden[0],
                    readers=(answer.reader,),
                    message=f"{answer.reader} looks for {hidden[0].name} in {root} itself",
                    hint=f"move it to {root}",
                )


def _flat_roots(answer: ReaderAnswer) -> Iterator[Path]:
    """Yield the roots looked into whose files lie in no <soc_version> folder."""
    for attempt in answer.tried:
        if attempt.tier is Tier.CUSTOM and attempt.path is not None and attempt.variable != HOME:
            yield attempt.path
        if attempt.taken:
            return


def _documented_layout(scene: _Scene) -> Iterator[Hazard]:
    for root, answers in scene.custom_roots().items():
        found = [name for name in ("graph", "op") if _is_folder(root / name)]
        if found and any(answer.variable != HOME for answer in answers):
            folders = " and ".join(f"{name}/" for name in found)
            yield Hazard(
                code="AR204",
                path=root,
                readers=tuple(answer.reader for answer in answers),
                message=f"{folders} below a root that is read as <soc_version>/ and plain files",
                hint="move what is in op/ and graph/<soc_version>/ up to the root",
            )


def _missing_soc_folder(scene: _Scene) -> Iterator[Hazard]:
    for root, answers in scene.custom_roots().items():
        found = [name for name in bank_folders() if _is_folder(root / name)]
        readers = tuple(answer.reader for answer in answers if RULES[answer.reader].is_operator)
        if found and readers:
            yield Hazard(
                code="AR205",
                path=root / found[0],
                readers=readers,
                message=f"{found[0]}/ is not below a <soc_version> folder",
                hint=f"move it to {root}/<soc_version>/{found[0]}",
            )


def _built_in_spelling(scene: _Scene) -> Iterator[Hazard]:
    path = scene.around.path(ASCEND_OPP_PATH)
    if path is None or not scene.readers(lambda rules: rules.reader is Reader.GRADIENT):
        return
    rules = RULES[Reader.GRADIENT]
    for root in built_in_roots(path, f"{FUSION_FOLDER}/built-in"):
        files = find_files(rules, rules.built_in[0], root, scene.query)
        if files:
            yield Hazard(
                code="AR206",
                path=root,
                readers=(Reader.GRADIENT,),
                message=f"{_count(files)}, but gradient looks into build_in",
                hint=f"ln -s built-in {shell_word(root.parent / 'build_in')}",
            )


def _other_cores(scene: _Scene) -> Iterator[Hazard]:
    if scene.query.core_num is None:
        return
    for answer in scene.answers:
        place = _deciding(answer)
        if place is None or answer.root is None:
            continue
        rules, any_cores = RULES[answer.reader], replace(scene.query, core_num=None)
        files = find_files(rules, place, answer.root, any_cores)
        if files and not find_files(rules, place, answer.root, scene.query):
            yield Hazard(
                code="AR207",
                path=files[0],
                readers=(answer.reader,),
                message=f"{_count(files)} for other core numbers than {scene.query.core_num}, "
                f"none of which {answer.reader} opens",
                hint="tune with the core number the jobs are given",
            )


def _old_layout(scene: _Scene) -> Iterator[Hazard]:
    old = {Reader.CUBE: "ga", Reader.VECTOR: "rl"}
    for answer in scene.answers:
        name, root = old.get(answer.reader), answer.root
        if name is None or root is None:
            continue
        socs = [scene.query.soc_version] if scene.query.soc_version else list_names(root)
        seen = {file.path.parent for file in answer.files}
        for folder in (root / soc / name for soc in socs):
            if _is_folder(folder) and folder not in seen:
                yield Hazard(
                    code="AR208",
                    path=folder,
                    readers=(answer.reader,),
                    message=f"{name}/ is where older releases kept what {answer.reader} reads",
                    hint=f"move its files to {folder.parent / answer.reader}",
                )


def _missing_binary_cache(scene: _Scene) -> Iterator[Hazard]:
    for answer in scene.answers:
        format_ = get_format(RULES[answer.reader].format)
        for file in answer.files:
            binary_cache = format_.companion(file.path)
            if file.tier is Tier.CUSTOM and binary_cache and kind_of(binary_cache) != "file":
                yield Hazard(
                    code="AR209",
                    path=file.path,
                    readers=(answer.reader,),
                    message=(
                        f"{binary_cache.name} is missing, and {answer.reader} reads nothing else"
                    ),
                    hint="tune again, or copy the .bin along with the .json",
                )


def _old_names(scene: _Scene) -> Iterator[Hazard]:
    for answer in scene.answers:
        for file in answer.files if answer.reader is Reader.HOST else ():
            if file.soc_version != scene.query.soc_version:
                yield Hazard(
                    code="AR210",
                    path=file.path,
                    readers=(answer.reader,),
                    message=f"made under the old name {file.soc_version}: counts where "
                    f"{scene.query.soc_version} has no record",
                    hint=f"tune again to have the records under {scene.query.soc_version}",
                )


def _other_spelling(scene: _Scene) -> Iterator[Hazard]:
    query = scene.query
    anything = replace(query, soc_version=None, core_num=None, op_type=None)
    for answer in scene.answers:
        place = _deciding(answer)
        if place is None or answer.root is None or query == anything:
            continue
        rules = RULES[answer.reader]
        if find_files(rules, place, answer.root, replace(query, core_num=None)):
            continue
        format_ = get_format(rules.format)
        for path in find_files(rules, place, answer.root, anything):
            name = format_.parse_name(path.name)
            spellings = name and [
                (option, asked, found)
                for option, asked, found in (
                    ("--soc", query.soc_version, name.soc_version),
                    ("--op", query.op_type, name.op_type),
                )
                if asked is not None
            ]
            if spellings and all(_spelled_alike(asked, found) for _, asked, found in spellings):
                words = " ".join(f"{option} {found}" for option, _, found in spellings)
                yield Hazard(
                    code="AR211",
                    path=path,
                    readers=(answer.reader,),
                    message=f"a file of another spelling, which {answer.reader} does not open "
                    f"for {' '.join(asked for _, asked, _ in spellings)}",
                    hint=f"ask for {words}, or rename the file",
                )
                break


def _spelled_alike(asked: str, found: str | None) -> bool:
    return found is not None and asked.lower().replace("-", "_") == found.lower().replace("-", "_")


def _has_source(rules: Rules, source: str) -> bool:
    return any(place.source == source for place in (*rules.custom, *rules.built_in))


def _deciding(answer: ReaderAnswer) -> Place | None:
    places = RULES[answer.reader].custom
    return next((place for place in places if place.source == answer.variable), None)


def _children(folder: Path) -> list[Path]:
    return [folder / name for name in list_names(folder) if _is_folder(folder / name)]


def _is_folder(path: Path) -> bool:
    return kind_of(path) == "directory"


def _count(files: Sequence[Path]) -> str:
    return "a file" if len(files) == 1 else f"{len(files)} files"


_CHECKS: tuple[Callable[[_Scene], Iterator[Hazard]], ...] = (
    _troubles,
    _relative_paths,
    _unset_home,
    _no_built_in,
    _other_default,
    _not_looked_at,
    _wrong_folder,
    _documented_layout,
    _missing_soc_folder,
    _built_in_spelling,
    _other_cores,
    _old_layout,
    _missing_binary_cache,
    _old_names,
    _other_spelling,
)
