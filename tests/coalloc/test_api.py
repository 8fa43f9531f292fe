"""The public names, which are imported from their modules when they are first used."""

from importlib import import_module

import pytest

from coalloc import api


@pytest.mark.parametrize("name", api.__all__)
def test_each_public_name_is_found(name):
    assert getattr(api, name) is not None


def test_names_of_the_table_are_public_and_at_their_stated_place():
    for name, (module, there) in api.PLACES.items():
        assert name in api.__all__
        assert getattr(import_module(module), there) is getattr(api, name)


@pytest.mark.parametrize("name", ["nothing", "PLACE"])
def test_other_names_do_not_exist(name):
    with pytest.raises(AttributeError, match=name):
        getattr(api, name)
