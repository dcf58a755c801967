"""Snapshots, their files and their tags, as the database holds them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from sqlite3 import Connection, Row

from aoebank.errors import HistoryError
from aoebank.model.snapshot import Member, Snapshot, bank_record_set, snapshot_id
from aoebank.storage.history.content import Chunk, Packing, encode_runs, pack_numbers
from aoebank.storage.history.database import transaction

_SNAPSHOT = (
    *("id", "parent", "who", "time", "message", "environment", "scope"),
    *("records", "record_set"),
)
_CONTENT = ("sha256", "format", "size_bytes", "records", "record_set")
_FILE = f"content.id AS content, {', '.join(_CONTENT)}"
_TABLE = "CREATE TABLE IF NOT EXISTS counts (snapshot TEXT PRIMARY KEY, moves TEXT, socs TEXT)"
_FIND = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counts'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of records that moved."""

    moves: Mapping[str, int]  # By what happened to them
    socs: Mapping[str, int]  # By soc_version


def put_counts(database: Connection, snapshot: str, counts: Counts) -> None:
    """Note the counts of a snapshot, by its full id; what is noted already stays."""
    texts = [json.dumps(dict(part), sort_keys=True) for part in (counts.moves, counts.socs)]
    with transaction(database):
        database.execute(_TABLE)
        database.execute("INSERT OR IGNORE INTO counts VALUES (?, ?, ?)", [snapshot, *texts])


def list_counts(database: Connection) -> dict[str, Counts]:
    """Return the counts that are noted, by id; one that cannot be read is passed over."""
    if database.execute(_FIND).fetchone() is None:
        return {}
    found = {}
    for snapshot, *texts in database.execute("SELECT snapshot, moves, socs FROM counts"):
        try:
            moves, socs = (
                {str(name): int(number) for name, number in json.loads(text).items()}
                for text in texts
            )
        except (ValueError, TypeError, AttributeError):
            continue
        found[snapshot] = Counts(moves=moves, socs=socs)
    return found


MIN_PREFIX = 4
LATEST = "latest"
_RELATIVE = re.compile(r"latest(?:~(?P<back>\d{1,9}))?", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{4,64}", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,99}", re.ASCII)


def list_snapshots(database: Connection) -> tuple[Snapshot, ...]:
    """Return all snapshots, oldest first."""
    tags: dict[str, list[str]] = {}
    for name, id_ in list_tags(database).items():
        tags.setdefault(id_, []).append(name)
    query = f"SELECT {', '.join(_SNAPSHOT)} FROM snapshot ORDER BY number"
    return tuple(_snapshot(row, tags) for row in database.execute(query))


def list_tags(database: Connection) -> dict[str, str]:
    """Return the id of the snapshot each tag means now, sorted by name; the last line counts."""
    query = """
        SELECT name, snapshot FROM tag WHERE number IN (SELECT max(number) FROM tag GROUP BY name)
        AND snapshot IS NOT NULL ORDER BY name
    """
    return {found["name"]: found["snapshot"] for found in database.execute(query)}


def find_snapshot(snapshots: tuple[Snapshot, ...], reference: str) -> Snapshot:
    """Return the snapshot a tag, an id, the start of one, `latest` or `latest~N` means.

    Args:
        snapshots: All, oldest first.

    Raises:
        HistoryError: none is meant, or more than one.
    """
    match = _RELATIVE.fullmatch(reference)
    if match:
        back = int(match["back"] or 0)
        if back < len(snapshots):
            return snapshots[-1 - back]
        raise _unknown(reference, snapshots)
    for snapshot in snapshots:
        if reference in snapshot.tags:
            return snapshot
    found = [candidate for candidate in snapshots if candidate.id.startswith(reference.lower())]
    if not _HEX.fullmatch(reference.lower()) or not found:
        raise _unknown(reference, snapshots)
    if len(found) > 1:
        ids = ", ".join(candidate.id[: len(reference) + 8] for candidate in found[:5])
        raise HistoryError(
            "more than one snapshot starts like this",
            where=f"snapshot:{reference}",
            got=ids,
            hint="give more digits",
        )
    return found[0]


def members_of(database: Connection, snapshot: Snapshot) -> dict[str, Member]:
    """Return the files of a snapshot by their path below the root, sorted.

    Raises:
        HistoryError: a name would lead out of the bank.
    """
    query = f"""
        SELECT member.name, {_FILE} FROM member JOIN content ON content.id = member.content
        WHERE member.snapshot = (SELECT number FROM snapshot WHERE id = ?) ORDER BY member.name
    """
    members = (
        Member(**{**found, "name": _name(found["name"])})
        for found in database.execute(query, [snapshot.id])
    )
    return {member.name: member for member in members}


def demand_whole(snapshot: Snapshot, members: Mapping[str, Member]) -> None:
    """Raise unless a snapshot and its files are what its id and its record set were made from.

    Raises:
        HistoryError: the database was damaged or edited.
    """
    if snapshot.record_set == bank_record_set(members) and snapshot.id == snapshot_id(
        snapshot, members
    ):
        return
    raise HistoryError(
        "snapshot is not what was stored",
        where=f"snapshot:{snapshot.short_id}",
        got="another id or record set than that of its files",
        hint="aoebank log --verify tells what is damaged; bring back history.db from a copy",
    )


