"""What compiled code cannot do though the same source interpreted can, found before it is met at run time."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_function_catches_two_kinds_of_error_under_one_name_in_a_compiled_module() -> None:
    """mypyc types a name once in a function: the second kind would be a TypeError where it is caught."""
    found = []
    for path in re.findall(r'"(src/[^"]+\.py)"', (ROOT / "setup.py").read_text()):
        for function in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds: dict[str, set[str]] = {}
                for node in ast.walk(function):
                    if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                        kinds.setdefault(node.name, set()).add(ast.unparse(node.type))
                found += [f"{path}: {function.name}" for caught in kinds.values() if len(caught) > 1]
    assert found == []


def waits_in_a_handler(node: ast.AST, is_inside: bool) -> bool:
    """Whether something is awaited or yielded where an error is being handled."""
    if is_inside and isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith):
        return True
    if isinstance(node, ast.AsyncWith):
        return True  # it awaits the end of its block while it handles what came out of it
    handled = [*node.handlers, *node.finalbody] if isinstance(node, ast.Try) else []
    return any(waits_in_a_handler(child, is_inside or child in handled) for child in ast.iter_child_nodes(node))


def test_no_compiled_function_waits_where_it_handles_an_error() -> None:
    """A coroutine that mypyc has compiled, closed while it waits there, raises None and writes into None's type: the
    process crashes some time later. A task that is never finished is closed when it is collected."""
    found = []
    for path in re.findall(r'"(src/[^"]+\.py)"', (ROOT / "setup.py").read_text()):
        for function in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and waits_in_a_handler(function, False):
                found.append(f"{path}: {function.name}")
    assert found == []


def classes_in(module: str, tree: ast.Module) -> list[tuple[str, ast.ClassDef]]:
    return [(f"{module}.{node.name}", node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def named_in(tree: ast.Module, module: str) -> dict[str, str]:
    """The full names of what a module imports and makes, by the names that it has there."""
    names = {node.name: f"{module}.{node.name}" for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return names


def test_no_interpreted_class_inherits_from_a_compiled_one_that_does_not_allow_it() -> None:
    """It is a TypeError where the class is made, in the compiled build alone."""
    compiled = re.findall(r'"(src/[^"]+\.py)"', (ROOT / "setup.py").read_text())
    trees: dict[str, ast.Module] = {}
    closed: set[str] = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        module = name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        tree = ast.parse(path.read_text())
        if name not in compiled:
            trees[module] = tree
            continue
        for full_name, node in classes_in(module, tree):
            allows = any("allow_interpreted_subclasses=True" in ast.unparse(each) for each in node.decorator_list)
            if not allows:
                closed.add(full_name)
    found = []
    for module, tree in trees.items():
        names = named_in(tree, module)
        for full_name, node in classes_in(module, tree):
            for base in node.bases:
                first, _, rest = ast.unparse(base).partition("[")[0].partition(".")
                inherited = f"{names.get(first, first)}.{rest}".removesuffix(".")
                if inherited in closed:
                    found.append(f"{full_name} inherits from {inherited}")
    assert len(closed) > 200
    assert found == []
