"""What MkDocs does not do by itself: pages from outside `docs/`, and a page of the commands.

MkDocs calls these functions (`hooks` in mkdocs.yml). Pages link to files of the repository by relative paths, as is
right where the repository is browsed. For the site, whatever they link to is brought along: Markdown, programs and
notebooks as pages, folders as lists of what is in them, anything else as it is. A link to something that is not there
stays as it is, so that `mkdocs build --strict` fails on it.
"""

import ast
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]  # MkDocs loads a hook by its path, and knows nothing of the folders around it

from tools import count, notebook  # noqa: E402  # the line above makes them importable
from tools.examples import fenced  # noqa: E402

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
_LISTED = {".md", ".py", ".ipynb", ".csv", ".png"}


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to, what those link to, and the commands."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen: set[str] = set()
    while waiting:
        place = waiting.pop()
        for target in _targets(place):
            if target not in seen and not target.startswith("docs/"):
                seen.add(target)
                waiting.append(target)
                files.append(_file(target, config))
    helps = (f"## `{' '.join(('hinge', *name))}`\n\n```text\n{text}```\n" for name, text in count.helps(ROOT / "src"))
    commands = "\n".join(["# Commands\n\nWhat `--help` prints, for all of them.\n", *helps])
    files.append(File.generated(config, "reference/commands.md", content=commands))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at the pages that files have become, and set examples off as code."""
    uri = page.file.src_uri
    place = _place(page.file)

    def pointed(link: re.Match[str]) -> str:
        target = _resolved(place, link[1])
        if target is None:
            return link[0]
        return posixpath.relpath(_uri(target), posixpath.dirname(uri) or ".") + (link[2] or "")

    return _LINK.sub(pointed, fenced(markdown))


def _file(place: str, config: Any) -> File:
    path, uri = ROOT / place, _uri(place)
    if path.is_dir():
        file = File.generated(config, uri, content=_folder_page(path))
    elif path.suffix == ".py":
        file = File.generated(config, uri, content=f"# `{place}`\n\n```python\n{path.read_text('utf-8')}```\n")
    elif path.suffix == ".ipynb":
        file = File.generated(config, uri, content=notebook.markdown(notebook.read(path)))
    else:
        file = File.generated(config, uri, abs_src_path=str(path))
    file.hinge_place = place  # type: ignore[attr-defined]  # ours, for on_page_markdown
    return file


def _folder_page(folder: Path) -> str:
    lines = [f"- [{path.name}]({path.name}){_first_words(path)}" for path in _listed(folder)]
    return "\n".join([f"# `{folder.relative_to(ROOT).as_posix()}/`", "", *lines, ""])


def _first_words(path: Path) -> str:
    """What a file says that it is: its title, or its docstring's first sentence."""
    if path.suffix == ".md":
        title = re.search(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
        return f": {title[1]}" if title else ""
    if path.suffix == ".py":
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        return f": {' '.join(docstring.partition(chr(10) * 2)[0].split())}"
    return ""


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _LISTED)


def _targets(place: str) -> list[str]:
    """What a page links to, of what is there."""
    path = ROOT / place
    if path.is_dir():
        return [each.relative_to(ROOT).as_posix() for each in _listed(path)]
    if path.suffix not in (".md", ".ipynb"):
        return []
    links = _LINK.finditer(path.read_text("utf-8"))
    return [target for link in links if (target := _resolved(place, link[1])) is not None]


def _resolved(place: str, link: str) -> str | None:
    """The place in the repository that a link on the page of another means, if there is something."""
    folder = place if (ROOT / place).is_dir() else posixpath.dirname(place)
    target = posixpath.normpath(posixpath.join(folder, link))
    return target if not target.startswith("..") and (ROOT / target).exists() else None


def _place(file: File) -> str:
    """Where in the repository a page of the site comes from."""
    place: str = getattr(file, "hinge_place", f"docs/{file.src_uri}")
    return place


def _uri(place: str) -> str:
    """Where on the site a file of the repository is."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    if (ROOT / place).is_dir():
        return f"{place}/index.md"
    return f"{place}.md" if place.endswith((".py", ".ipynb")) else place
