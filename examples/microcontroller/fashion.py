"""A Cortex-M0 gates a real stream: Hinge's int8 model looks at Fashion-MNIST, an emulated micro:bit decides.

The board runs `hinge.h` under QEMU. The host sends it each image's largest softmax output as one signed byte, as int8
models give it; the board answers whether to offload, and after an offload hears whether local agreed with remote. Needs
gcc-arm-none-eabi and qemu-system-arm. From the root of the repository:

    python -m examples.microcontroller.fashion
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hinge import OnnxModel, UniformBins, fashion, load_trace, max_softmax
from hinge.embedded.twin import ProbationTwin
from hinge.traces import Trace
from tools.boards.targets import M0, defines

BINS, OFFLOAD_COST = 16, 0.5


def quantised_stream() -> tuple[NDArray[np.int8], Trace]:
    """The local model's confidence in its answer to each image, as int8 softmax outputs are; and the trace of it."""
    images, labels = fashion.labelled_images()
    scores = OnnxModel(fashion.local_model()).many(images)
    steps = np.clip(np.round(256 * max_softmax(scores)), 0, 255)
    trace = Trace(steps / 256, scores.argmax(axis=1), load_trace("fashion").remote, label=labels)
    return (steps - 128).astype(np.int8), trace


def board_decisions(confidences: NDArray[np.int8], agreed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What the board decides, asked sample by sample."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "gate.elf")
        M0.build("gate.c", program, ("-Os", *defines(ProbationTwin(BINS, OFFLOAD_COST).settings)))
        with subprocess.Popen(M0.command(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as board:
            return np.array([_asked(board, *sample) for sample in zip(confidences, agreed, strict=True)])


def _asked(board: "subprocess.Popen[bytes]", confidence: np.int8, agreed: np.bool_) -> bool:
    if board.stdin is None or board.stdout is None:
        raise RuntimeError("the board has no pipes")
    board.stdin.write(confidence.tobytes())
    offload = board.stdout.read(1) == b"\x01"
    if offload:
        board.stdin.write(agreed.tobytes())
    return offload


def main() -> None:
    """Compare the board with the twin, decision for decision."""
    confidences, trace = quantised_stream()
    twin, expected = ProbationTwin(BINS, OFFLOAD_COST), list[bool]()
    for bin, agreed in zip(UniformBins(BINS).bin_many(trace.confidence), trace.agreed, strict=True):
        expected.append(twin.decide(int(bin)))
        if expected[-1]:
            twin.learn(int(bin), bool(agreed))
    decided = board_decisions(confidences, trace.agreed)
    print(f"{len(decided)} samples, {decided.sum()} offloaded by the board")
    print(f"{(decided == expected).sum()} decisions equal those of the twin")


if __name__ == "__main__":
    main()
