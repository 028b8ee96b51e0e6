"""Training and testing: one-cycle SGD on a GPU that holds all images (or, slowly, on a CPU)."""

import json
import math
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from augment import Augmentation, Batches, Targets
from numpy.typing import NDArray
from sheets import ImageSet, Part
from torch import Tensor, nn
from torch.nn import functional

TIMED_BATCHES = 30
SAVE_EVERY = 10  # epochs


@dataclass(frozen=True)
class Recipe:
    """One network and how it is trained."""

    name: str
    images: str
    network: Callable[..., nn.Module]
    epochs: int
    batch: int
    peak_rate: float  # of learning
    augmentation: Augmentation
    weight_decay: float = 5e-4  # of matrices and kernels; not of normalisation and bias
    smoothing: float = 0.0  # of labels
    average: float = 0.0  # what is tested is a running average of weights, which keeps this much at each step
    flip_test: bool = False  # a test image's scores are averaged with those of its mirror image
    held_out: int = 0  # training images kept apart, to calibrate on
    seed: int = 0

    def described(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self) | {"network": self.network.__name__})


class Log:
    """Lines on the screen and in a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = path.open("w")
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the log was opened."""
        return time.perf_counter() - self._start

    def __call__(self, line: str) -> None:
        for stream in (self._file, None):
            print(f"{self.seconds:7.1f} s  {line}", file=stream, flush=True)


class Average:
    """A network whose weights, and what batch normalisation has gathered, are a running average of another's."""

    def __init__(self, followed: nn.Module, kept: float) -> None:
        self.network = deepcopy(followed)
        self._mine, self._its, self._kept = _numbers(self.network), _numbers(followed), kept

    @torch.no_grad()
    def follow(self) -> None:
        """Moves towards the other network as it is now."""
        torch._foreach_lerp_(self._mine, self._its, 1 - self._kept)


