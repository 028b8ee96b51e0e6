"""Count the tree, or several of its revisions side by side, as a table in Markdown.

    python tools/count.py                            # the checkout
    python tools/count.py before-the-cut HEAD~20="the fleet" .   # revisions, one by another name, and the checkout

Lines are those of Python files, blank ones too; statements are those of the syntax tree, less docstrings. Options are
those that `hinge COMMAND --help` lists, once a command, `--help` left out: it runs with this interpreter, which needs
what the command line of the revision imports. A dash stands for what could not be counted.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
GOALS = {
    "src: lines": "≤ 25 500",
    "command line: options": "≤ 150",
    "docs: words": "≤ 33 000",
    "tests: lines": "≤ 28 000",
    "benchmarks, tools, training: lines": "≤ 9 000",
}
OPTION = re.compile(r"^[\s│*]*(?:[A-Z][A-Z\d_-]*\s+)?(?:-\w,?\s+)?--([a-z][a-z\d-]*)", re.M)
COMMAND = re.compile(r"^[\s│]*([a-z][a-z-]*)\s{2,}\S", re.M)
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: Path) -> list[str]:
    """Return the text of every Python file below the folders."""
    return [path.read_text("utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))]


def lines(texts: list[str]) -> int:
    """Return how many lines the texts have together."""
    return sum(len(text.splitlines()) for text in texts)


def words(paths: Iterator[Path] | list[Path]) -> int:
    """Return how many words the files have together."""
    return sum(len(path.read_text("utf-8").split()) for path in paths)


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a string alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def helps(src: Path, *command: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what `hinge COMMAND --help` prints, of this command and of all below it; nothing where it fails."""
    run = [sys.executable, "-c", "from hinge.cli import main; main()", *command, "--help"]
    settings = {"PYTHONPATH": str(src), "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(run, env=os.environ | settings, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        yield command, done.stdout
        if "COMMAND" in done.stdout.partition("Usage:")[2].partition("\n")[0]:
            for name in sorted(set(COMMAND.findall(done.stdout))):
                yield from helps(src, *command, name)


def options(text: str) -> int:
    """Return how many options a command's help lists."""
    found = set(OPTION.findall(text)) - {"help"}
    return len({name for name in found if name.removeprefix("no-") == name or name[3:] not in found})


def dependencies(tree: Path) -> dict[str, int]:
    """Count what an installation needs, and may have beside it."""
    project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    extras = dict[str, list[str]](project["optional-dependencies"])
    every = re.findall(r"[\w-]+", " ".join(extras.pop("all")).partition("[")[2].partition("]")[0])
    packages = {re.split(r"[\[<>=; ]", needed)[0] for extra in every for needed in extras[extra]}
    return {
        "dependencies": len(project["dependencies"]),
        "extras at run time": len(every),
        "packages of these extras": len(packages),
    }


def counted(tree: Path) -> dict[str, int | None]:
    """Count everything in a tree."""
    src, tests = python_files(tree / "src"), python_files(tree / "tests")
    nodes = [node for text in src for node in ast.walk(ast.parse(text))]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in nodes if isinstance(node, FUNCTION)]
    policy = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Policy")
    methods = {node.name for node in policy.body if isinstance(node, FUNCTION)}
    pages = list((tree / "docs").rglob("*.md"))
    each = [options(text) for _, text in helps(tree / "src")]
    return {
        "src: lines": lines(src),
        "src: statements": sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in nodes),
        "src: files": len(src),
        "src: functions": len(lengths),
        "src: lines of a function, median": int(median(lengths)),
        "src: lines of the longest function": max(lengths),
        "`Policy`: public methods": len({name for name in methods if not name.startswith("_")}),
        "`Policy`: methods, private ones too": len(methods),
        "command line: commands": len(each) - 1 if each else None,
        "command line: options": sum(each) if each else None,
        "command line: most options of a command": max(each) if each else None,
        "docs: words": words(pages),
        "docs: pages": len(pages),
        "README: words": words([tree / "README.md"]),
        "tests: lines": lines(tests),
        "tests: test functions": sum(
            isinstance(node, FUNCTION) and node.name.startswith("test_")
            for text in tests
            for node in ast.walk(ast.parse(text))
        ),
        "benchmarks, tools, training: lines": lines(
            python_files(tree / "benchmarks", tree / "tools", tree / "training")
        ),
        **dependencies(tree),
    }


def counted_at(revision: str) -> dict[str, int | None]:
    """Count a revision of the repository, or the checkout for '.'."""
    if revision == ".":
        return counted(ROOT)
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return counted(Path(folder))


def main() -> None:
    """Print the table."""
    revisions = [argument.partition("=") for argument in sys.argv[1:] or [".=this tree"]]
    columns = [counted_at(revision) for revision, _, _ in revisions]
    print("| |", " | ".join(label or revision for revision, _, label in revisions), "| goal |")
    print("|---|" + "--:|" * (len(revisions) + 1))
    for name in columns[0]:
        figures = ("–" if (value := column[name]) is None else f"{value:,}".replace(",", " ") for column in columns)
        print("|", name, "|", " | ".join(figures), "|", GOALS.get(name, ""), "|")


if __name__ == "__main__":
    main()
