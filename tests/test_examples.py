"""The examples run, in a process of their own: what they register stays there. The tutorial's test runs the device.

Beside them, what the scripts of recorded pairs share.
"""

import os
import re
import resource
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw

from training import recording

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "own_policy": "regret",
    "own_models": "of the other half right",
    "workers": "2 workers gave ",
    "voice": "Asking it cost 12.6; asking it about every clip would have cost 60.0.",
}
ELSEWHERE = {"device", "chat"}  # want models and servers: tests/docs/test_tutorial.py, tests/interop/test_gateway.py


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.server] if name == "workers" else []) for name in SAYS]
)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert SAYS[name] in done.stdout


def test_the_voice_loop_goes_on_after_a_clip_that_it_cannot_read(tmp_path: Path) -> None:
    made = [str(clip) for clip in runpy.run_path(str(EXAMPLES / "voice.py"))["synthesised"](tmp_path, count=20)]
    (tmp_path / "cut.wav").write_bytes(Path(made[0]).read_bytes()[:50])
    (tmp_path / "slow.wav").write_bytes(Path(made[0]).read_bytes().replace((16_000).to_bytes(4, "little"), bytes(4)))
    names = "\n".join([made[0], "missing.wav", *(str(tmp_path / f"{name}.wav") for name in ("cut", "slow")), *made[1:]])
    command = [sys.executable, str(EXAMPLES / "voice.py"), "-", "--state", str(tmp_path / "state")]
    done = subprocess.run(command, input=names, capture_output=True, text=True, timeout=120, check=False)
    faults, answers = done.stderr.splitlines(), done.stdout.splitlines()
    wanted = ("missing.wav: ", "cut.wav: ", "slow.wav: a clip must have")
    assert [name in fault for name, fault in zip(wanted, faults, strict=True)] == [True] * 3
    heard = [re.fullmatch(r"\d+-(\w+)\.wav: (\w+), says (local|remote); .*", line) for line in answers[:-2]]
    assert sum(found[1] == found[2] for found in heard if found) >= 18  # of 20: the noise may drown a tone
    assert answers[-2].startswith("20 clips, ")


def test_the_voice_loop_names_the_recognisers_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "pocketsphinx.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(EXAMPLES / "voice.py"), "--commands", "on,off", "clip.wav"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120, check=False
    )
    needs = "voice.py: error: --commands needs pocketsphinx and faster-whisper (pip install them): not here"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, needs)


