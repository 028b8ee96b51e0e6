"""Six pairs of models on which nothing was chosen: the default policy was measured on them once it was finished.

    python training/unseen.py plain int8 night digits intents pronunciation --data .train

Each trains a local and a remote model and writes a trace. The images are the first 30 000 to train on and all test
images of `prepare.py`; README.md says where words, digits and requests come from. One large GPU takes ten minutes.
"""

import argparse
import json
import re
import time
import wave
import zlib
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from augment import Augmentation
from loop import Recipe, Run
from networks import resnet18
from sheets import ImageSet, Part, read_set
from torch import nn
from torch.nn import functional

from hinge.traces import Trace, load_trace, write_trace

TRACES = Path(__file__).parents[1] / "src" / "hinge" / "traces" / "data"
WRN = "WideResNet-28-10; scores averaged over an image and its mirror image"
ABOUT = {
    "cifar10-plain": (
        "CIFAR-10, 10 000 test images",
        "narrow ResNet-18 (width 12), trained without augmentation until it knows its images by heart",
        WRN,
        "largest softmax",
    ),
    "cifar10-night": (
        "CIFAR-10, 10 000 test images in order of time, three nights of darkness and noise among them",
        "narrow ResNet-18 (width 16), trained by day",
        "ResNet-18 (width 96), trained by day and night",
        "largest softmax",
    ),
    "cifar100-int8": (
        "CIFAR-100, 10 000 test images",
        "narrow ResNet-18 (width 20) in 8-bit integers, its softmax too",
        WRN,
        "largest softmax, in steps of 1/256",
    ),
    "digits-linear": (
        "Free Spoken Digit Dataset, 2 000 recordings of six speakers",
        "linear model of coarse spectra, which knows two of the speakers",
        "convolutional network, which knows all of them",
        "largest softmax",
    ),
    "intents-words": (
        "clinc/oos-eval, 5 500 requests, of which 1 000 have no intent",
        "words counted by a linear model",
        "words, pairs of words and parts of words, two layers",
        "largest softmax",
    ),
    "pronunciation-small": (
        "CMU Pronouncing Dictionary, 8 000 words",
        "transformer of one layer, width 96",
        "transformer of four layers, width 256",
        "product of the probabilities of all phonemes and of the end",
    ),
}
LICENCES = {
    "digits-linear": "Free Spoken Digit Dataset: CC BY-SA 4.0",
    "intents-words": "clinc/oos-eval: CC BY 3.0",
    "pronunciation-small": "CMU Pronouncing Dictionary: BSD 2-Clause",
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def write(name, confidence, local, remote, label):
    """Write the trace of a pair."""
    samples, local_model, remote_model, measure = ABOUT[name]
    kind = np.uint8 if max(map(np.max, (local, remote, label))) < 256 else np.uint16
    answers = [np.asarray(column, kind) for column in (local, remote, label)]
    trace = Trace(np.float64(np.float32(confidence)), *answers, name=name)
    about = {
        "images" if name.startswith("cifar") else "samples": samples,
        "local": local_model,
        "remote": remote_model,
        "confidence": measure,
        "agreement": f"{trace.agreement:.2%}",
        "local accuracy": f"{trace.local_accuracy:.2%}",
        "remote accuracy": f"{trace.remote_accuracy:.2%}",
        "date": str(date.today()),
        "script": "training/unseen.py",
        **({"licence": LICENCES[name]} if name in LICENCES else {}),
    }
    write_trace(Trace(**trace.columns, name=name, about=about), TRACES / f"{name}.npz")
    print(trace, flush=True)


def softmax(logits):
    """Return probabilities."""
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def shipped(name):
    """Return the remote answers and the labels of a trace that is there already."""
    trace = load_trace(name)
    return trace.remote, trace.label


def plain(data, out):
    """Overconfident: a narrow network trained until it knows its images by heart."""
    recipe = Recipe(
        "cifar10-plain", "cifar10", resnet18, 40, 128, 0.05, Augmentation(shift=0, flip=False), weight_decay=0.0
    )
    run = Run(recipe, read_set(data, "cifar10"), out / "scores", width=12)
    run.train()
    logits = np.load(out / "scores" / "cifar10-plain.npz")["logits"].astype(np.float64)
    remote, label = shipped("cifar10-vgg16")
    write("cifar10-plain", softmax(logits).max(1), logits.argmax(1), remote, label)


def int8(data, out):
    """Integers: weights, activations and the softmax itself in 8 bits, so that confidence takes at most 256 values."""
    from onnxruntime import InferenceSession
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    images = read_set(data, "cifar100")
    recipe = Recipe("cifar100-int8", "cifar100", resnet18, 40, 256, 0.2, Augmentation())
    network = Run(recipe, images, out / "scores", width=20).train().eval().float().cpu()
    path = out / "scores" / "cifar100.onnx"
    torch.onnx.export(
        network,
        (torch.zeros(1, 3, 32, 32),),
        str(path),
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        dynamo=False,
    )

    def prepared(part):
        return (part.images.transpose(0, 3, 1, 2).astype(np.float32) - 120) / 64

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(np.split(prepared(images.train)[:1000], 10))

        def get_next(self):
            batch = next(self.left, None)
            return None if batch is None else {"x": batch}

    quantized = out / "scores" / "cifar100-int8.onnx"
    quantize_static(
        str(path),
        str(quantized),
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    session = InferenceSession(str(quantized))
    tests = prepared(images.test)
    logits = np.concatenate([session.run(None, {"x": tests[k : k + 500]})[0] for k in range(0, len(tests), 500)])
    levels = np.minimum(np.round(softmax(logits.astype(np.float64)) * 256), 255) / 256  # as TensorFlow Lite's softmax
    remote, label = shipped("cifar100-resnet50")
    write("cifar100-int8", levels.max(1), logits.argmax(1), remote, label)


def night(data, out):
    """A camera by day and by night: three nights of noise and darkness among the test images, in order of time."""
    images = read_set(data, "cifar10")
    darkness = np.clip(np.sin(np.linspace(0, 6 * np.pi, len(images.test.labels))), 0, 1)
    random = np.random.default_rng(0)

    def darkened(pictures, dark):
        dark = dark[:, None, None, None]
        noisy = pictures * (1 - 0.7 * dark) + random.normal(0, 1, pictures.shape) * 35 * dark
        return np.uint8(np.clip(noisy, 0, 255))

    test = Part(darkened(images.test.images, darkness), images.test.labels)
    often = random.random(len(images.train.labels)) * (random.random(len(images.train.labels)) < 0.5)
    trained_at_night = Part(darkened(images.train.images, often), images.train.labels)
    scores = {}
    for name, train, recipe, width in (
        (
            "cifar10-night-local",
            images.train,
            Recipe("cifar10-night-local", "cifar10", resnet18, 30, 256, 0.1, Augmentation(), smoothing=0.1),
            16,
        ),
        (
            "cifar10-night-remote",
            trained_at_night,
            Recipe("cifar10-night-remote", "cifar10", resnet18, 50, 256, 0.1, Augmentation(cutout=8), flip_test=True),
            96,
        ),
    ):
        Run(recipe, ImageSet(train, test), out / "scores", width=width).train()
        scores[name] = np.load(out / "scores" / f"{name}.npz")["logits"].astype(np.float64)
    local, remote = scores["cifar10-night-local"], scores["cifar10-night-remote"]
    write("cifar10-night", softmax(local).max(1), local.argmax(1), remote.argmax(1), test.labels)


def fit(network, inputs, targets, epochs, batch, rate, noise=None, decay=0.0):
    """Train a network."""
    network.to(DEVICE).train()
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=decay)
    steps = epochs * -(-len(targets) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets), device=DEVICE).split(batch):
            given = tuple(one[chosen] for one in inputs)
            scores = network(noise(*given)) if noise else network(*given)
            loss = functional.cross_entropy(scores, targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


@torch.no_grad()
def scored(network, *inputs):
    """Return the probabilities that a network gives."""
    return softmax(
        torch.cat([network(*parts) for parts in zip(*(one.split(1000) for one in inputs), strict=True)])
        .double()
        .cpu()
        .numpy()
    )


def digits(data, out):
    """Spoken digits, 2 000 rows: a linear model of mean spectra that knows two speakers, before a convolutional one."""
    torch.manual_seed(0)
    names = sorted((data / "fsdd" / "recordings").glob("*.wav"))
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 42) / 2595) - 1)
    bins = np.linspace(0, 4000, 129)
    mel = torch.tensor(np.stack([np.interp(bins, edges[k : k + 3], [0, 1, 0]) for k in range(40)]), dtype=torch.float32)
    features, label, speaker, number = [], [], [], []
    for path in names:
        with wave.open(str(path)) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        spectrum = (
            torch.stft(
                torch.tensor(sound, dtype=torch.float32), 256, 80, window=torch.hann_window(256), return_complex=True
            ).abs()
            ** 2
        )
        logs = torch.log(mel @ spectrum + 1e-6)
        features.append(functional.interpolate(logs[None, None], size=(40, 48), mode="bilinear")[0, 0])
        one, who, which = path.stem.split("_")
        label.append(int(one))
        speaker.append(who)
        number.append(int(which))
    x = torch.stack(features)
    x = ((x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)).to(DEVICE)
    y, who, which = torch.tensor(label, device=DEVICE), np.array(speaker), np.array(number)
    tested = np.flatnonzero(which < 34)[np.random.default_rng(0).permutation((which < 34).sum())[:2000]]
    known = torch.tensor(np.flatnonzero(which >= 34), device=DEVICE)
    two = torch.tensor(np.flatnonzero((which >= 34) & np.isin(who, ["george", "theo"])), device=DEVICE)
    small = nn.Sequential(nn.AdaptiveAvgPool2d((10, 6)), nn.Flatten(), nn.Linear(60, 10))
    large = nn.Sequential(
        *(
            layer
            for a, b in ((1, 32), (32, 64), (64, 128))
            for layer in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2))
        ),
        nn.AdaptiveAvgPool2d((3, 3)),
        nn.Flatten(),
        nn.Linear(1152, 10),
    )

    def noise(images):
        return torch.roll(images, int(torch.randint(-4, 5, ())), 3) + 0.3 * torch.randn_like(images)

    local = fit(small, (x[two][:, None],), y[two], 150, 32, 0.02)
    remote = fit(large, (x[known][:, None],), y[known], 100, 64, 0.003, noise, 0.01)
    given = x[torch.tensor(tested, device=DEVICE)][:, None]
    ours, theirs = scored(local, given), scored(remote, given)
    write("digits-linear", ours.max(1), ours.argmax(1), theirs.argmax(1), np.array(label)[tested])


