"""The images and models that come with the package."""

import numpy as np

from hinge import load_trace
from hinge.fashion import CLASSES, labelled_images, local_model, remote_model


def test_the_images_are_those_of_the_trace() -> None:
    images, labels = labelled_images()
    assert images.dtype == np.uint8
    assert images.shape == (10_000, 28, 28)
    assert np.bincount(labels).tolist() == [1000] * len(CLASSES)
    recorded = load_trace("fashion").label
    assert recorded is not None
    assert recorded.tolist() == labels.tolist()


def test_the_models_are_as_small_as_promised() -> None:
    assert local_model().stat().st_size <= 30_000
    assert remote_model().stat().st_size <= 5_000_000