def test_the_voice_loop_ends_with_its_summary_at_ctrl_c() -> None:
    script, program = "import sys, time\nprint(sys.argv[1], flush=True)\ntime.sleep(60)", str(EXAMPLES / "voice.py")
    with (
        subprocess.Popen([sys.executable, "-c", script, "missing.wav"], stdout=subprocess.PIPE) as recorder,
        subprocess.Popen(
            [sys.executable, program, "-"], stdin=recorder.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as loop,
    ):
        assert loop.stderr
        assert b"missing.wav: " in loop.stderr.readline()
        loop.send_signal(signal.SIGINT)
        said, faults = loop.communicate(timeout=60)
        recorder.kill()
    assert (loop.returncode, faults) == (0, b"")
    assert said.startswith(b"0 clips, ")


def test_every_example_is_run_somewhere() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAYS.keys() | ELSEWHERE | {"camera"}


def test_a_recording_loses_nothing_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CACHE", tmp_path)
    kept = tmp_path / "recordings" / "pair.jsonl"
    kept.parent.mkdir()
    kept.write_text('"a"\n"b"\n"cut')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            recording.record("pair", ["a", "b", "c"], lambda: str)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert kept.read_text() == '"a"\n"b"\n'
    recording.record("pair", ["a", "b", "c"], lambda: str)
    assert kept.read_text() == '"a"\n"b"\n"c"\n'


def _camera(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "camera.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _pictures() -> list[Image.Image]:
    """A dark room, and in it a spot: by turns large and bright, small and dim, and none at all."""
    pictures = []
    for number in range(120):
        picture, x = Image.new("L", (160, 120), 20 + number % 2), 20 + number % 30 * 4
        radius, brightness = ((14, 250), (3, 180), (0, 20))[number % 3]
        ImageDraw.Draw(picture).ellipse([x - radius, 60 - radius, x + radius, 60 + radius], fill=brightness)
        pictures.append(picture)
    return pictures


def test_a_camera_asks_the_remote_where_the_local_detector_is_in_doubt(tmp_path: Path) -> None:
    first, *others = _pictures()
    first.save(tmp_path / "room.gif", save_all=True, append_images=others)
    done = _camera(tmp_path / "room.gif", "--draw", tmp_path / "drawn")
    assert done.stderr == ""
    *frames, last = done.stdout.splitlines()
    asked = [" says remote " in line for line in frames]
    large, small, none = (asked[60 + kind :: 3] for kind in range(3))  # of twenty each, when it has learned
    assert sum(small) >= 15
    assert sum(large) <= 5
    assert sum(none) <= 5
    assert last == f"120 frames, {sum(asked)} answered by the remote: {1 - sum(asked) / 120:.0%} of its calls saved"
    assert len(list((tmp_path / "drawn").iterdir())) == 120


def test_a_camera_takes_a_folder_of_frames(tmp_path: Path) -> None:
    assert "there are no frames in it" in _camera(tmp_path).stderr
    for number, picture in enumerate(_pictures()[:3]):
        picture.save(tmp_path / f"{number}.png")
    assert re.search(r"^3 frames, \d answered by the remote", _camera(tmp_path).stdout, re.MULTILINE)


def test_a_camera_goes_on_where_there_are_more_spots_than_an_answer_may_have(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (240, 320), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    done = _camera(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("spot") == 300


def test_a_camera_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "none.mp4").write_bytes(b"no video")
    for name in ("no.gif", "none.mp4"):  # the second with PyAV or without it
        done = _camera(tmp_path / name)
        assert done.returncode == 1
        assert re.fullmatch(rf".*{name}: .+\n", done.stderr)
    assert "no.mp4: there is no such file or folder\n" in _camera(tmp_path / "no.mp4").stderr
    assert "--local and --remote go together" in _camera(tmp_path, "--local", "a.onnx").stderr
    assert "a.onnx: there is no such file" in _camera(tmp_path, "--local", "a.onnx", "--remote", "b.onnx").stderr


def _model(path: Path, side: int, rows: NDArray[np.float32]) -> None:
    """A model that sees the same in every frame of side x side pixels."""
    nodes = [helper.make_node("Constant", [], ["rows"], value=numpy_helper.from_array(rows[None]))]
    pixels = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, side, side])
    found = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [1, *rows.shape])
    graph = helper.make_graph(nodes, "constant", [pixels], [found])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_boxes_of_both_forms_of_yolo_are_the_same(tmp_path: Path) -> None:
    centre, size = np.array([20.0, 44.0]), np.array([16.0, 24.0])  # in the canvas of 64 x 64 pixels
    yolov8 = np.zeros((84, 7), np.float32)  # beside the box, one of the same object, and one that is hardly sure
    yolov8[:4, 0], yolov8[5, 0] = [*centre, *size], 0.9
    yolov8[:4, 3], yolov8[5, 3] = [*centre + 1, *size], 0.6
    yolov8[:4, 5], yolov8[5, 5] = [50, 50, 10, 10], 0.2
    _model(tmp_path / "v8.onnx", 64, np.hstack((yolov8, np.zeros((84, 93), np.float32))))
    yolox = np.zeros((64 + 16 + 4, 7), np.float32)  # two classes
    cell = 64 + 2 * 4 + 1  # of the grid of 16 pixels, row 2 and column 1
    yolox[cell] = [*(centre / 16 - [1, 2]), *np.log(size / 16), 0.9, 0.0, 1.0]
    _model(tmp_path / "x.onnx", 64, yolox)
    detector, frame = runpy.run_path(str(EXAMPLES / "camera.py"))["Yolo"], Image.new("RGB", (128, 96))
    wanted = [{"box": [24.0, 64.0, 56.0, 96.0], "label": "dog", "score": 0.9}]  # twice as large, and within the frame
    assert detector(tmp_path / "v8.onnx", ["cat", "dog", *"abcdefgh"])(frame) == wanted
    assert detector(tmp_path / "x.onnx", ["cat", "dog"])(frame) == wanted
    assert detector(tmp_path / "x.onnx")(frame) == [wanted[0] | {"label": 1}]
