"""The folder of a user with a network and pictures of their own."""

from pathlib import Path

import pytest

from tests.support.helpers import arrays, forget_networks, write_photos
from tests.support.own_networks import MODULE


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The current folder is an empty one, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def own_project(own_folder):
    """The current folder has the module ``own_networks`` and 24 pictures of two classes."""
    forget_networks("own_networks")
    Path("own_networks.py").write_text(MODULE)
    write_photos(Path("photos"), *arrays(24, 0))
