"""Print the shape of the code: files, lines, functions, helpers used once, modules with one importer, import circles.

    python tools/shape.py [ROOT]

ROOT is the checkout to measure, this one by default: run the script on two checkouts to compare them. Every figure
comes from the syntax trees alone, so the packages of that checkout need not be installed.

- A helper is a private function or method. It is used once if its name occurs once in the code of its module, or of
  its class for a method, besides its definition.
- Importers are modules of `src` whose code imports a module by any import statement, functions and type checking
  included. `__init__.py` files and entry points are never counted as modules with one importer.
- A circle is a set of modules that import each other, by any import statement. Circles while modules load leave out
  imports inside functions and under `TYPE_CHECKING`.
- Arrows are the pairs (room, other room) of the top level in which a module of the first imports one of the second.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SHORT = 8
"""Lines of a short helper, its signature and decorators included, at most."""
PACKAGE = "tfperf"
ENTRY_POINTS = {f"{PACKAGE}.__main__", f"{PACKAGE}.judge.pytest_plugin"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the package: its dotted name, its syntax tree, and the modules that it imports."""

    name: str
    lines: int
    tree: ast.Module
    loaded: set[str] = field(default_factory=set)
    """Dotted names that it imports while it loads. May name what a module holds."""
    later: set[str] = field(default_factory=set)
    """Dotted names that it imports in functions and under TYPE_CHECKING."""


def python_files(root: Path) -> list[Path]:
    """Return the Python files below a folder, sorted."""
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def lines_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def _names(statement: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = statement.module or ""
    if statement.level:
        parents = module.split(".")
        kept = len(parents) - statement.level + is_package
        base = ".".join([*parents[:kept], *([base] if base else [])])
    for alias in statement.names:
        yield f"{base}.{alias.name}"


def read_modules(source: Path) -> dict[str, Module]:
    """Parse every module of the package, by dotted name."""
    modules = {}
    for path in python_files(source / PACKAGE):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        module = Module(name, lines_of(path), ast.parse(path.read_text(encoding="utf-8")))
        _collect_imports(module.tree.body, module, is_package, module.loaded)
        modules[name] = module
    return modules


def _collect_imports(body: list[ast.stmt], module: Module, is_package: bool, into: set[str]) -> None:
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            into.update(_names(statement, module.name, is_package))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect_imports(statement.body, module, is_package, module.later)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            _collect_imports(statement.body, module, is_package, module.later)
            _collect_imports(statement.orelse, module, is_package, into)
        else:
            for block in ("body", "orelse", "finalbody"):
                _collect_imports(getattr(statement, block, []), module, is_package, into)
            for handler in getattr(statement, "handlers", []):
                _collect_imports(handler.body, module, is_package, into)


def imported(names: set[str], modules: Mapping[str, Module]) -> set[str]:
    """Return the modules that dotted names lead to: the module itself, or the one that holds the name."""
    found = set()
    for name in names:
        target = name if name in modules else name.rpartition(".")[0]
        if target in modules:
            found.add(target)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of two or more modules that reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            component = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(component)

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in order:
            visit(node)
    return found


def functions(tree: ast.AST) -> Iterator[tuple[Function, ast.AST]]:
    """Yield each function of a tree with the module or class that holds it; functions inside of functions included."""
    for holder in ast.walk(tree):
        for child in ast.iter_child_nodes(holder):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, holder


def length(function: Function) -> int:
    """Return the lines of a function, decorators included."""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return (function.end_lineno or first) - first + 1


def used_once(module: Module) -> list[Function]:
    """Return private functions and methods of a module whose name occurs once besides their definition."""
    helpers = []
    occurrences = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for function, holder in functions(module.tree):
        private = function.name.startswith("_") and not function.name.startswith("__")
        if private and isinstance(holder, ast.Module | ast.ClassDef) and occurrences[function.name] == 1:
            helpers.append(function)
    return helpers


def room(name: str) -> str:
    """Return the top-level module or package of a module."""
    return name.split(".")[1] if "." in name else PACKAGE


def floors(arrows: set[tuple[str, str]]) -> int:
    """Return the length of the longest chain of rooms that import each other; rooms in a circle share a floor."""
    rooms = {each for arrow in arrows for each in arrow}
    graph = {each: {to for start, to in arrows if start == each} for each in rooms}
    circle_of = {each: each for each in rooms}
    for circle in circles(graph):
        for each in circle:
            circle_of[each] = min(circle)
    depth: dict[str, int] = {}

    def depth_of(each: str) -> int:
        if each not in depth:
            below = {circle_of[to] for start in rooms if circle_of[start] == each for to in graph[start]} - {each}
            depth[each] = 1 + max(map(depth_of, below), default=0)
        return depth[each]

    return max(map(depth_of, {circle_of[each] for each in rooms}), default=0)


def main() -> int:
    """Print the figures of a checkout."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    modules = read_modules(root / "src")
    importers: dict[str, set[str]] = defaultdict(set)
    loading: dict[str, set[str]] = {}
    reached: dict[str, set[str]] = {}
    arrows = set()
    inside = 0
    for name, module in modules.items():
        loading[name] = imported(module.loaded, modules) - {name}
        reached[name] = loading[name] | imported(module.later, modules) - {name}
        inside += sum(
            isinstance(node, ast.Import | ast.ImportFrom)
            for function, _ in functions(module.tree)
            for node in function.body
        )
        for other in reached[name]:
            importers[other].add(name)
            if room(name) != room(other) and PACKAGE not in (room(name), room(other)):
                arrows.add((room(name), room(other)))
    packages = {
        path.parent.relative_to(root / "src").as_posix().replace("/", ".")
        for path in python_files(root / "src")
        if path.name == "__init__.py"
    }
    single = [name for name in modules if name not in packages | ENTRY_POINTS and len(importers[name]) == 1]
    all_functions = [function for module in modules.values() for function, _ in functions(module.tree)]
    helpers = [function for module in modules.values() for function in used_once(module)]
    short = [function for function in helpers if length(function) <= SHORT]
    found = circles(reached)
    top = {room(name) for name in modules} - {PACKAGE}
    tests = python_files(root / "tests")
    classes = sum(isinstance(node, ast.ClassDef) for module in modules.values() for node in ast.walk(module.tree))
    median = statistics.median(map(length, all_functions))
    figures = {
        "files in src": f"{len(modules):,}",
        "lines in src": f"{sum(module.lines for module in modules.values()):,}",
        "files in tests": f"{len(tests):,}",
        "lines in tests": f"{sum(map(lines_of, tests)):,}",
        "classes": f"{classes:,}",
        "functions": f"{len(all_functions):,}, median {median:.0f} lines",
        "private functions used once": f"{len(helpers):,}, {len(short):,} of them up to {SHORT} lines",
        "modules with a single importer": f"{len(single):,}",
        "import circles": f"{len(found):,}, {len(circles(loading)):,} while modules load",
        "imports inside functions": f"{inside:,}",
        "names on the top level": f"{len(top):,}",
        "arrows between them": f"{len(arrows):,}",
        "floors": f"{floors(arrows):,}",
    }
    for name, figure in figures.items():
        print(f"{name:32}{figure}")
    for circle in found:
        print(f"circle: {', '.join(sorted(circle))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
