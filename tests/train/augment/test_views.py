from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.crops import Augmentation
from calibrant.train.augment.views import ViewMaker
from calibrant.train.config import AugmentConfig, DataConfig
from calibrant.train.data.loader import TrainDataset
from calibrant.train.data.pixels import FileStore, whole
from calibrant.train.data.sources import read_data
from calibrant.train.evaluate import EvalSource, run_network
from calibrant.train.model.feature_model import build_model

PRE = Preprocessing((16, 16), 20)


def test_ten_crops_are_centre_and_corners_and_their_mirror_images() -> None:
    ramp = np.add.outer(np.arange(40) * 3, np.arange(40) * 3).astype(np.uint8)[..., None].repeat(3, 2)
    ramp[:, :, 1] = np.arange(40) * 6  # column
    views = ViewMaker(PRE, "ten-crop")(Image.fromarray(ramp)).reshape(10, 16, 16, 3)
    np.testing.assert_array_equal(views[0], PRE.pixels(Image.fromarray(ramp)))
    np.testing.assert_array_equal(views[5:], views[:5, :, ::-1])
    means = views[1:5].astype(float).mean(axis=(1, 2))
    # brightness 3 (row + column): crops of 16 of 20, so corners differ by 4 of 20, which is 8 of 40 source pixels
    np.testing.assert_allclose(means[[1, 2, 3], 0] - means[0, 0], [24, 24, 48], atol=2)
    np.testing.assert_allclose(means[1, 1] - means[0, 1], 48, atol=2)  # the second is the right one


def test_logits_of_views_are_averaged(image_folder: Path) -> None:
    torch.manual_seed(0)
    network = build_model("test_resnet", 3, input_size=(16, 16)).eval()
    torch.nn.init.normal_(network.classifier_layers()[0].weight)  # type: ignore[arg-type]
    images = read_data(DataConfig(path=image_folder)).val

    def logits(pixels: list[np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
        x = torch.from_numpy(np.stack([PRE.normalise(p) for p in pixels]))
        with torch.no_grad():
            return network(x)[0].numpy()  # type: ignore[no-any-return]

    plain = [PRE.pixels(images.image(i)) for i in range(len(images))]
    expected = (logits(plain) + logits([p[:, ::-1].copy() for p in plain])) / 2
    source = EvalSource(images, PRE, cache=False, workers=0, skip_bad=False, what="val", views="flip")
    found = run_network(network, source, batch_size=4, device=torch.device("cpu"))
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-5)


def test_what_loader_workers_get_can_be_sent_to_a_new_process(image_folder: Path) -> None:
    """Where processes are spawned and not forked (macOS, Windows) data sets travel by pickle."""
    import pickle

    images = read_data(DataConfig(path=image_folder)).train
    evaluation = EvalSource(images, PRE, cache=False, workers=2, skip_bad=False, what="val", views="ten-crop")
    augmentation = Augmentation(AugmentConfig(policy="trivial", jitter=0.1), PRE)
    training = TrainDataset(images, FileStore(images, whole), augmentation, seed=1)
    places = [(3, 0, 0), (5, 0, 1)]
    copy = pickle.loads(pickle.dumps(training))
    assert torch.equal(copy.__getitems__(places).pixels, training.__getitems__(places).pixels)
    store = pickle.loads(pickle.dumps(evaluation.store))
    np.testing.assert_array_equal(store[2], evaluation.store[2])