def add_snapshot(database: Connection, snapshot: Snapshot, packings: Mapping[str, Packing]) -> None:
    """Store a snapshot and what is new of its files; the caller holds the write lock.

    Args:
        packings: Files by name; stored ones and new ones.
    """
    number = _insert(
        database,
        "snapshot",
        {
            **{name: getattr(snapshot, name) for name in _SNAPSHOT},
            "environment": json.dumps(dict(snapshot.environment), sort_keys=True),
            "scope": None if snapshot.scope is None else json.dumps(list(snapshot.scope)),
        },
    )
    for name, packing in packings.items():
        content = packing.member.content or add_content(database, packing)
        values = {"snapshot": number, "name": os.fsencode(name), "content": content}
        _insert(database, "member", values)


def add_content(database: Connection, packing: Packing) -> int:
    """Store the bytes of a file unless they are there already; return their number."""
    file = packing.member
    found = find_content(database, file.sha256, file.format)
    if found is not None:
        return found.content
    numbers = [_add_chunk(database, chunk) for chunk in packing.chunks]
    runs = encode_runs(
        (numbers[-1 - chunk] if chunk < 0 else chunk, first, count)
        for chunk, first, count in packing.runs
    )
    values = {name: getattr(file, name) for name in _CONTENT}
    return _insert(database, "content", {**values, "runs": runs})


def find_content(database: Connection, sha256: str, format_name: str) -> Member | None:
    """Return stored bytes by their digest, as a file without a name."""
    query = f"SELECT {_FILE} FROM content WHERE sha256 = ? AND format = ?"
    found = database.execute(query, [sha256, format_name]).fetchone()
    return Member(name="", **found) if found else None


def put_tag(
    database: Connection, name: str, snapshot: Snapshot, *, who: str, time: str, force: bool = False
) -> None:
    """Let a tag mean a snapshot; the caller holds the write lock.

    Raises:
        HistoryError: the name cannot be one, or means another snapshot and `force` is not set.
    """
    check_tag(name)
    now = list_tags(database).get(name)
    if now == snapshot.id:
        return
    if now is not None and not force:
        raise HistoryError(
            "tag exists and means another snapshot",
            where=name,
            got=now[:12],
            hint="move it with --force",
        )
    _insert(database, "tag", {"name": name, "snapshot": snapshot.id, "who": who, "time": time})


def remove_tag(database: Connection, name: str, *, who: str, time: str) -> str:
    """Let a tag mean nothing any more; return the id it meant.

    Raises:
        HistoryError: there is no such tag.
    """
    with transaction(database):
        tags = list_tags(database)
        if name not in tags:
            raise HistoryError(
                "no such tag", where=name, expected=", ".join(tags) or "none is there"
            )
        _insert(database, "tag", {"name": name, "snapshot": None, "who": who, "time": time})
    return tags[name]


def check_tag(name: str) -> None:
    """Raise `HistoryError` unless a tag can have this name."""
    if not _TAG.fullmatch(name) or _HEX.fullmatch(name) or name.startswith(LATEST):
        raise HistoryError(
            "is no name for a tag",
            where=name,
            expected="letters, digits and . _ / + -, nothing that looks like an id or `latest`",
        )


def _add_chunk(database: Connection, chunk: Chunk) -> int:
    find = "SELECT id FROM chunk WHERE digest = ?"
    found = database.execute(find, [chunk.digest]).fetchone()
    if found is not None:
        return int(found[0])
    values = {name: getattr(chunk, name) for name in ("digest", "records", "data")}
    return _insert(database, "chunk", {**values, "lengths": pack_numbers(chunk.lengths)})


def _insert(database: Connection, table: str, values: Mapping[str, object]) -> int:
    """Add a row to a table; return its number."""
    places = ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})"
    return database.execute(statement, [*values.values()]).lastrowid or 0


def _snapshot(found: Row, tags: Mapping[str, Iterable[str]]) -> Snapshot:
    values = {name: found[name] for name in _SNAPSHOT}
    try:
        environment = json.loads(found["environment"]).items()
        values["environment"] = {str(name): str(value) for name, value in environment}
        scope = found["scope"]
        values["scope"] = None if scope is None else tuple(map(str, json.loads(scope)))
    except (ValueError, TypeError, AttributeError) as error:
        raise HistoryError("history is damaged", where=f"snapshot:{found['id']}") from error
    return Snapshot(**values, tags=tuple(tags.get(found["id"], ())))


def _name(stored: bytes) -> str:
    name = os.fsdecode(stored)
    path = PurePosixPath(name)
    parts = path.parts
    if not parts or path.is_absolute() or any(part.startswith(".") for part in parts):
        raise HistoryError("history is damaged: a file would lie outside of the bank", got=name)
    return name


def _unknown(reference: str, snapshots: tuple[Snapshot, ...]) -> HistoryError:
    return HistoryError(
        "unknown snapshot or tag",
        where=f"snapshot:{reference}",
        expected=", ".join(_offers(snapshots)) or "none: the bank has no snapshot yet",
        hint="aoebank log",
    )


def _offers(snapshots: tuple[Snapshot, ...]) -> Iterator[str]:
    """Yield near names: tags, then the newest ids."""
    tags = [tag for snapshot in reversed(snapshots) for tag in snapshot.tags]
    yield from tags[:8]
    yield from (snapshot.short_id for snapshot in snapshots[:-6:-1])
