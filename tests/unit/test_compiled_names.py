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
            if isinstance(function, ast.FunctionDef):
                kinds: dict[str, set[str]] = {}
                for node in ast.walk(function):
                    if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                        kinds.setdefault(node.name, set()).add(ast.unparse(node.type))
                found += [f"{path}: {function.name}" for caught in kinds.values() if len(caught) > 1]
    assert found == []