class Run:
    """A recipe on its images: trains, tests, writes scores and log.

    `seconds` bounds the time: the epochs are cut to what fits, by the time that a batch takes, before training starts.
    """

    def __init__(self, recipe: Recipe, found: ImageSet, out: Path, seconds: float = math.inf, width: int = 0) -> None:
        self.recipe, self._out, self._width = recipe, out, width
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._log = Log(out / f"{recipe.name}.log")
        self.accuracy = math.nan  # before the first test
        self._classes = int(found.train.labels.max()) + 1
        torch.manual_seed(recipe.seed)
        torch.backends.cudnn.benchmark = True
        self._place(found)
        self._log(f"{date.today()}  torch {torch.__version__} on {self._device.type}")
        self._fit_into(seconds)
        self._log(self.recipe.described())

    def train(self) -> nn.Module:
        """The trained network. Scores are saved every few epochs, so that a run that is cut short leaves some."""
        torch.manual_seed(self.recipe.seed)
        network = self._new_network()
        average = Average(network, self.recipe.average)
        optimizer, batches = self._optimizer(network), self._batches()
        steps = self.recipe.epochs * len(batches)
        for epoch in range(self.recipe.epochs):
            loss = torch.zeros((), device=self._device)
            for k, (images, targets) in enumerate(batches):
                _set_rate(optimizer, self.recipe.peak_rate * one_cycle((epoch * len(batches) + k) / steps))
                loss += self._step(network, optimizer, images, targets)
                average.follow()
            self._log(f"epoch {epoch + 1:3} of {self.recipe.epochs}  loss {float(loss) / len(batches):.4f}")
            if (epoch + 1) % SAVE_EVERY == 0 and epoch + 1 < self.recipe.epochs:
                self.save(average.network)
        self.save(average.network)
        return average.network

    def save(self, network: nn.Module) -> None:
        """Writes the scores for all test images (and those held out), and notes the accuracy."""
        logits = self._scores(network, self._test_images)
        self.accuracy = float((logits.argmax(1) == self._test_labels).mean())
        arrays = {"logits": logits, "labels": self._test_labels, "recipe": np.array(self.recipe.described())}
        if self.recipe.held_out:
            arrays |= {
                "held_out_logits": self._scores(network, self._held_images),
                "held_out_labels": self._held_labels,
            }
        np.savez(self._out / f"{self.recipe.name}.npz", **arrays)
        self._log(f"{self.recipe.name}: {self.accuracy:.2%} of {len(logits)} test images right")

    def _place(self, found: ImageSet) -> None:
        """Training and held-out images, and test images, onto the device."""
        order = np.random.default_rng(self.recipe.seed).permutation(len(found.train.labels))
        held, used = order[: self.recipe.held_out], order[self.recipe.held_out :]
        self._images, labels = self._on_device(Part(found.train.images[used], found.train.labels[used]))
        self._labels = torch.from_numpy(labels.astype(np.int64)).to(self._device)
        self._held_images, self._held_labels = self._on_device(Part(found.train.images[held], found.train.labels[held]))
        self._test_images, self._test_labels = self._on_device(found.test)

    def _on_device(self, part: Part) -> tuple[Tensor, NDArray[np.uint8]]:
        return torch.from_numpy(part.images).permute(0, 3, 1, 2).contiguous().to(self._device), part.labels

    def _fit_into(self, seconds: float) -> None:
        if math.isinf(seconds):
            return
        each = self._seconds_per_epoch()
        epochs = max(1, min(self.recipe.epochs, int((seconds - self._log.seconds) / each)))
        self._log(f"{each:.2f} s an epoch; {epochs} epochs fit into {seconds:.0f} s")
        self.recipe = replace(self.recipe, epochs=epochs)

    def _seconds_per_epoch(self) -> float:
        """Measured on a network of its own, which is thrown away."""
        network = self._new_network()
        average, optimizer, batches = Average(network, 0.5), self._optimizer(network), self._batches()
        for k, (images, targets) in enumerate(_endless(batches)):
            if k == TIMED_BATCHES // 3:  # until here cuDNN was choosing its algorithms
                start = self._settled()
            if k == TIMED_BATCHES:
                break
            self._step(network, optimizer, images, targets)
            average.follow()
        return (self._settled() - start) / (TIMED_BATCHES - TIMED_BATCHES // 3) * len(batches)

    def _settled(self) -> float:
        """The time once the GPU has done all it was told."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _new_network(self) -> nn.Module:
        network = self.recipe.network(self._classes, **({"width": self._width} if self._width else {}))
        return network.to(self._device, memory_format=torch.channels_last)

    def _batches(self) -> Batches:
        return Batches(self._images, self._labels, self.recipe.batch, self.recipe.augmentation, self.recipe.seed)

    def _optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        decayed = [weight for weight in network.parameters() if weight.ndim > 1]
        others = [weight for weight in network.parameters() if weight.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": self.recipe.weight_decay}, {"params": others}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, fused=self._device.type == "cuda")

    def _step(self, network: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, targets: Targets) -> Tensor:
        network.train()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            scores = network(self._prepared(images))
        first, second, share = targets
        loss = share * functional.cross_entropy(scores.float(), first, label_smoothing=self.recipe.smoothing)
        if share < 1:
            mixed = functional.cross_entropy(scores.float(), second, label_smoothing=self.recipe.smoothing)
            loss = loss + (1 - share) * mixed
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def _scores(self, network: nn.Module, images: Tensor) -> NDArray[np.float32]:
        """In single precision: half of it would make ties of confidences that differ."""
        network.eval()
        return np.concatenate([self._batch_scores(network, batch) for batch in images.split(500)])

    def _batch_scores(self, network: nn.Module, images: Tensor) -> NDArray[np.float32]:
        scores = network(self._prepared(images))
        if self.recipe.flip_test:
            scores = (scores + network(self._prepared(images.flip(3)))) / 2
        return scores.float().cpu().numpy()

    def _prepared(self, images: Tensor) -> Tensor:
        """As the network takes them: grey ones as bytes, coloured ones about 0 with a spread of about 1."""
        if images.shape[1] == 1:
            return images.squeeze(1)
        return ((images.float() - 120) / 64).contiguous(memory_format=torch.channels_last)


def one_cycle(done: float, rise: float = 0.2) -> float:
    """The learning rate as a share of its peak, when `done` of the training is: up in a line, down in a cosine.

    >>> [round(one_cycle(done), 2) for done in (0, 0.1, 0.2, 0.6, 1)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return done / rise if done < rise else (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


def _numbers(network: nn.Module) -> list[Tensor]:
    return [one for one in (*network.parameters(), *network.buffers()) if one.is_floating_point()]


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _endless(batches: Batches) -> Iterable[tuple[Tensor, Targets]]:
    while True:
        yield from batches
