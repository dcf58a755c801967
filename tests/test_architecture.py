"""The tree is the architecture: imports point one way, files and functions stay small."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("aoebank", "aoe")
HARD_CAP_LINES = 800
INIT_CAP_LINES = 60
FUNCTION_CAP_LINES = 60
PUBLIC_API = {"aoebank/__init__.py", "aoe/__init__.py"}  # lists of names, one per line
ENVIRON_ALLOWED = {"aoebank/storage/readers/environment.py", "aoe/settings.py"}
CPU_WORDS = ("CPUExecutionProvider", "sched_getaffinity", "/proc/", "/sys/", "import platform")
# what these files say of a format by its name is about programs and folders of CANN
NAME_A_FORMAT = {
    "aoebank/model/record.py": "the default of a public value",
    "aoebank/model/resolution.py": "readers, called after what they read",
    "aoebank/resolving/hazards.py": "the folder of subgraph banks",
    "aoebank/storage/bank.py": "Bank.unified_file, the folder of subgraph banks",
    "aoebank/storage/readers/rules.py": "what each reader reads",
}
# whose callables have any parameters: those of others, and what is called by name
CALLS_ANYTHING = {
    "aoe/cli/options.py": "commands, which typer calls",
    "aoe/execute/tasks.py": "tasks by name, with the arguments a message has",
    "aoe/execute/worker.py": "the same",
    "aoe/kernels/elementwise_ops.py": "an operator's attributes, in the order of its defaults",
    "aoe/kernels/halide/reductions.py": "a place has as many coordinates as a tensor",
    "aoe/ort/serving/swapping.py": "the user's callback, which ONNX Runtime calls",
    "aoe/tensorflow/watching.py": "methods of TensorFlow",
    "aoe/torch/": "functions and modules of the user and of PyTorch",
    "aoe/runs/configuration/options.py": "any function that is documented",
    "aoebank/parameters/command.py": "functions that are commands",
    "aoebank/cli.py": "the public function of a verb, with the options that were given",
    "aoebank/formats/runtime_kb/": "a packer of as many numbers as a line has",
    "aoebank/report/html.py": "what pages call by name",
}
SHOWS = re.compile(r"def show\(call: Callable\[\.\.\., Any\]")
WRITES = {"write_bytes", "write_text", "unlink", "rename", "rmdir", "truncate", "touch"}
PRINTS = ("print", "sys.stdout.write", "sys.stderr.write", "Console", "traceback.print_exception")
_PRINTS_LAST = {name.split(".")[-1] for name in PRINTS}
COUNTED = re.compile(" (threads|shapes|segments|kernels|subgraphs)\\b")
HARMLESS_PRINTS = {"print(f'aoebank {__version__}')", "print(f'aoe {__version__}')"}
# a part may import the parts behind it, never one before it
LAYERS = {
    "aoebank": (
        *("cli", "verbs", "git", "editing", "merging", "quarantine", "history", "reading"),
        *("validation", "diffing", "shipping", "resolving", "parameters", "selection"),
        *("program", "report"),
        *("storage", "formats", "model", "processes", "errors"),
    ),
    "aoe": (
        *("cli", "report", "torch", "tensorflow", "online", "advice"),
        *("runs", "validation", "tasks", "tuner", "profiling"),
        *("entry", "om", "execute", "device", "ort"),
        *("graph", "kernels", "bank", "results", "gradients", "settings", "target", "operators"),
        *("workload", "schedule", "measurement", "folders", "child_python", "errors"),
    ),
}


@cache
def _sources(package: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / package).rglob("*.py")))


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def _imports(path: Path) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    found: list[tuple[str, int, tuple[str, ...]]] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = tuple(alias.name for alias in node.names)
            found.append((node.module or "", node.lineno, names))
    return tuple(found)


def _module_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def _modules(package: str) -> frozenset[tuple[str, ...]]:
    return frozenset(map(_module_of, _sources(package)))


def _targets(path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the modules of its own package a file imports, with the lines."""
    own = _module_of(path)
    modules = _modules(own[0])
    for module, line, names in _imports(path):
        parts = tuple(module.split("."))
        if parts[0] == own[0]:
            for name in names or ("",):
                yield ((*parts, name) if (*parts, name) in modules else parts), line


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many leading parts two module names have in common."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@cache
def _folder_graphs(package: str) -> Mapping[str, Mapping[str, set[str]]]:
    """Return, for every folder, which of the things in it import which others of them."""
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in _sources(package):
        own = _module_of(path)
        for target, _ in _targets(path):
            depth = _shared(own, target)
            if depth < min(len(own), len(target)):
                graphs["/".join(own[:depth])][own[depth]].add(target[depth])
    return graphs


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_cycle_at_any_depth(package: str) -> None:
    wrong = []
    for folder, graph in _folder_graphs(package).items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            wrong.append(f"{folder}: {' -> '.join(reversed(error.args[1]))}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    rank = {name: number for number, name in enumerate(LAYERS[package])}
    wrong = [
        f"{package}/{own} imports {package}/{target}"
        for own, targets in _folder_graphs(package)[package].items()
        for target in targets
        if own in rank and rank.get(target, -1) < rank[own]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_part_has_its_layer(package: str) -> None:
    parts = {_module_of(path)[1] for path in _sources(package) if len(_module_of(path)) > 1}
    assert parts - {"__main__", "testing"} == set(LAYERS[package])


@pytest.mark.parametrize("package", PACKAGES)
def test_design_page_draws_the_floors(package: str) -> None:
    page = " ".join((ROOT / "docs" / "design.md").read_text().split())
    assert f"{package}/ {' > '.join(LAYERS[package])} " in page


def test_only_formats_know_one_format_from_another() -> None:
    folders = {path.parent.name for path in (ROOT / "aoebank/formats").glob("*/format.py")}
    wrong, named = [], set()
    for path in _sources("aoebank"):
        own = path.relative_to(ROOT).as_posix()
        if own.startswith("aoebank/formats/") or own in PUBLIC_API:
            continue
        for module, line, _ in _imports(path):
            if module.startswith("aoebank.formats.") and module.split(".")[2] in folders:
                wrong.append(f"{own}:{line}: {module}")
        if any(isinstance(n, ast.Constant) and n.value in folders for n in _nodes(path)):
            named.add(own)
    assert folders
    assert not wrong, "\n".join(wrong)
    assert named == set(NAME_A_FORMAT)


def test_the_bank_layer_knows_no_engine() -> None:
    wrong = [
        f"{path}:{line}: {module}"
        for path in _sources("aoebank")
        for module, line, _ in _imports(path)
        if module.split(".")[0] == "aoe"
    ]
    assert not wrong, "\n".join(wrong)


def test_aoe_uses_only_the_public_bank_api() -> None:
    import aoebank

    wrong = []
    for path in _sources("aoe"):
        for module, line, names in _imports(path):
            if module.split(".")[0] != "aoebank":
                continue
            hidden = [name for name in names if name not in aoebank.__all__]
            if module != "aoebank" or hidden:
                wrong.append(f"{path}:{line}: {module} {hidden}")
    assert not wrong, "\n".join(wrong)


def test_text_for_people_leaves_at_one_place() -> None:
    """Foreign names in it cannot steer a terminal, because one file sees to that for all."""
    wrong = []
    for path in (*_sources("aoebank"), *_sources("aoe")):
        own = path.relative_to(ROOT).as_posix()
        for node in _nodes(path):
            if not isinstance(node, ast.Call) or own == "aoebank/report/output.py":
                continue
            last = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            called = ast.unparse(node.func) if last in _PRINTS_LAST else ""
            if called in PRINTS and ast.unparse(node) not in HARMLESS_PRINTS:
                wrong.append(f"{own}:{node.lineno}: {called}")
    assert not wrong, "\n".join(wrong)


def test_search_never_measures_and_execute_never_searches() -> None:
    wrong, rooms = [], ("aoe.tuner", "aoe.tasks", "aoe.validation", "aoe.runs")
    for path in _sources("aoe"):
        own = path.relative_to(ROOT).as_posix()
        for module, line, _ in _imports(path):
            if own.startswith("aoe/tuner/search/") and module.startswith("aoe.execute"):
                wrong.append(f"{path}:{line}")
            if own.startswith("aoe/execute/") and module.startswith(rooms):
                wrong.append(f"{path}:{line}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_environment_is_read_in_one_place(package: str) -> None:
    wrong = []
    for path in _sources(package):
        name = path.relative_to(ROOT).as_posix()
        for node in _nodes(path):
            reads = isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
            if reads and name not in ENVIRON_ALLOWED:
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_only_the_cpu_device_asks_for_the_cpu() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in _sources("aoe")
        if not path.is_relative_to(ROOT / "aoe/device/cpu")
        for word in CPU_WORDS
        if word in path.read_text()
    ]
    assert not wrong, "\n".join(wrong)


def test_onnx_runtime_is_loaded_in_one_place() -> None:
    """What must be said before it is loaded is said in `aoe/ort/__init__.py`."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in _sources("aoe")
        if ROOT / "aoe/ort" not in path.parents and "onnxruntime" in path.read_text()
        for node in _run_imports(_nodes(path)[0])
        if (
            isinstance(node, ast.Import)
            and any(alias.name.split(".")[0] == "onnxruntime" for alias in node.names)
        )
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onnxruntime")
    ]
    assert not wrong, "\n".join(wrong)


def _run_imports(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file but those only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not checking:
            yield node
            yield from _run_imports(node)


def test_banks_are_written_in_one_place() -> None:
    wrong = []
    for path in _sources("aoebank"):
        name = path.relative_to(ROOT).as_posix()
        for node in _nodes(path):
            writes = isinstance(node, ast.Attribute) and node.attr in WRITES
            if writes and not name.startswith("aoebank/storage/writing/"):
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_callbacks_have_parameters_mypy_checks(package: str) -> None:
    wrong = []
    for path in _sources(package):
        name = path.relative_to(ROOT).as_posix()
        text = SHOWS.sub("", path.read_text())  # of a verb, which is called as in `aoebank.cli`
        if "Callable[..., " in text and not name.startswith(tuple(CALLS_ANYTHING)):
            wrong.append(f"{name}: Callable[..., X]: name the parameters, or write a Protocol")
    assert not wrong, "\n".join(wrong)


_LOST_A_PARAMETER = """
from collections.abc import Callable
from functools import partial

def compilers(run: int) -> str: return ""
def workers(run: int, *, runner: bool) -> str: return ""

one: Callable[[bool], str] = partial(compilers, 1)
two: Callable[[], str] = partial(compilers, 1)
three: Callable[[], str] = partial(workers, 1, runner=True)
four: Callable[[], str] = partial(workers, 1)
"""


def test_mypy_looks_through_a_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin of pyproject.toml is loaded, and does it for this version of mypy."""
    module = tmp_path / "module.py"
    module.write_text(_LOST_A_PARAMETER)
    monkeypatch.chdir(ROOT)
    found, error, _ = api.run(["--cache-dir=/dev/null", "--no-error-summary", str(module)])
    assert not error
    wrong = {line.split(":")[1] for line in found.splitlines()}
    assert wrong == {"8", "11"}, found


@pytest.mark.parametrize("package", PACKAGES)
def test_loops_name_the_thing(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: `each` of what?"
        for path in _sources(package)
        for name, line in _bound_names(path)
        if name == "each"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_count_is_written_with_its_noun_by_plural(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}: plural(...) writes '1 thread'"
        for path in _sources(package)
        for node in _nodes(path)
        if isinstance(node, ast.JoinedStr)
        for value, behind in pairwise(node.values)
        if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant)
        if COUNTED.match(behind.value)
    ]
    assert not wrong, "\n".join(wrong)


def _bound_names(path: Path) -> Iterator[tuple[str, int]]:
    for node in _nodes(path):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_files_and_functions_stay_small(package: str) -> None:
    wrong = []
    for path in _sources(package):
        lines = path.read_text().count("\n")
        is_api = path.relative_to(ROOT).as_posix() in PUBLIC_API
        cap = INIT_CAP_LINES if path.name == "__init__.py" and not is_api else HARD_CAP_LINES
        if lines > cap:
            wrong.append(f"{path}: {lines} lines")
        wrong.extend(_long_functions(path))
    assert not wrong, "\n".join(wrong)


def _long_functions(path: Path) -> Iterator[str]:
    if "/cli/" in path.as_posix():
        return
    for node in _nodes(path):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        length = (node.end_lineno or 0) - first.lineno + 1
        if length > FUNCTION_CAP_LINES:
            yield f"{path}:{node.lineno}: {node.name} is {length} lines"


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_stand_where_the_code_stands(package: str) -> None:
    tests = ROOT / "tests" / package
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")}
    assert not [str(folder) for folder in folders if not (ROOT / package / folder).is_dir()]
