"""Batches of randomly cropped, flipped, covered or mixed images, made where the images lie: on the GPU."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Targets = tuple[Tensor, Tensor, float]  # two labels per image, and the share of the first


@dataclass(frozen=True)
class Augmentation:
    """What is done to a training image. Shift, flip and square are drawn anew for each image and epoch."""

    shift: int = 4  # pixels to each side, mirrored at the border
    flip: bool = True
    cutout: int = 0  # side of a square that is covered
    cover: int = 128  # with this: about the mean of natural images
    cutmix: float = 0.0  # chance that a batch has a rectangle of other images pasted in (arXiv 1905.04899)


class Batches:
    """All batches of an epoch, shuffled, from images (samples x channels x height x width, bytes) and labels."""

    def __init__(self, images: Tensor, labels: Tensor, size: int, augmentation: Augmentation, seed: int) -> None:
        self._labels, self._size, self._augmentation = labels, size, augmentation
        self._random = torch.Generator(images.device).manual_seed(seed)
        self._boxes = torch.Generator().manual_seed(seed)  # on the CPU: asking the GPU for a number would stall it
        shift, side = augmentation.shift, images.shape[-1]
        padded = functional.pad(images.float(), (shift,) * 4, mode="reflect").to(images.dtype) if shift else images
        self._windows = padded.unfold(2, side, 1).unfold(3, side, 1)  # a view: every crop of every image

    def __len__(self) -> int:
        return len(self._labels) // self._size

    def __iter__(self) -> Iterator[tuple[Tensor, Targets]]:
        order = torch.randperm(len(self._labels), generator=self._random, device=self._labels.device)
        for chosen in order[: len(self) * self._size].split(self._size):
            images = self._covered(self._flipped(self._cropped(chosen)))
            yield self._mixed(images, self._labels[chosen])

    def _cropped(self, chosen: Tensor) -> Tensor:
        down, right = self._integers(2, len(chosen), high=2 * self._augmentation.shift + 1)
        return self._windows[chosen, :, down, right]

    def _flipped(self, images: Tensor) -> Tensor:
        if not self._augmentation.flip:
            return images
        flip = self._integers(len(images), high=2).bool()
        return torch.where(flip[:, None, None, None], images.flip(3), images)

    def _covered(self, images: Tensor) -> Tensor:
        side, cutout = images.shape[-1], self._augmentation.cutout
        if not cutout:
            return images
        middle = self._integers(2, len(images), 1, high=side)
        place = torch.arange(side, device=images.device)
        below, beside = (place >= middle - cutout // 2) & (place < middle + cutout // 2)
        covered = below[:, None, :, None] & beside[:, None, None, :]
        return images.masked_fill(covered, self._augmentation.cover)

    def _mixed(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Targets]:
        chance, share, *middle = torch.rand(4, generator=self._boxes).tolist()
        if chance >= self._augmentation.cutmix:
            return images, (labels, labels, 1.0)
        side = images.shape[-1]
        reach = side * (1 - share) ** 0.5 / 2
        top, left = (max(0, round(side * at - reach)) for at in middle)
        bottom, right = (min(side, round(side * at + reach)) for at in middle)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images.roll(1, 0)[:, :, top:bottom, left:right]
        return mixed, (labels, labels.roll(1), 1 - (bottom - top) * (right - left) / side**2)

    def _integers(self, *shape: int, high: int) -> Tensor:
        return torch.randint(high, shape, generator=self._random, device=self._labels.device)
