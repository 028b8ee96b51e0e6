"""Intents of requests to a voice assistant: SmolLM2-135M-Instruct as local model, Qwen2.5-Coder-1.5B as the remote one.

    python training/intents.py local FOLDER      (and remote; FOLDER is a checkout of GitHub clinc/oos-eval, CC BY 3.0)

The 15 intents of its domain `utility`, 150 requests each; the first two of each are examples in the prompt, all others
are asked, in an order shuffled with a fixed seed. Both models must name one of the intents (a grammar sees to that).
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from language import MODELS, QWEN, SMOLLM2, LanguageModel, language_measures, one_of, option_measures
from recording import Pair, Recorded, checked, main

DATA = "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0"
INTENTS = (
    *("weather", "alarm", "date", "find_phone", "share_location", "timer", "make_call", "calculator", "definition"),
    *("measurement_conversion", "flip_coin", "spelling", "time", "roll_dice", "text"),
)
OPTIONS = [intent.replace("_", " ") for intent in INTENTS]
GRAMMAR = one_of(OPTIONS)
SEED = 0


class Request(NamedTuple):
    """What somebody said, and what they wanted."""

    text: str
    intent: str


def requests(folder: Path) -> tuple[list[Request], list[Request]]:
    """The examples, and the requests to ask about."""
    found = json.loads(checked(folder / "data" / "data_full.json", DATA).read_text())
    rows = [Request(text, name.replace("_", " ")) for part in ("train", "val", "test") for text, name in found[part]]
    by_intent = {option: [row for row in rows if row.intent == option] for option in OPTIONS}
    examples = [by_intent[option][k] for k in range(2) for option in OPTIONS]
    asked = [row for option in OPTIONS for row in by_intent[option][2:]]
    random.Random(SEED).shuffle(asked)
    return examples, asked


def prompts(folder: Path) -> list[str]:
    """What both models are asked: the task, the examples, a request."""
    examples, asked = requests(folder)
    task = f"Sort each request to a voice assistant into one of these intents: {', '.join(OPTIONS)}."
    before = "\n\n".join([task, *(f"Request: {one.text}\nIntent: {one.intent}" for one in examples)])
    return [f"{before}\n\nRequest: {one.text}\nIntent:" for one in asked]


def option(text: str) -> str:
    """The option that a text, perhaps cut, names: itself, else the one that begins so."""
    said = text.strip()
    return said if said in OPTIONS else next(one for one in OPTIONS if one.startswith(said))


def local() -> Callable[[str], Any]:
    """SmolLM2: its answer with all probabilities."""
    model = LanguageModel(SMOLLM2)
    return lambda asked: model.scored(asked, GRAMMAR, most=12)


def remote() -> Callable[[str], Any]:
    """Qwen: its answer, of which the first token is enough, as no two options begin with the same one."""
    model = LanguageModel(QWEN)
    return lambda asked: option(model.text(asked, GRAMMAR, most=1))


def recorded(folder: Path, ours: list[Any], theirs: list[Any]) -> Recorded:
    """The trace's columns."""
    truths = [one.intent for one in requests(folder)[1]]
    columns = {"local": [option(one["text"]) for one in ours], "remote": theirs, "label": truths[: len(ours)]}
    return Recorded(columns, language_measures(ours) | option_measures(ours, OPTIONS), "answer probability")


PAIR = Pair(
    trace="intents-smollm2",
    samples=prompts,
    local=local,
    remote=remote,
    recorded=recorded,
    about={
        "samples": "requests to a voice assistant, 15 intents: domain utility of clinc/oos-eval (Larson et al., 2019)",
        **MODELS,
        "licence": "data CC BY 3.0, models Apache-2.0; the trace holds names of intents, and no request and no weights",
    },
)

if __name__ == "__main__":
    main(PAIR, __doc__ or "")
