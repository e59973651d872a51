"""A scene of its own for each attack that changes something of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.negatives.scene import Scene, scene

MakeScene = Callable[..., AbstractContextManager[Scene]]


@pytest.fixture
def make_scene(tmp_path: Path, tiny_model: Path) -> MakeScene:
    return partial(scene, tmp_path, tiny_model)


@pytest.fixture
def fresh(make_scene: MakeScene) -> Iterator[Scene]:
    with make_scene() as made:
        yield made
