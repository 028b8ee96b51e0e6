"""Short sums: SmolLM2-135M-Instruct as local model, Qwen2.5-Coder-1.5B-Instruct as the remote one.

    python training/arithmetic.py local FOLDER      (and remote; FOLDER is a checkout of openai/grade-school-math)

The problems themselves are beyond both models without reasoning. What is asked are the steps that their solutions are
annotated with, `<<48/2=24>>`: two whole numbers up to 300, one operation, a whole result; each once, of 3 008 drawn
with a fixed seed from all in the training part (prompts were tried on others). The first eight are examples in the
prompt. The answer is a number (a grammar sees to that).
"""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from language import MODELS, QWEN, SMOLLM2, LanguageModel, language_measures
from recording import Pair, Recorded, checked, main

DATA = "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"
STEP = re.compile(r"<<(\d+)([-+*/])(\d+)=(\d+)>>")
GRAMMAR = 'root ::= [0-9]+ "\\n"'
SEED, EXAMPLES, DRAWN, LARGEST = 0, 8, 3008, 300


class Sum(NamedTuple):
    """What is asked, and the result."""

    asked: str
    result: str


def sums(folder: Path) -> list[Sum]:
    """Examples first, then those to ask."""
    path = checked(folder / "grade_school_math" / "data" / "train.jsonl", DATA)
    solutions = (json.loads(line)["answer"] for line in path.read_text().splitlines())
    found = {Sum(f"{a} {sign} {b}", result) for text in solutions for a, sign, b, result in STEP.findall(text)}
    drawn = random.Random(SEED).sample(sorted(found), DRAWN)
    return [one for one in drawn if max(map(int, one.asked.split()[::2])) <= LARGEST]


def prompts(folder: Path) -> list[str]:
    """What both models are asked: the examples and a sum."""
    every = sums(folder)
    before = "".join(f"{one.asked} = {one.result}\n" for one in every[:EXAMPLES])
    return [f"{before}{one.asked} = " for one in every[EXAMPLES:]]


def local() -> Callable[[str], Any]:
    """SmolLM2: its answer with all probabilities."""
    model = LanguageModel(SMOLLM2)
    return lambda asked: model.scored(asked, GRAMMAR, most=8)


def remote() -> Callable[[str], Any]:
    """Qwen: its answer."""
    model = LanguageModel(QWEN)
    return lambda asked: model.text(asked, GRAMMAR, most=8).strip()


def recorded(folder: Path, ours: list[Any], theirs: list[Any]) -> Recorded:
    """The trace's columns; numbers are compared as numbers."""
    truths = [int(one.result) for one in sums(folder)[EXAMPLES:]]
    columns = {
        "local": [int(one["text"].strip() or -1) for one in ours],
        "remote": [int(text or -1) for text in theirs],
        "label": truths[: len(ours)],
    }
    return Recorded(columns, language_measures(ours), "mean token probability")


PAIR = Pair(
    trace="arithmetic-smollm2",
    samples=prompts,
    local=local,
    remote=remote,
    recorded=recorded,
    about={
        "samples": "sums of two numbers up to 300: steps of solutions in openai/grade-school-math (Cobbe et al., 2021)",
        **MODELS,
        "licence": "data MIT, models Apache-2.0; the trace holds results, and no problem and no weights",
    },
)

if __name__ == "__main__":
    main(PAIR, __doc__ or "")
