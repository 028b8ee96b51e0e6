"""The tree: tests mirror the package, and files are named by nouns."""

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hinge"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
ACROSS = {"support", "faults", "fuzz", "interop", "browser", "docs"}  # folders that test many modules
WHOLE = {"package", "layout", "examples"}  # files that test the whole
NOUNS = {"testing"}


def mirrored(test: Path) -> bool:
    """Whether a test is named for a module or package: test_store.py and test_store_damage.py for store.py."""
    place = test.relative_to(ROOT / "tests")
    folder = PACKAGE / place.parent
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    stem = place.stem.removeprefix("test_")
    return any(stem == name or stem.startswith(name + "_") for name in {*names, folder.name})


def mirroring() -> list[Path]:
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in found if path.relative_to(ROOT / "tests").parts[0] not in ACROSS]


@pytest.mark.parametrize("test", mirroring(), ids=lambda test: test.relative_to(ROOT).as_posix())
def test_tests_mirror_the_package(test: Path) -> None:
    assert test.stem.removeprefix("test_") in WHOLE or mirrored(test)


def test_modules_are_named_by_nouns() -> None:
    gerunds = {path.stem for path in MODULES if path.stem.endswith("ing")}
    assert gerunds <= NOUNS


def test_no_name_is_used_three_times() -> None:
    counts = Counter(path.stem for path in MODULES)
    assert [name for name, count in counts.items() if count > 2] == []
