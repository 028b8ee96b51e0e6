"""The networks, for images of 32 x 32 (CIFAR) and 28 x 28 (Fashion-MNIST).

    VGG16          arXiv 1409.1556, configuration D, with batch normalisation and one linear layer at the end
    ResNet-18, -50 arXiv 1512.03385, with a 3 x 3 stem and no pooling behind it
    WRN-28-10      arXiv 1605.07146, without dropout
    TinyLocal      9 000 weights: what fits a microcontroller
    SmallRemote    0.9 million weights: what any server has room for

`width` is the number of channels in the first stage; a small one makes a network to try a script with.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

VGG16_STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))
PIXEL_MEAN, PIXEL_SPREAD = 73.0, 90.0  # of Fashion-MNIST's training images


def vgg16(classes: int, width: int = 64) -> nn.Module:
    """VGG16 for images of 32 x 32."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in VGG16_STAGES:
        for factor in stage:
            layers.append(_convolution(channels, factor * width))
            channels = factor * width
        layers.append(nn.MaxPool2d(2))
    return _initialised(nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, classes)))


def resnet18(classes: int, width: int = 64) -> nn.Module:
    """ResNet-18 for images of 32 x 32."""
    return _resnet(_Basic, (2, 2, 2, 2), classes, width)


def resnet50(classes: int, width: int = 64) -> nn.Module:
    """ResNet-50 for images of 32 x 32."""
    return _resnet(_Bottleneck, (3, 4, 6, 3), classes, width)


def wrn_28_10(classes: int, width: int = 160) -> nn.Module:
    """The wide residual network of 28 layers, ten times as wide as a plain one."""
    blocks: list[nn.Module] = []
    channels = 16
    for stage in range(3):
        for k in range(4):
            out = width << stage
            blocks.append(_PreActivated(channels, out, stride=2 if stage and not k else 1))
            channels = out
    end = (nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    return _initialised(nn.Sequential(stem, *blocks, *end, nn.Linear(channels, classes)))


class TinyLocal(nn.Module):
    """Three convolutions with stride 2 and a linear layer; takes images as they are in the files, bytes of 28 x 28."""

    def __init__(self, classes: int = 10, width: int = 8) -> None:
        super().__init__()
        self.layers = _initialised(
            nn.Sequential(
                _convolution(1, width, kernel=5, stride=2),
                _convolution(width, 2 * width, stride=2),
                _convolution(2 * width, 3 * width, stride=2),
                nn.Flatten(),
                nn.Linear(3 * width * 16, classes),
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(_scaled(images))


class SmallRemote(nn.Module):
    """A residual network of ten layers; takes images as they are in the files, bytes of 28 x 28."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.layers = _initialised(
            nn.Sequential(
                _convolution(1, width // 2),
                _Basic(width // 2, width // 2, 1),
                _Basic(width // 2, width, 2),
                _Basic(width, 5 * width // 2, 2),
                _Basic(5 * width // 2, 5 * width // 2, 1),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(5 * width // 2, classes),
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(_scaled(images))


def _scaled(images: Tensor) -> Tensor:
    return ((images.float() - PIXEL_MEAN) / PIXEL_SPREAD).unsqueeze(1)


def _convolution(channels: int, out: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


def _resnet(block: type["_Basic"] | type["_Bottleneck"], depths: Sequence[int], classes: int, width: int) -> nn.Module:
    layers: list[nn.Module] = [_convolution(3, width)]
    channels = width
    for stage, depth in enumerate(depths):
        for k in range(depth):
            layers.append(block(channels, width << stage, 2 if stage and not k else 1))
            channels = block.expansion * (width << stage)
    return _initialised(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)))


class _Residual(nn.Module):
    """`body` beside a shortcut, which is a projection where the shape changes."""

    expansion = 1

    def __init__(self, body: nn.Module, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class _Basic(_Residual):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        last = _convolution(out, out)[:-1]
        super().__init__(nn.Sequential(_convolution(channels, out, stride=stride), last), channels, out, stride)


class _Bottleneck(_Residual):
    expansion = 4

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        out = self.expansion * inner
        first, middle = _convolution(channels, inner, kernel=1), _convolution(inner, inner, stride=stride)
        last = _convolution(inner, out, kernel=1)[:-1]
        super().__init__(nn.Sequential(first, middle, last), channels, out, stride)


class _PreActivated(nn.Module):
    """Normalisation and activation in front of each convolution; the projection starts behind the first of them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        first = _convolution(channels, out, stride=stride)
        self.body = nn.Sequential(*first, nn.Conv2d(out, out, 3, padding=1, bias=False))
        same = stride == 1 and channels == out
        self.project = None if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        return self.body(entered) + (x if self.project is None else self.project(entered))


def _initialised(network: nn.Sequential) -> nn.Sequential:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network