def intents(data, out):
    """Requests to an assistant: words counted, before words, pairs and parts of words; a sixth have no intent."""
    torch.manual_seed(0)
    full = json.loads((data / "clinc.json").read_text())
    classes = {name: k for k, name in enumerate(sorted({name for _, name in full["train"]} | {"oos"}))}
    train = full["train"] + full["oos_train"] + full["oos_val"]
    test = full["test"] + full["oos_test"]
    test = [test[k] for k in np.random.default_rng(0).permutation(len(test))]

    def words(text):
        return re.findall(r"[a-z0-9']+", text.lower())

    def parts(text):
        found = words(text)
        letters = [f"<{word}>" for word in found]
        return (
            found
            + [" ".join(pair) for pair in pairwise(found)]
            + [word[k : k + n] for word in letters for n in (3, 4, 5) for k in range(len(word) - n + 1)]
        )

    def encoded(texts, split, buckets):
        ids = [[1 + zlib.crc32(part.encode()) % (buckets - 1) for part in split(text)] for text in texts]
        width = max(map(len, ids))
        return torch.tensor([one + [0] * (width - len(one)) for one in ids], device=DEVICE)

    class Bag(nn.Module):
        def __init__(self, buckets, width, dropout):
            super().__init__()
            self.bag = nn.EmbeddingBag(buckets, width, mode="mean", padding_idx=0)
            self.end = (
                nn.Sequential(
                    nn.BatchNorm1d(width),
                    nn.Dropout(dropout),
                    nn.Linear(width, 512),
                    nn.ReLU(),
                    nn.Dropout(dropout),
                    nn.Linear(512, len(classes)),
                )
                if dropout
                else nn.Linear(width, len(classes))
            )

        def forward(self, ids):
            return self.end(self.bag(ids))

    y = torch.tensor([classes[name] for _, name in train], device=DEVICE)
    label = np.array([classes[name] for _, name in test])
    few = torch.arange(0, len(train), 5, device=DEVICE)  # the local model learns from a fifth
    probabilities = []
    for split, buckets, width, dropout, chosen, epochs, rate in (
        (words, 2048, 48, 0.0, few, 40, 0.02),
        (parts, 1 << 17, 384, 0.5, torch.arange(len(train), device=DEVICE), 40, 0.004),
    ):
        given = encoded([text for text, _ in train] + [text for text, _ in test], split, buckets)
        network = fit(Bag(buckets, width, dropout), (given[: len(train)][chosen],), y[chosen], epochs, 128, rate)
        probabilities.append(scored(network, given[len(train) :]))
    ours, theirs = probabilities
    write("intents-words", ours.max(1), ours.argmax(1), theirs.argmax(1), label)


