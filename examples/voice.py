"""A voice command loop: a small recogniser on the device, and a large one for what it is not sure of.

    python examples/voice.py                                                # 300 keys of a telephone, with noise
    python examples/voice.py CLIP.wav FOLDER --commands "lights on,lights off" --whisper base
    RECORDER | python examples/voice.py - --commands "lights on,lights off" --state state

Clips are WAV files of 16 bits and one channel; `-` reads their names from standard input, one to a line, as they come.
With `--commands`, the local recogniser is PocketSphinx with a grammar of these, and the remote one Whisper, of the size
or in the folder that `--whisper` names (`pip install pocketsphinx faster-whisper`); your server takes its place.
Without, the commands are the keys of a telephone, two tones each, and both recognisers measure the energy of these
tones: the local one in the first 15 ms of a clip, the remote one in all of it.
"""

import argparse
import sys
import wave
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge import Device, Gate
from hinge.tasks import Transcription

Sound = NDArray[np.float64]
Recogniser = Callable[[Path], dict[str, Any]]  # a text, and how sure it is of it
RATE = 16_000
TONES = {"one": (697, 1209), "two": (697, 1336), "three": (697, 1477), "four": (770, 1209), "five": (770, 1336)}
TONES |= {"six": (770, 1477), "seven": (852, 1209), "eight": (852, 1336), "nine": (852, 1477), "zero": (941, 1336)}


def sound(clip: Path) -> Sound:
    """The samples of a clip, from -1 to 1, at 16 kHz: interpolated, where it has fewer."""
    with wave.open(str(clip)) as stream:
        if stream.getsampwidth() != 2 or stream.getnchannels() != 1 or stream.getframerate() < 4000:
            raise ValueError("a clip must have 16 bits, one channel and 4 kHz at least")
        heard = np.frombuffer(stream.readframes(stream.getnframes()), "<i2") / 32768
        length = round(len(heard) * RATE / stream.getframerate())
    if length < RATE // 100:
        raise ValueError("a clip must have a hundredth of a second at least")
    resampled: Sound = np.fft.irfft(np.fft.rfft(heard), length) * length / len(heard)
    return resampled


# -- recognisers ------------------------------------------------------------------------------------------------------


def likeliest(likelihoods: dict[str, float]) -> dict[str, Any]:
    """The text that is likeliest, and its share of all likelihoods as confidence; no text, where nothing is likely."""
    total = sum(likelihoods.values())
    if not total:
        return {"text": ""}
    best = max(likelihoods, key=lambda text: likelihoods[text])
    return {"text": best, "confidence": float(likelihoods[best] / total)}


def keypad(listens_s: float) -> Recogniser:
    """The key whose two tones have the largest share of the energy of a clip's beginning."""

    def key(clip: Path) -> dict[str, Any]:
        heard = sound(clip)[: round(listens_s * RATE)]
        times = np.arange(len(heard)) / RATE
        energy = {tone: abs(np.exp(-2j * np.pi * tone * times) @ heard) ** 2 for key in TONES.values() for tone in key}
        return likeliest({word: energy[low] * energy[high] for word, (low, high) in TONES.items()})

    return key


