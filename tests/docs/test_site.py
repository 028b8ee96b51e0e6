"""The site: built strictly, complete, every link leads somewhere, and nothing is taken from elsewhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

import hinge

ROOT = Path(__file__).parents[2]


@dataclass
class Read(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    links: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    tags: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.assets.append(given["href"])
        elif "src" in given:
            self.assets.append(given["src"])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {path: _read(path) for path in site.rglob("*.html") if path.name != "404.html"}


def _read(path: Path) -> Read:
    page = Read()
    page.feed(path.read_text("utf-8"))
    return page


def test_every_page_is_there(site: Path) -> None:
    for path in (ROOT / "docs").glob("*.md"):
        assert (site / path.with_suffix(".html").name).is_file(), path.name


def test_every_link_leads_somewhere(pages: dict[Path, Read]) -> None:
    lost = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in page.links + page.assets
        if not _leads(path, link, pages)
    ]
    assert lost == []


def _leads(path: Path, link: str, pages: dict[Path, Read]) -> bool:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https", "mailto", "data"):
        return True  # elsewhere, and not ours to test, or in the link itself
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    fragment = unquote(parts.fragment)
    return not fragment or target not in pages or fragment in pages[target].anchors


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.stem
)
def test_every_link_leads_somewhere_in_a_clone_too(path: Path) -> None:
    """The site has pages that are made when it is built; who reads the files has none of them."""
    page = Read()
    page.feed(MarkdownIt("commonmark").enable("table").render(path.read_text("utf-8")))
    links = [urlsplit(link) for link in page.links + page.assets]
    assert [link.path for link in links if not link.scheme and not (path.parent / unquote(link.path)).exists()] == []


def test_nothing_is_taken_from_elsewhere(site: Path, pages: dict[Path, Read]) -> None:
    assert [asset for page in pages.values() for asset in page.assets if urlsplit(asset).netloc] == []
    for style in site.rglob("*.css"):
        text = style.read_text("utf-8")
        assert "url(http" not in text, style.name
        assert "url(//" not in text, style.name
        assert "@import" not in text, style.name


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_a_page_has_the_lists_and_tables_that_a_reader_of_the_repository_sees(path: Path, site: Path) -> None:
    """MkDocs reads Markdown more strictly than others do: a list without a blank line before it is none."""
    seen = MarkdownIt("commonmark").enable("table").render(path.read_text("utf-8"))
    other = Read()
    other.feed(seen)
    built = (site / path.with_suffix(".html").name).read_text("utf-8")
    article = Read()
    article.feed(built.partition("<article")[2].partition("</article>")[0])
    for tag in ("li", "tr", "ol", "ul"):
        assert article.tags.count(tag) == other.tags.count(tag), tag


def _public() -> Iterator[str]:
    yield from (name for name in dir(hinge) if hasattr(getattr(hinge, name), "__module__"))  # but for modules


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = {anchor for path in (site / "reference").glob("*.html") for anchor in _read(path).anchors}
    headings = {anchor.rpartition(".")[2] for anchor in anchors}
    public = list(_public())
    assert len(public) > 40
    assert [name for name in public if name not in headings] == []


def test_the_picture_says_what_it_shows(site: Path) -> None:
    for name in ("index.html", "design.html"):
        assert "architecture.svg" in _read(site / name).assets
    assert "<desc" in (site / "architecture.svg").read_text("utf-8")
