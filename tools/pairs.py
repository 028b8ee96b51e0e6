"""Take ten pairs of models that others made through `record`, `evaluate`, `device` and `serve`, and write the table.

    python -m tools.pairs [FOLDER]

The models are made in FOLDER by `tools/exports.py`, unless they are there, in an environment of their own outside the
checkout (torch as its build for processors). What happened goes into docs/models.md.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.peers.environments import Environment

ENVIRONMENT = Environment("exporters", "1")
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "models.md"
COST = "0.1"
SUFFIXES = (".onnx", ".tflite", ".xml")
ORDER = ("skl2onnx-zipmap", "skl2onnx-tensors", "skl2onnx-binary", "torch-external", "torch-softmax", "torch-sigmoid",
         "magika", "pp-ocr", "openvino", "birdnet")  # fmt: skip  # several to a line


def hinge(*arguments: str) -> tuple[str, str]:
    """What the command prints, and what it says on standard error; a failure is one here, too."""
    command = [sys.executable, "-m", "hinge", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"hinge {' '.join(arguments)}: {done.stderr}")
    return done.stdout, done.stderr


@contextmanager
def served(path: Path) -> Iterator[str]:
    """A server with the model, and where it is."""
    command = [sys.executable, "-m", "hinge", "serve", f"remote={path}", "--port", "0", "--log-level", "error"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield str(server.stdout and server.stdout.readline()).split()[-1]
    finally:
        server.terminate()
        server.wait(60)


def model(folder: Path, role: str) -> Path:
    """The file of a model."""
    return next(path for path in sorted(folder.glob(f"{role}.*")) if path.suffix in SUFFIXES)


def summary(*arguments: str) -> dict[str, Any]:
    """The summary of a device."""
    lines = hinge("device", *arguments, "--offload-cost", COST, "--json")[0].splitlines()
    return dict(json.loads(lines[-1])["summary"])


def row(folder: Path) -> str:
    """What happened to a pair, as a row of the table."""
    about = json.loads((folder / "about.json").read_text())
    local, remote, samples = model(folder, "local"), model(folder, "remote"), str(folder / "samples.npz")
    trace = folder / "trace.npz"
    trace.unlink(missing_ok=True)
    models = ("--local", str(local), "--remote", str(remote))
    said, noted = hinge("record", samples, *models, "--out", str(trace), "--json")
    recorded = json.loads(said)
    few = ("--policies", "probation,always-local,always-remote", "--offload-cost", COST, "--json")
    evaluated = json.loads(hinge("evaluate", str(trace), *few)[0])
    costs = {found["policy"]: found["cost_per_sample"] for found in evaluated["policies"]}
    alone = summary(*models, "--deadline-s", "10", samples)
    asked = "not ONNX"
    if remote.suffix == ".onnx":
        with served(remote) as url:
            over = summary("--local", str(local), "--remote", url, "--model", "remote", "--deadline-s", "10", samples)
        asked = f"{over['offloads']} of {over['samples']}, {percent(over['agreement'])} agreed"
    right = [percent(recorded[f"{role}_accuracy"]) for role in ("local", "remote")]
    cells = (
        f"`{folder.name}`: {about['local']}",
        about["remote"],
        "yes" if "are probabilities" in noted else "no",
        f"{recorded['samples']}: {percent(recorded['agreement'])}",
        " / ".join(right) if recorded["local_accuracy"] is not None else "not known",
        " / ".join(f"{costs[name]:.3f}" for name in ("always-local", "always-remote", "probation")),
        f"{percent(alone['offload_fraction'])}",
        asked,
    )
    return f"| {' | '.join(cells)} |"


def refusal(folder: Path) -> str:
    """What is said of a model that is no classifier, as a row."""
    about, path = json.loads((folder / "about.json").read_text()), model(folder, "local")
    command = ["device", "--local", str(path), "--remote", str(path), str(folder / "samples.npz")]
    done = subprocess.run([sys.executable, "-m", "hinge", *command], capture_output=True, text=True, timeout=600)
    if done.returncode != 2:
        raise RuntimeError(f"{path} is not refused")
    return f"| {about['local']} | `{done.stderr.strip().replace(f'{folder}/', '')}` |"


def percent(share: float | None) -> str:
    """A share as the table has it."""
    return "" if share is None else f"{share:.1%}"


def main() -> None:
    """Make the models, run the commands, write the table."""
    ENVIRONMENT.prepare()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ENVIRONMENT.folder / "pairs"
    if not (folder / "refused" / "reader").exists():
        command = [ENVIRONMENT.python, ROOT / "tools" / "exports.py", folder]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    rows = []
    for name in ORDER:
        rows.append(row(folder / name))
        print(rows[-1], flush=True)
    head = ("local model", "remote model", "probabilities noticed", "recorded: local agrees", "right: local / remote",
            "cost: local / remote / Probation", "`device` offloads",
            "`device` with `serve` offloads")  # fmt: skip  # several to a line
    table = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *rows]
    refusals = ["| no classifier | what is said |", "|---|---|", *(refusal(folder / "refused" / name) for name in
                ("regression", "detector", "reader"))]  # fmt: skip  # several to a line
    text = PAGE.read_text("utf-8")
    for mark, lines in (("pairs", table), ("refusals", refusals)):
        before, rest = text.split(f"<!-- {mark} -->\n", 1)
        text = "\n".join([f"{before}<!-- {mark} -->\n", *lines, "", f"<!-- end -->{rest.split('<!-- end -->', 1)[1]}"])
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
