import subprocess
import sys

import pytest

import mainstem
from mainstem import client


@pytest.mark.parametrize("name", [name for name in mainstem.__all__ if name != "__version__"])
def test_a_public_name_is_the_same_in_both_places(name: str) -> None:
    assert getattr(mainstem, name) is getattr(client, name)


def test_both_places_have_the_same_names() -> None:
    assert {*mainstem.__all__} - {"__version__"} == {*client.__all__} == {*client._HOMES}


def test_importing_mainstem_loads_no_client() -> None:
    script = "import sys, mainstem; sys.exit(any(name.startswith('mainstem.client') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Producr"):
        mainstem.Producr  # noqa: B018
