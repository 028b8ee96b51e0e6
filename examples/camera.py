"""A camera and two detectors: the small one looks at every frame, the large one at those that are in doubt.

    python examples/camera.py VIDEO                                              bright spots, at two resolutions
    python examples/camera.py VIDEO --local yolox_nano.onnx --remote yolov8n.onnx    objects, by two models in ONNX
    python examples/camera.py VIDEO --draw FOLDER                                and the frames, with who found what

VIDEO is a folder of frames or an animated GIF, for which Pillow will do; or a file or stream, rtsp://… say, which PyAV
reads (`pip install av`). The models are of the YOLO family. Here both run in one process; a remote detector is any
function from frame to boxes, or `hinge.OpenInference`.
"""

import argparse
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageSequence

from hinge import Answer, Device, Gate
from hinge.tasks import Detection
from hinge.tasks.images import MAX_BOXES, iou

Boxes = list[dict[str, Any]]
Detector = Callable[[Image.Image], Boxes]

LEAST_SCORE = 0.25  # a detector gives no box below it; which are kept, the task says
SAME = 0.45  # boxes of one label that overlap by more are of one object


class Spots:
    """Bright spots, after the frame was made smaller by `factor`: as many times fewer pixels, squared, to look at."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, frame: Image.Image) -> Boxes:
        pixels = np.asarray(frame.convert("L").reduce(self.factor))
        left = {(int(y), int(x)) for y, x in np.argwhere(pixels >= 128)}
        found: Boxes = []
        while left:
            spot, edge = [], [left.pop()]
            while edge:
                y, x = edge.pop()
                spot.append((y, x))
                near = left & {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)}
                left -= near
                edge += near
            rows, columns = zip(*spot, strict=True)
            box = [min(columns), min(rows), max(columns) + 1, max(rows) + 1]
            score = max(int(pixels[place]) for place in spot) / 255
            found.append({"box": [self.factor * side for side in box], "label": "spot", "score": score})
        return sorted(found, key=lambda box: -box["score"])[:MAX_BOXES]


class Yolo:
    """A model of the YOLO family in ONNX. A row of what it gives is a box; by its form it is

        YOLOX               centre and log size in cells of the grids of 8, 16 and 32 pixels; objectness; classes
        YOLOv8 and later    centre and size in pixels; classes; rows and columns exchanged

    `names` are those of the classes; without them, and if the file has none, a label is a number.
    """

    def __init__(self, path: str | Path, names: Sequence[str] = (), threads: int = 1) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        self._session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (given,), (found,) = self._session.get_inputs(), self._session.get_outputs()
        self._input, self._side = given.name, given.shape[-1]
        self._yolox = found.shape[1] > found.shape[2]
        listed = literal_eval(self._session.get_modelmeta().custom_metadata_map.get("names", "{}"))
        self.names = [*names] or [*listed.values()]
        corners = [(x, y, step) for step in (8, 16, 32) for y, x in np.ndindex(self._side // step, self._side // step)]
        self._corners = np.array(corners, np.float32)

    def __call__(self, frame: Image.Image) -> Boxes:
        scale = self._side / max(frame.size)
        canvas = Image.new("RGB", (self._side, self._side), (114, 114, 114))
        canvas.paste(frame.resize((round(frame.width * scale), round(frame.height * scale)), Image.Resampling.BILINEAR))
        pixels = np.asarray(canvas, np.float32).transpose(2, 0, 1)[None]
        (rows,) = self._session.run(None, {self._input: pixels[:, ::-1] if self._yolox else pixels / 255})[0]
        if self._yolox:
            corner, step = self._corners[:, :2], self._corners[:, 2:]
            centre, size = (rows[:, :2] + corner) * step, np.exp(rows[:, 2:4]) * step
            scores = rows[:, 4:5] * rows[:, 5:]
        else:
            centre, size, scores = np.split(rows.T, [2, 4], axis=1)
        edges = np.clip(np.hstack((centre - size / 2, centre + size / 2)) / scale, 0, frame.size * 2)
        sure = np.flatnonzero(scores.max(axis=1) >= LEAST_SCORE)
        return _apart([self._box(edges[k], scores[k]) for k in sure])

    def _box(self, edges: Any, scores: Any) -> dict[str, Any]:
        best = int(scores.argmax())
        label, score = self.names[best] if self.names else best, round(float(scores[best]), 4)
        return {"box": [round(float(side), 1) for side in edges], "label": label, "score": score}


def _apart(boxes: Boxes) -> Boxes:
    """One box for each object, the one with the highest score."""
    kept: Boxes = []
    for one in sorted(boxes, key=lambda box: -box["score"]):
        if not any(one["label"] == box["label"] and iou(one["box"], box["box"]) > SAME for box in kept):
            kept.append(one)
    return kept[:MAX_BOXES]


def frames(source: str) -> Iterator[Image.Image]:
    """The frames of a folder, an animated GIF, a video or a stream."""
    try:
        yield from _frames(source)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{source}: {error}") from None


def _frames(source: str) -> Iterator[Image.Image]:
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in (".png", ".jpg", ".jpeg"))
        yield from (Image.open(file).convert("RGB") for file in files)
    elif path.suffix.lower() == ".gif":
        with Image.open(path) as pictures:
            yield from (picture.convert("RGB") for picture in ImageSequence.Iterator(pictures))
    elif "://" not in source and not path.exists():
        raise FileNotFoundError("there is no such file or folder")
    else:
        try:
            import av
        except ImportError:
            said = "needs PyAV (pip install av); a folder of frames or an animated GIF does not"
            raise SystemExit(f"{source}: a video {said}") from None
        with av.open(source) as video:
            yield from (frame.to_image() for frame in video.decode(video=0))


def draw(frame: Image.Image, answer: Answer, path: Path) -> None:
    """The frame with the boxes: green are the local detector's, red the remote's."""
    pencil, colour = ImageDraw.Draw(frame), "red" if answer.source == "remote" else "lime"
    for box in answer.label:
        pencil.rectangle(box["box"], outline=colour, width=2)
        pencil.text((box["box"][0] + 3, box["box"][1] + 1), str(box["label"]), fill=colour)
    pencil.text((3, 3), answer.source, fill=colour)
    frame.save(path)


def watch(device: Device, number: int, frame: Image.Image, folder: Path | None) -> None:
    """Look at a frame; say who found what in it, and draw it."""
    answer = device.infer(frame)
    labels = ", ".join(str(box["label"]) for box in answer.label) or "nothing"
    compared = "" if answer.agreed is None else f", agreement {answer.agreed:.2f}"
    print(f"{number}: {labels}, says {answer.source} (confidence {answer.confidence:.2f}{compared})", flush=True)
    if folder:
        draw(frame, answer, folder / f"{number:06}.png")


def main() -> None:
    """Watch the video."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("video", help="a folder of frames, an animated GIF, a video or a stream")
    parser.add_argument("--local", help="a YOLO model in ONNX")
    parser.add_argument("--remote", help="a larger one, of the same classes")
    parser.add_argument("--offload-cost", type=float, default=0.3, help="default: %(default)s")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="where to put the frames with their boxes")
    given = parser.parse_args()
    if (given.local is None) != (given.remote is None):
        parser.error("--local and --remote go together: without them bright spots are looked for")
    local: Detector = Spots(4)
    remote: Detector = Spots(1)
    if given.local:
        for path in (given.local, given.remote):
            if not Path(path).is_file():
                parser.error(f"{path}: there is no such file")
        remote = large = Yolo(given.remote)
        local = Yolo(given.local, large.names)
    if given.draw:
        given.draw.mkdir(parents=True, exist_ok=True)
    with Device(local, remote, Gate(offload_cost=given.offload_cost), task=Detection(), deadline_s=5.0) as device:
        try:
            for number, frame in enumerate(frames(given.video)):
                watch(device, number, frame, given.draw)
        except KeyboardInterrupt:  # a stream has no end
            print()
        status = device.status
    if not status.samples:
        raise SystemExit(f"{given.video}: there are no frames in it")
    asked, saved = status.answered_by_remote, 1 - status.answered_by_remote / status.samples
    print(f"{status.samples} frames, {asked} answered by the remote: {saved:.0%} of its calls saved")


if __name__ == "__main__":
    main()
