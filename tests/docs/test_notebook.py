"""The notebook runs, and shows what it showed when it was written: the same words, about the same numbers."""

import re
from pathlib import Path

import pytest

from tools import notebook

WRITTEN = notebook.read(Path(__file__).parents[2] / "examples" / "two_models.ipynb")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_the_notebook_prints_and_draws_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # nothing of the clone is needed, or written
    cells = zip(WRITTEN["cells"], notebook.run(WRITTEN)["cells"], strict=True)
    code = [(shown, found) for shown, found in cells if shown["cell_type"] == "code"]
    assert sum(len(notebook.pictures(found)) for _, found in code) == 3
    for shown, found in code:
        assert len(notebook.pictures(shown)) == len(notebook.pictures(found))
        there, here = notebook.printed(shown), notebook.printed(found)
        assert _NUMBER.sub("0", here).split() == _NUMBER.sub("0", there).split()
        # Runtimes round scores as the processor has it, which moves a sample to another bin now and then.
        expected = [float(number) for number in _NUMBER.findall(there)]
        assert [float(number) for number in _NUMBER.findall(here)] == pytest.approx(expected, rel=0.1, abs=0.01), here
