"""How large the source tree is, and how many calls, files and changes of file one sample passes through.

    python tools/tree.py                                          # this tree
    python tools/tree.py --before DIR --python VENV/bin/python --markdown benchmarks/results/tree.md
    python tools/tree.py --show http                              # the calls of one offload over HTTP, file by file

A change of file is a call of a function in src/hinge whose predecessor, on any thread, was in another file. Each figure
is the median over repeated samples, counted with `sys.setprofile` in a process of its own, which imports `hinge` from
the tree it measures and uses only names that both trees have. Calls into libraries are not counted. `--python` is an
interpreter with the packages that the other tree needs, as its constraints.txt names them.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
WARM, SAMPLES = 50, 400  # samples before counting begins, and in all
REQUESTS = 30
HORIZON = 100_000  # of a simulated run: shorter ones may be played as Python
READY_S = 60.0


class Passed(NamedTuple):
    """What one sample passed through."""

    calls: int
    files: int
    changes: int


class Size(NamedTuple):
    """A source tree in numbers."""

    files: int
    lines: int
    per_1000: float
    median: float
    p90: float


class Recorder:
    """Records the file of each call of a function in the package, in all threads that start after it."""

    def __init__(self, package: Path) -> None:
        self._package, self._calls = str(package), list[tuple[str, str]]()
        self.last: list[tuple[str, str]] = []
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (name := frame.f_code.co_filename).startswith(self._package):
            self._calls.append((name, frame.f_code.co_name))

    def clear(self) -> None:
        """Forget what was recorded."""
        self._calls.clear()

    def passed(self) -> Passed:
        """What was recorded since `clear`."""
        self.last = self._calls[:]
        files = [file for file, _ in self.last]
        return Passed(len(files), len(set(files)), sum(a != b for a, b in itertools.pairwise(files)))

    def shown(self) -> str:
        """The last calls that were counted, a line for each stay in a file."""
        stays = itertools.groupby(self.last, key=lambda call: call[0])
        return "\n".join(
            f"{file[len(self._package) + 1 :]}: {', '.join(name for _, name in stay)}" for file, stay in stays
        )


def size(tree: Path) -> Size:
    """Files and lines of a tree's package."""
    lines = sorted(len(path.read_text("utf-8").splitlines()) for path in (tree / "src" / "hinge").rglob("*.py"))
    p90 = statistics.quantiles(lines, n=10, method="inclusive")[-1]
    return Size(len(lines), sum(lines), 1000 * len(lines) / sum(lines), statistics.median(lines), p90)


def _device(remote: Any, recorder: Recorder, offloaded: bool) -> Passed:
    """The median of a device's samples that were offloaded, or of those that were accepted."""
    from hinge import Device, Isotonic, OnnxModel, fashion

    images, _ = fashion.labelled_images()
    found = []
    policy = Isotonic(bins=16, offload_cost=0.5)
    with Device(local=OnnxModel(fashion.local_model()), remote=remote, policy=policy, deadline_s=10) as device:
        for number, image in enumerate(images[:SAMPLES]):
            recorder.clear()
            answer = device.infer(image)
            if number >= WARM and answer.offloaded == offloaded and (answer.source == "remote") == offloaded:
                found.append(recorder.passed())
    return _median(found)


def _true_label() -> Callable[[Any], int]:
    """A remote that knows, and that passes through nothing of ours."""
    from hinge import fashion

    images, labels = fashion.labelled_images()
    known = {image.tobytes(): int(label) for image, label in zip(images[:SAMPLES], labels, strict=False)}
    return lambda image: known[image.tobytes()]


def accepted(recorder: Recorder) -> Passed:
    """One sample whose local answer is accepted."""
    return _device(_true_label(), recorder, offloaded=False)


def function_offload(recorder: Recorder) -> Passed:
    """One sample offloaded to a function."""
    return _device(_true_label(), recorder, offloaded=True)


def http_offload(recorder: Recorder) -> Passed:
    """One sample offloaded over HTTP on a warm connection; the server is another process."""
    from hinge import OpenInference

    with _served() as port:
        return _device(OpenInference(f"http://{HOST}:{port}", "fashion"), recorder, offloaded=True)


def served_request(recorder: Recorder) -> Passed:
    """One inference request, with a binary tensor, in `hinge serve` as the command runs it."""
    from hinge.cli.app import run

    port, found = _free_port(), list[Passed]()
    body = json.dumps({"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 28, 28],
                                   "parameters": {"binary_data_size": 784}}],
                       "outputs": [{"name": "scores", "parameters": {"binary_data": True}}]}
                      ).encode()  # fmt: skip  # several to a line
    headers = {"Inference-Header-Content-Length": str(len(body)), "Content-Type": "application/octet-stream"}

    def ask() -> None:
        sys.setprofile(None)  # the client is no part of it
        _await(port)
        connection = http.client.HTTPConnection(HOST, port, timeout=10)
        for number in range(REQUESTS):
            time.sleep(0.05)  # what follows an answer, such as a log line, is over
            recorder.clear()
            connection.request("POST", "/v2/models/fashion/infer", body + bytes(784), headers)
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                os.write(2, content)
                os._exit(1)
            time.sleep(0.05)
            if number >= REQUESTS // 2:
                found.append(recorder.passed())
        print(recorder.shown(), json.dumps(_median(found)), sep="\n", file=sys.__stdout__, flush=True)
        os._exit(0)  # the server would serve for ever

    threading.Thread(target=ask, daemon=True).start()
    with contextlib.redirect_stdout(sys.stderr):
        run(["serve", "fashion", "--port", str(port), "--log-level", "warning"])
    raise SystemExit("the server ended")


