"""What a run of these tests found, in the JSON file that HINGE_FIGURES names; `tools/promises.py` reads it."""

import json
import os
from pathlib import Path
from typing import Any


def note(promise: str, case: str, **figures: Any) -> None:
    """Keep figures of one case of a promise; later ones take the place of earlier ones."""
    if "HINGE_FIGURES" not in os.environ:
        return
    path = Path(os.environ["HINGE_FIGURES"])
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(promise, {})[case] = figures
    path.write_text(json.dumps(known, indent=1))
