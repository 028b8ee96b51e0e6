"""Runs the code of a notebook, cell by cell, and writes below each what it prints and draws, as Jupyter does.

    python -m tools.notebook examples/two_models.ipynb

It needs no Jupyter: a cell is Python text, what it prints is caught, and so are the figures of matplotlib.
"""

import contextlib
import io
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """A notebook: JSON, with its cells as dicts."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return notebook


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The same notebook with the outputs of a new run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = {
        cell["id"]: {**cell, "execution_count": count, "outputs": _outputs(cell, names)}
        for count, cell in enumerate(code, 1)
    }
    return {**notebook, "cells": [done.get(cell["id"], cell) for cell in notebook["cells"]]}


def printed(cell: dict[str, Any]) -> str:
    """What a cell has printed."""
    return "".join(line for output in cell["outputs"] for line in output.get("text", []))


def pictures(cell: dict[str, Any]) -> list[str]:
    """What a cell has drawn: PNGs, in base64."""
    return [output["data"]["image/png"] for output in cell["outputs"] if "data" in output]


def markdown(notebook: dict[str, Any]) -> str:
    """The notebook as a page, with what its cells have printed and drawn."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [f"```text\n{said}```" for said in [printed(cell)] if said]
        parts += [f"![What the lines above draw](data:image/png;base64,{image})" for image in pictures(cell)]
    return "\n\n".join(parts) + "\n"


def _outputs(cell: dict[str, Any], names: dict[str, Any]) -> list[dict[str, Any]]:
    import matplotlib

    matplotlib.use("agg")  # draws into memory
    from matplotlib import pyplot

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    text = out.getvalue().splitlines(keepends=True)
    outputs: list[dict[str, Any]] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, dpi=100, metadata={"Software": None})
        data = {"image/png": b64encode(image.getvalue()).decode()}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return outputs


def main(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    path.write_text(json.dumps(run(read(path)), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
