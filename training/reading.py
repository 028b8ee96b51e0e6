"""Lines of text: Tesseract as local model, PP-OCRv6 (small, by rapidocr) as the remote one.

    python training/reading.py local FOLDER      (and remote; FOLDER is a checkout of openai/grade-school-math)

No photos: sentences of its problems are cut into lines and drawn in the DejaVu fonts of the system, each in another
size, grey, blur and noise, all drawn from a fixed seed. A page is twenty such lines, read one by one.
"""

import json
import random
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from recording import LEAST, Pair, Recorded, checked, main

from hinge.tasks import OCR

DATA = "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"
FONTS = ("Sans", "Sans-Bold", "Sans-Oblique", "SansMono", "SansCondensed", "Serif", "Serif-Bold", "Serif-Italic")
FONT_FOLDER = Path("/usr/share/fonts/truetype/dejavu")
SEED, LINES, PAGE = 0, 3000, 20
LONGEST = 40  # characters of a line


class Line(NamedTuple):
    """What is written, and how it looks."""

    text: str
    image: Image.Image


def lines(folder: Path) -> list[str]:
    """The texts."""
    path = checked(folder / "grade_school_math" / "data" / "train.jsonl", DATA)
    problems = [json.loads(line)["question"] for line in path.read_text().splitlines()]
    found = [line for problem in problems for line in textwrap.wrap(problem, LONGEST) if line.isascii()]
    return random.Random(SEED).sample(found, LINES)


def pages(folder: Path) -> list[list[Line]]:
    """The samples, twenty at a time."""
    drawn = [Line(text, draw(text, number)) for number, text in enumerate(lines(folder))]
    return [drawn[first : first + PAGE] for first in range(0, LINES, PAGE)]


def draw(text: str, number: int) -> Image.Image:
    """The image of a line."""
    chance = np.random.default_rng([SEED, number])
    font = ImageFont.truetype(FONT_FOLDER / f"DejaVu{chance.choice(FONTS)}.ttf", int(chance.integers(14, 24)))
    _, _, right, bottom = font.getbbox(text)
    image = Image.new("L", (int(right) + 16, int(bottom) + 12), 255)
    ImageDraw.Draw(image).text((8, 6), text, font=font, fill=int(chance.integers(0, 120)))
    blurred = image.filter(ImageFilter.GaussianBlur(chance.uniform(0, 1.8)))
    noisy = np.asarray(blurred, np.float64) + chance.normal(0, chance.uniform(0, 45), (image.height, image.width))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def local() -> Callable[[list[Line]], Any]:
    """Tesseract: the words of every line, each with its confidence."""
    return tesseract


def tesseract(page: list[Line]) -> list[dict[str, Any]]:
    """What Tesseract reads in every line of a page; one process reads all of them."""
    with TemporaryDirectory() as folder:
        names = [str(Path(folder) / f"{number}.png") for number in range(len(page))]
        for name, line in zip(names, page, strict=True):
            line.image.save(name)
        names_file = Path(folder) / "names"
        names_file.write_text("\n".join(names))
        command = ["tesseract", str(names_file), "-", "--psm", "7", "-l", "eng", "tsv"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"OMP_THREAD_LIMIT": "1"})
    found: list[dict[str, Any]] = [{"text": line.text, "words": [], "scores": []} for line in page]
    for row in done.stdout.splitlines()[1:]:
        cells = row.split("\t")
        if cells[0] == "5":  # a word
            found[int(cells[1]) - 1]["words"].append(cells[11])
            found[int(cells[1]) - 1]["scores"].append(round(float(cells[10]) / 100, 4))
    return found


def remote() -> Callable[[list[Line]], Any]:
    """PP-OCRv6: the text of every line and its score."""
    from rapidocr import RapidOCR

    one_thread = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    engine = RapidOCR(params={"Global.log_level": "critical", **one_thread})

    def read(line: Line) -> dict[str, Any]:
        found: Any = engine(np.asarray(line.image.convert("RGB")), use_det=False, use_cls=False, use_rec=True)
        return {"text": "".join(found.txts or ()), "score": round(float(min(found.scores or (0,))), 4)}

    return lambda page: [read(line) for line in page]


def recorded(folder: Path, ours: list[Any], theirs: list[Any]) -> Recorded:
    """The trace's columns: how far the two texts agree, and how far each is what was written."""
    read, far = ([line for page in answers for line in page] for answers in (ours, theirs))
    local_texts, remote_texts = [" ".join(line["words"]) for line in read], [line["text"] for line in far]
    texts, agreement = [line["text"] for line in read], OCR().agreement
    columns = {
        "agreed": [*map(agreement, local_texts, remote_texts)],
        "local_right": [*map(agreement, local_texts, texts)],
        "remote_right": [*map(agreement, remote_texts, texts)],
    }
    scores = [np.array(line["scores"] or [0.0]) for line in read]
    letters = [np.array([*map(len, line["words"])] or [1]) for line in read]
    measures = {
        "mean word score": np.array([found.mean() for found in scores]),
        "mean character score": np.array([np.average(a, weights=b) for a, b in zip(scores, letters, strict=True)]),
        "least word score": np.array([found.min() for found in scores]),
        "words scored above 0.5": np.array([(found > 0.5).mean() for found in scores]),
    }
    least = np.array([LEAST if line["words"] else 0.0 for line in read])  # a word may have the score 0
    return Recorded(columns, {name: np.maximum(found, least) for name, found in measures.items()}, "mean word score")


PAIR = Pair(
    trace="reading-tesseract",
    samples=pages,
    local=local,
    remote=remote,
    recorded=recorded,
    about={
        "samples": "lines of openai/grade-school-math (Cobbe et al., 2021), drawn with blur and noise",
        "local": "Tesseract 5.3.0, English",
        "remote": "PP-OCRv6 (small), by rapidocr 3.10.0",
        "licence": "data MIT, models Apache-2.0; the trace holds figures, and no text and no weights",
    },
)

if __name__ == "__main__":
    main(PAIR, __doc__ or "")
