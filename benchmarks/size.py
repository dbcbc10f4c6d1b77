"""The size of the package: lines by room, the longest function, the largest fan-out.

python benchmarks/size.py SRC ...      # folders such as src/anyreward, of one or more versions
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path


def code_lines(text: str, tree: ast.Module) -> int:
    """The lines without docstrings, comments, blank lines and imports."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom):
            continue
        value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        if isinstance(value, str) or not isinstance(node, ast.Expr):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and i not in left_out for i, line in lines)


def measure(root: Path) -> None:
    """Print the size of one version."""
    rooms, modules, code = Counter[str](), 0, 0
    functions, imports = list[tuple[int, str]](), list[tuple[int, str]]()
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".py", ".cpp"):
            continue
        text, inside = path.read_text(), path.relative_to(root)
        rooms[inside.parts[0] if len(inside.parts) > 1 else "top-level files"] += len(text.splitlines())
        if path.suffix == ".cpp":
            continue
        tree, modules = ast.parse(text), modules + 1
        code += code_lines(text, tree)
        used = {x.module for x in ast.walk(tree) if isinstance(x, ast.ImportFrom) and x.module}
        imports.append((sum(name.startswith("anyreward") for name in used), str(inside)))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions.append(((node.end_lineno or 0) - node.lineno + 1, f"{inside}:{node.name}"))
    print(f"{root}: {modules} modules, {rooms.total():,} lines, {code:,} lines of code")
    print(f"  longest function {max(functions)}, {sum(n > 60 for n, _ in functions)} of more than 60 lines")
    print(f"  largest fan-out {max(imports)}")
    print("  " + ", ".join(f"{room} {lines:,}" for room, lines in sorted(rooms.items())))


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        measure(Path(folder))