def simulated_run(recorder: Recorder) -> Passed:
    """One run of one policy on a synthetic source, when its loop is compiled already."""
    from hinge import HILCB, simulate

    try:
        from hinge.simulation.sources import ConstantPrice, Synthetic
    except ImportError:  # the tree before
        from hinge.sources import ConstantPrice, Synthetic  # type: ignore[import-not-found, no-redef, unused-ignore]  # old
    source = Synthetic(agreement=[0.1, 0.6, 0.9], costs=ConstantPrice(0.5))
    found = []
    for _ in range(5):
        recorder.clear()
        simulate([HILCB(bins=3, offload_cost=0.5)], source, horizon=HORIZON, runs=1)
        found.append(recorder.passed())
    return _median(found[2:])


COUNTED: dict[str, tuple[str, Callable[[Recorder], Passed]]] = {
    "accepted": ("an accepted sample", accepted),
    "function": ("an offload to a function", function_offload),
    "http": ("a warm offload over HTTP", http_offload),
    "served": ("a request in the server", served_request),
    "simulated": ("a simulated run", simulated_run),
}


def _median(found: list[Passed]) -> Passed:
    if not found:
        raise SystemExit("no sample of this kind")
    return Passed(*(int(statistics.median(column)) for column in zip(*found, strict=True)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _await(port: int) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v2/models/fashion/ready")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.1)
    raise SystemExit(f"no server at port {port} after {READY_S:.0f} s")


@contextlib.contextmanager
def _served() -> Iterator[int]:
    """`hinge serve` in a process of its own, from the tree of this one."""
    port = _free_port()
    command = [sys.executable, "-m", "hinge", "serve", "fashion", "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _await(port)
            yield port
        finally:
            process.terminate()


def count(tree: Path, python: str, kind: str) -> Passed:
    """What one sample of a kind passes through in a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [python, str(Path(__file__).resolve()), "--show", kind]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}, {kind}: {done.stderr[-2000:]}")
    return Passed(*json.loads(done.stdout.splitlines()[-1]))


def rows(tree: Path, python: str = sys.executable) -> dict[str, str]:
    """All figures of a tree, by what they are."""
    found = size(tree)
    printed = {
        "files": f"{found.files}",
        "lines": f"{found.lines}",
        "files per 1 000 lines": f"{found.per_1000:.1f}",
        "lines per file, median / 90th percentile": f"{found.median:.0f} / {found.p90:.0f}",
    }
    for kind, (what, _) in COUNTED.items():
        printed[f"{what}: calls / files / changes of file"] = " / ".join(map(str, count(tree, python, kind)))
    return printed


GOALS = {  # the last number of a row may be at most this
    "files": 120,
    "lines": 20_000,
    "a warm offload over HTTP: calls / files / changes of file": 50,
    "a request in the server: calls / files / changes of file": 30,
}


def _verdict(what: str, figure: str) -> str:
    if what not in GOALS:
        return ""
    met = int(figure.rpartition("/")[2]) <= GOALS[what]
    return f"≤ {GOALS[what]}: {'MET' if met else 'MISSED'}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="another tree, to stand beside this one")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that the other tree runs with")
    parser.add_argument("--markdown", type=Path, help="also write the table there")
    parser.add_argument("--show", choices=COUNTED, help="only show the calls of one sample, file by file")
    given = parser.parse_args()
    if given.show:
        import hinge

        recorder = Recorder(Path(hinge.__file__).parent)
        passed = COUNTED[given.show][1](recorder)
        print(recorder.shown(), json.dumps(passed), sep="\n")
        return
    after = rows(ROOT)
    before = rows(given.before.resolve(), given.python) if given.before else None
    lines = [
        f"| | {'before | after' if before else 'this tree'} | goal |",
        "|---|" + "--:|" * (2 if before else 1) + "---|",
    ]
    for what, figure in after.items():
        figures = f"{before[what]} | {figure}" if before else figure
        lines.append(f"| {what} | {figures} | {_verdict(what, figure)} |")
    print("\n".join(lines))
    if given.markdown:
        head = "# The source tree, before and after\n\nWritten by `tools/tree.py`, which says what is counted.\n\n"
        given.markdown.write_text(head + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
