"""A plugin for tests: a loss, a model, a data set and a transform, all of nobody's library."""

import numpy as np
from torch import nn

from calibrant import plugins


@plugins.register_loss("squared")
def squared(logits, labels, power=2.0):
    p = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    return (1 - p) ** power


class Tiny(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.body(x))


@plugins.register_model("tiny", head="last", input_size=(24, 24), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
def tiny(num_classes, width=8):
    return Tiny(num_classes, width)


class Colours:
    classes = ["blue", "red"]

    def __init__(self, rows, seed):
        self.targets = [n % 2 for n in range(rows)]
        self.seed = seed

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, n):
        noise = np.random.default_rng([self.seed, n]).integers(0, 120, (24, 24, 3))
        noise[..., 2 * (1 - self.targets[n])] += 60
        return noise.astype(np.uint8), self.targets[n]


@plugins.register_dataset("colours")
def colours():
    return {"train": Colours(96, 0), "val": Colours(40, 1), "test": Colours(40, 2)}


@plugins.register_transform("dim")
def dim(picture, rng):
    return picture.point(lambda v: int(v * (0.8 + 0.2 * rng.random())))