def pocketsphinx(commands: list[str]) -> Recogniser:
    """PocketSphinx, which hears one of the commands, or nothing."""
    from pocketsphinx import Decoder

    decoder = Decoder(lm=None, loglevel="FATAL", cmn="batch")
    decoder.add_jsgf_string("commands", f"#JSGF V1.0; grammar commands; public <command> = {' | '.join(commands)};")
    decoder.activate_search("commands")

    def listen(clip: Path) -> dict[str, Any]:
        heard = np.pad(sound(clip), RATE // 5)
        heard += np.random.default_rng(0).normal(0, 1e-4, len(heard))  # digital silence is unlike any it has learned
        decoder.start_utt()
        decoder.process_raw((heard * 32767).clip(-32768, 32767).astype(np.int16).tobytes(), full_utt=True)
        decoder.end_utt()
        likely: dict[str, float] = {}
        for path in islice(decoder.nbest(), 100):  # None ends them
            if path is None:
                break
            likely[path.hypstr] = max(path.score, likely.get(path.hypstr, 0.0))
        return likeliest(likely)

    return listen


def whisper(size: str, commands: list[str]) -> Recogniser:
    """Whisper, and of its text the command that is closest, if one is close."""
    from faster_whisper import WhisperModel

    model = WhisperModel(size, device="cpu", compute_type="int8")
    options = {"language": "en", "beam_size": 1, "temperature": 0.0, "max_new_tokens": 20}

    def listen(clip: Path) -> dict[str, Any]:
        parts, _ = model.transcribe(np.float32(sound(clip)), **options)
        said = "".join(part.text for part in parts).strip(" .!?").lower()
        return {"text": next(iter(get_close_matches(said, commands, 1)), said)}

    return listen


# -- clips ------------------------------------------------------------------------------------------------------------


def synthesised(folder: Path, count: int = 300) -> Iterator[Path]:
    """Keys of a telephone for a tenth of a second, each in as much noise as chance will have it."""
    chance = np.random.default_rng(0)
    times = np.arange(RATE // 10) / RATE
    for number in range(count):
        word = str(chance.choice(list(TONES)))
        tones = sum(np.sin(2 * np.pi * (hertz * times + chance.random())) for hertz in TONES[word])
        heard = tones + chance.normal(0, chance.uniform(0, 4), len(times))
        clip = folder / f"{number:03}-{word}.wav"
        with wave.open(str(clip), "wb") as stream:
            stream.setnchannels(1)
            stream.setsampwidth(2)
            stream.setframerate(RATE)
            stream.writeframes((heard / 20 * 32767).clip(-32768, 32767).astype("<i2").tobytes())
        yield clip


def clips(names: Iterable[str]) -> Iterator[Path]:
    """The clips of these names: files, the `.wav` files of folders, and what standard input names."""
    for name in names:
        path = Path(name)
        if name == "-":
            yield from clips(line.strip() for line in sys.stdin if line.strip())
        elif path.is_dir():
            yield from sorted(path.glob("*.wav"))
        else:
            yield path


def answer(device: Device, clip: Path) -> None:
    """Say what was heard in a clip, and by whom."""
    try:
        heard = device.infer(clip)
    except (OSError, EOFError, ValueError, wave.Error) as error:
        print(f"{clip}: {error}", file=sys.stderr)
        return
    said = f"{heard.label or '(nothing)'}, says {heard.source}; local is {heard.confidence:.0%} sure"
    failed = f"; the remote failed: {heard.fault}" if heard.fault else ""
    print(f"{clip.name}: {said}{failed}", flush=True)


def main() -> None:
    """Answer clip after clip, then say what was saved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clips", nargs="*", help="WAV files, folders of them, or - for names on standard input")
    parser.add_argument("--commands", type=lambda text: text.lower().split(","), help="what may be said, with commas")
    parser.add_argument("--whisper", default="base", metavar="SIZE", help="of the remote recogniser, or its folder")
    parser.add_argument("--cost", type=float, default=0.2, help="of asking the remote, where a wrong command's is 1")
    parser.add_argument("--state", help="a folder in which what is learned is kept")
    given = parser.parse_args()
    commands, local, remote = list(TONES), keypad(listens_s=0.015), keypad(listens_s=0.1)
    if given.commands:
        commands = [command.strip() for command in given.commands]
        try:
            local, remote = pocketsphinx(commands), whisper(given.whisper, commands)
        except ImportError as error:
            parser.error(f"--commands needs pocketsphinx and faster-whisper (pip install them): {error}")
    gate, task = Gate(offload_cost=given.cost), Transcription(commands)
    with (
        TemporaryDirectory() as folder,
        Device(local, remote, gate, task=task, deadline_s=30, state=given.state) as device,
    ):
        with suppress(KeyboardInterrupt):  # a microphone has no end
            for clip in clips(given.clips) if given.clips else synthesised(Path(folder)):
                answer(device, clip)
        status = device.status
        always = given.cost * status.samples
        print(f"{status.samples} clips, {status.answered_by_remote} of them answered by the remote.")
        print(f"Asking it cost {status.offload_cost:.1f}; asking it about every clip would have cost {always:.1f}.")


if __name__ == "__main__":
    main()
