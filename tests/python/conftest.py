"""What the tests of the Python package share: the server of RDMAD_TEST_SERVER, which check_python.sh has started."""
import os

import pytest

import rdmad


@pytest.fixture
def address():
    return os.environ["RDMAD_TEST_SERVER"]


@pytest.fixture
def store(address):
    with rdmad.Store(address) as made:
        made.delete_prefix("t:")
        yield made
