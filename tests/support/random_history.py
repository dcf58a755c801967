"""Git histories made up of random steps, and the slow way to read them: every tree, every file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hypothesis import strategies as st

from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, bank_globs, find_format
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.testing.factories import make_record
from support.diff_sides import unified

NAME = "x86-64-v4_2_AiCore_Softmax.json"
FILES = (
    NAME,
    f"banks/ä [b]*/{NAME}",
    f"banks/-dash/{NAME}",
    f'banks/new\nline "q"/{NAME}',
    "banks/put aside.json",
    f"banks/.hidden/{NAME}",
    f"banks/{NAME}{SUFFIX}",
)
OTHERS = ("README.md", "banks/notes.txt", "banks/package.json", f"banks/{NAME}.orig")
BRANCHES = ("main", "side", "third")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("put", "put", "put", "drop", "rename", "delete", "link", "module", "mode"),
                *("other", "ours", "theirs", "union"),
            ]
        ),
        st.integers(0, len(BRANCHES) - 1),
        st.integers(0, len(FILES) - 1),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=30,
)
Step = tuple[str, int, int, int]
_LINK, _MODULE = "120000", "160000"
_State = dict[str, tuple[str, bytes]]


@dataclass(slots=True)
class _Writer:
    """What `git fast-import` reads, and the state of each branch."""

    stream: list[bytes] = field(default_factory=list)
    heads: dict[str, tuple[int, _State]] = field(default_factory=dict)
    commits: int = 0

    def commit(self, branch: str, state: _State, *parents: int) -> None:
        self.commits += 1
        when = 1_700_000_000 + 60 * self.commits
        lines = [
            f"commit refs/heads/{branch}\n",
            f"mark :{self.commits}\n",
            f"committer Ann <ann@example.org> {when} +0000\ndata 1\nx\n",
        ]
        lines += [
            f"{word} :{parent}\n" for word, parent in zip(("from", "merge"), parents, strict=False)
        ]
        self.stream += [line.encode() for line in (*lines, "deleteall\n")]
        for path, (mode, data) in state.items():
            quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            if mode == _MODULE:
                self.stream.append(f'M {mode} {data.decode()} "{quoted}"\n'.encode())
            else:
                head = f'M {mode} inline "{quoted}"\ndata {len(data)}\n'
                self.stream += [head.encode(), data, b"\n"]
        self.heads[branch] = self.commits, state


def write_history(top: Path, steps: list[Step]) -> None:
    """Make a repository; HEAD is main."""
    writer = _Writer()
    first = {FILES[1]: ("100644", unified(make_record(0), make_record(1)))}
    writer.commit("main", {**first, OTHERS[0]: ("100644", b"no bank")})
    for number, (kind, branch, file, record) in enumerate(steps):
        name = BRANCHES[branch]
        head, state = writer.heads.get(name) or writer.heads["main"]
        if kind in ("ours", "theirs", "union"):
            other, their_state = writer.heads.get(BRANCHES[record % len(BRANCHES)], (head, state))
            if other == head:
                continue
            merged = {"ours": state, "theirs": their_state, "union": {**their_state, **state}}
            writer.commit(name, dict(merged[kind]), head, other)
        else:
            writer.commit(name, _changed(state, kind, FILES[file], record, number), head)
    subprocess.run(["git", "init", "-q", "-b", "main", str(top)], check=True)
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=top, input=b"".join(writer.stream), check=True
    )
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=top, check=True, capture_output=True)


def _changed(state: _State, kind: str, path: str, record: int, number: int) -> _State:
    new = dict(state)
    mode, data = new.get(path, ("100644", b""))
    if kind in ("put", "drop"):
        parsed = find_format(Path(NAME)).parse(data if mode[:2] == "10" else b"", Path(NAME))  # type: ignore[union-attr]
        records = {found.key: found for found in parsed.iter_records()}
        changed = make_record(record, cost_us=float(number % 2 + 1))
        records.pop(changed.key, None)
        kept = (*records.values(), *([changed] if kind == "put" else []))
        new[path] = ("100644", b"{}\n" if path.endswith(SUFFIX) else unified(*kept))
        if path.endswith(SUFFIX):
            new[path] = ("100644", b"{}\n" * number)
    elif kind == "rename" and path in new:
        new[FILES[(record * 2 + number) % len(FILES)]] = new.pop(path)
    elif kind == "delete":
        new.pop(path, None)
    elif kind == "link":
        new[path] = (_LINK, b"nowhere")
    elif kind == "module":
        new[path] = (_MODULE, b"1" * 40)
    elif kind == "mode" and mode[:2] == "10" and path in new:
        new[path] = ("100755" if mode == "100644" else "100644", data)
    elif kind == "other":
        new[OTHERS[record % len(OTHERS)]] = ("100644", b'{"n": %d}' % number)
    return new


def is_named(name: str) -> bool:
    """Return whether a file is called like a bank."""
    return find_format(Path(name)) is not None


class FullWalk:
    """A history read the slow way: all commits, whole trees, a program per file.

    Attributes:
        commits: Parents of each commit by its object name, newest first.
    """

    def __init__(self, top: Path, inside: str) -> None:
        self._top = top
        self._inside = f"{inside}/" if inside else ""
        lines = self._git("rev-list", "--date-order", "--parents", "HEAD").split(b"\n")[:-1]
        self.commits = {
            commit: tuple(parents) for commit, *parents in (line.decode().split() for line in lines)
        }
        self.entries = {commit: self._list(commit) for commit in self.commits}
        self.head = next(iter(self.commits))
        self._contents: dict[str, bytes] = {}

    def read(self, blob: str) -> bytes:
        """Return the content of a blob."""
        if blob not in self._contents:
            self._contents[blob] = self._git("cat-file", "blob", blob)
        return self._contents[blob]

    def banks(self, commit: str) -> dict[str, str]:
        """Return the blob of each bank file of a commit."""
        return {
            name: blob
            for name, (mode, blob) in (self.entries[commit] if commit else {}).items()
            if mode.startswith("100") and self.is_bank(name, blob)
        }

    def is_bank(self, name: str, blob: str) -> bool:
        """Return whether a file is a bank file."""
        path = PurePosixPath(name)
        if name.endswith(SUFFIX) or any(part.startswith(".") for part in path.parts):
            return False
        if is_named(name):
            return True
        head = self.read(blob)[:HEAD_BYTES]
        return path.suffix == ".json" and find_format(Path(name), head) is not None

    def side(self, commit: str, *, is_logged: bool = False) -> StoredSide:
        """Return the bank of a commit, or what a log shows of it."""
        banks = self.banks(commit)
        if is_logged:
            others = self.others()
            banks = {name: banks[name] for name in banks if is_named(name) or name in others}
        return StoredSide(
            label=commit,
            kind=SideKind.GIT,
            is_tree=True,
            place=commit,
            contents=banks,
            read=self.read,
        )

    def others(self) -> set[str]:
        """Return the bank files of the newest commit whose names tell nothing."""
        return {name for name in self.banks(self.head) if not is_named(name)}

    def log(self) -> Iterator[tuple[str, str]]:
        """Yield the commits a log lists, newest first, each with the one it is compared with."""
        others = self.others()

        def seen(commit: str) -> Mapping[str, tuple[str, str]]:
            return {
                name: entry
                for name, entry in self.entries[commit].items()
                if name in others or any(fnmatchcase(name.rpartition("/")[2], g) for g in globs)
            }

        globs = (*bank_globs(), f"*{SUFFIX}")
        kept: dict[str, tuple[str, ...]] = {}
        follow: dict[str, str | None] = {}
        queue = [self.head]
        for commit in queue:
            parents = self.commits[commit]
            same = next((one for one in parents if seen(one) == seen(commit)), None)
            if same is not None or (not parents and not seen(commit)):
                follow[commit] = same
                queue += [same] if same and same not in queue else []
                continue
            kept[commit] = parents
            queue += [one for one in parents if one not in queue]
        for commit in self.commits:
            if commit in kept:
                ends = (self._end(parent, follow) for parent in kept[commit])
                yield commit, next((end for end in ends if end), "")

    @staticmethod
    def _end(commit: str | None, follow: Mapping[str, str | None]) -> str | None:
        while commit in follow:
            commit = follow[commit]
        return commit

    def blame_parents(self, names: set[str]) -> dict[str, tuple[str, ...]]:
        """Return the parents a record can come from; a line that never had the files is none."""

        def seen(commit: str) -> Mapping[str, tuple[str, str]]:
            return {k: entry for k, entry in self.entries[commit].items() if k in names}

        def has_past(commit: str) -> bool:
            while len(parents := self.commits[commit]) == 1 and seen(commit) == seen(parents[0]):
                commit = parents[0]
            return bool(parents) or bool(seen(commit))

        return {
            commit: tuple(one for one in parents if has_past(one))
            for commit, parents in self.commits.items()
        }

    def _list(self, commit: str) -> dict[str, tuple[str, str]]:
        entries = {}
        for entry in self._git("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
            head, _, name = entry.partition(b"\t")
            mode, _, blob = head.decode().split()
            path = name.decode()
            if path.startswith(self._inside):
                entries[path[len(self._inside) :]] = (mode, blob)
        return entries

    def _git(self, *arguments: str) -> bytes:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self._top, check=True, capture_output=True).stdout