class Speller(nn.Module):
    """Letters to phonemes, a transformer of both."""

    def __init__(self, letters, phonemes, width, layers, length=34):
        super().__init__()
        self.letters, self.phonemes = nn.Embedding(letters, width, 0), nn.Embedding(phonemes, width, 0)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.core = nn.Transformer(
            width, max(width // 32, 1), layers, layers, 4 * width, 0.1, batch_first=True, norm_first=True
        )
        self.end = nn.Linear(width, phonemes)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
        blank = source == 0
        out = self.core(
            self.letters(source) + self.places[: source.shape[1]],
            self.phonemes(target) + self.places[: target.shape[1]],
            tgt_mask=mask,
            tgt_is_causal=True,
            src_key_padding_mask=blank,
            memory_key_padding_mask=blank,
        )
        return self.end(out)


def pronunciation(data, out):
    """Words to phonemes: confidence is the product of the probabilities of all phonemes and of the end."""
    torch.manual_seed(0)
    said = {}
    for line in (data / "cmudict.dict").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        word = re.sub(r"\(\d\)$", "", word)
        phonemes = tuple(re.sub(r"\d", "", one) for one in rest.partition(" #")[0].split())
        if re.fullmatch(r"[a-z]{2,20}", word) and len(phonemes) <= 20:
            said.setdefault(word, []).append(phonemes)
    names = sorted(said)
    order = np.random.default_rng(0).permutation(len(names))
    tested, known = [names[k] for k in order[:8000]], [names[k] for k in order[8000:]]
    sounds = {
        one: k + 3 for k, one in enumerate(sorted({p for every in said.values() for all_p in every for p in all_p}))
    }

    def letters(words):
        return torch.tensor([[ord(c) - 96 for c in word] + [0] * (20 - len(word)) for word in words], device=DEVICE)

    def phonemes(words):  # 1 begins, 2 ends
        rows = [[1, *(sounds[one] for one in said[word][0]), 2] for word in words]
        return torch.tensor([row + [0] * (22 - len(row)) for row in rows], device=DEVICE)

    source, target, asked = letters(known), phonemes(known), letters(tested)
    answers = []
    for width, layers, epochs, share, limit in ((96, 1, 20, 1.0, 90), (256, 4, 40, 1.0, 200)):
        network = Speller(27, len(sounds) + 3, width, layers).to(DEVICE)
        optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.01)
        used, start = int(share * len(known)), time.time()
        for epoch in range(epochs):
            network.train()
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, 2 * (1 - epoch / epochs)) * (0.3 if epoch == 0 else 1)
            for chosen in torch.randperm(used, device=DEVICE).split(512):
                with torch.autocast(DEVICE.type, torch.bfloat16):
                    scores = network(source[chosen], target[chosen, :-1])
                loss = functional.cross_entropy(
                    scores.float().flatten(0, 1), target[chosen, 1:].flatten(), ignore_index=0
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
            if time.time() - start > limit:
                break
        print(f"pronunciation, width {width}: {epoch + 1} epochs, loss {float(loss):.3f}", flush=True)
        network.eval()
        with torch.no_grad():
            texts, chances = [], []
            for words in asked.split(2000):
                given = torch.ones(len(words), 1, dtype=torch.long, device=DEVICE)
                total = torch.zeros(len(words), device=DEVICE, dtype=torch.float64)
                ended = torch.zeros(len(words), dtype=torch.bool, device=DEVICE)
                for _ in range(21):
                    chance, token = torch.log_softmax(network(words, given)[:, -1].double(), 1).max(1)
                    total = torch.where(ended, total, total + chance)
                    token = torch.where(ended, 0, token)
                    ended = ended | (token == 2)
                    given = torch.cat([given, token[:, None]], 1)
                texts += [tuple(row[1:]) for row in given.tolist()]
                chances.append(torch.where(ended, total.exp(), 0.0).cpu().numpy())
        backwards = {k: name for name, k in sounds.items()}
        answers.append(([" ".join(backwards[k] for k in row if k > 2) for row in texts], np.concatenate(chances)))
    (ours, confidence), (theirs, _) = answers
    right = [" ".join(said[word][0]) for word in tested]
    for k, word in enumerate(tested):  # any listed pronunciation is right; the remote's, if it is listed
        listed = {" ".join(one) for one in said[word]}
        right[k] = theirs[k] if theirs[k] in listed else ours[k] if ours[k] in listed else right[k]
    _, codes = np.unique(ours + theirs + right, return_inverse=True)
    local, remote, label = np.split(codes, 3)
    write("pronunciation-small", confidence, local, remote, label)


def main():
    """Record the pairs that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    pairs = {one.__name__: one for one in (plain, int8, night, digits, intents, pronunciation)}
    parser.add_argument("pairs", nargs="+", choices=pairs)
    parser.add_argument("--data", type=Path, default=Path(".train"))
    parser.add_argument("--out", type=Path, default=Path(".train/unseen"))
    arguments = parser.parse_args()
    (arguments.out / "scores").mkdir(parents=True, exist_ok=True)
    for name in arguments.pairs:
        start = time.time()
        pairs[name](arguments.data, arguments.out)
        print(f"{name}: {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
