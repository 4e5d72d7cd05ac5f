"""The convolutions of ResNet-18 and MobileNetV2 for one image of 224 by 224, each shape once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution: channels, filters, extents of the image, window, stride, padding, groups."""

    channels: int
    filters: int
    size: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def outputs(self) -> int:
        """Rows, and columns, of the result."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions, those with padding counted."""
        taps = self.channels // self.groups * self.kernel**2
        return 2 * self.filters * taps * self.outputs**2

    @property
    def x(self) -> tuple[int, int, int, int]:
        return (1, self.channels, self.size, self.size)

    @property
    def weight(self) -> tuple[int, int, int, int]:
        return (self.filters, self.channels // self.groups, self.kernel, self.kernel)

    def __str__(self) -> str:
        kind = "depthwise" if self.groups > 1 else "conv"
        return (
            f"{kind} {self.kernel}x{self.kernel}/{self.stride} "
            f"{self.channels}->{self.filters} {self.size}x{self.size}"
        )


def _depthwise(channels: int, size: int, stride: int = 1) -> Conv:
    return Conv(channels, channels, size, 3, stride, 1, channels)


RESNET18 = (
    Conv(3, 64, 224, 7, 2, 3),
    Conv(64, 64, 56, 3, 1, 1),
    Conv(64, 128, 56, 3, 2, 1),
    Conv(64, 128, 56, 1, 2),
    Conv(128, 128, 28, 3, 1, 1),
    Conv(128, 256, 28, 3, 2, 1),
    Conv(128, 256, 28, 1, 2),
    Conv(256, 256, 14, 3, 1, 1),
    Conv(256, 512, 14, 3, 2, 1),
    Conv(256, 512, 14, 1, 2),
    Conv(512, 512, 7, 3, 1, 1),
)

MOBILENETV2 = (
    Conv(3, 32, 224, 3, 2, 1),
    _depthwise(32, 112),
    Conv(32, 16, 112),
    Conv(16, 96, 112),
    _depthwise(96, 112, 2),
    Conv(96, 24, 56),
    Conv(24, 144, 56),
    _depthwise(144, 56),
    Conv(144, 24, 56),
    _depthwise(144, 56, 2),
    Conv(144, 32, 28),
    Conv(32, 192, 28),
    _depthwise(192, 28),
    Conv(192, 32, 28),
    _depthwise(192, 28, 2),
    Conv(192, 64, 14),
    Conv(64, 384, 14),
    _depthwise(384, 14),
    Conv(384, 64, 14),
    Conv(384, 96, 14),
    Conv(96, 576, 14),
    _depthwise(576, 14),
    Conv(576, 96, 14),
    _depthwise(576, 14, 2),
    Conv(576, 160, 7),
    Conv(160, 960, 7),
    _depthwise(960, 7),
    Conv(960, 160, 7),
    Conv(960, 320, 7),
    Conv(320, 1280, 7),
)
