"""The tutorial's last step: the device program, at a Triton that serves the model which the page has put in place."""

import re
from pathlib import Path

from tests.docs.tutorial import blocks, by_hand, clone, run
from tools.peers.triton import triton


def test_the_tutorial_ends_at_triton(tmp_path: Path) -> None:
    folder = clone(tmp_path)
    steps = [block.commands for block in blocks()]
    making = [text for text in steps if "own_models" in text or "mkdir" in text]
    assert len(making) == 2
    run(making, folder)
    assert (folder / "models" / "remote" / "config.pbtxt").is_file()
    [command] = [line for line in by_hand() if line.startswith("python ")]
    with triton({"remote": folder / "models" / "remote" / "1" / "model.onnx"}) as peer:
        [printed] = run([command.replace("http://127.0.0.1:8000", peer.url)], folder)
    first, *_, last = printed.splitlines()
    assert "says remote" in first
    found = re.fullmatch(r"5000 samples, (\d+) answered by the remote", last)
    assert found
    assert int(found[1]) > 100
