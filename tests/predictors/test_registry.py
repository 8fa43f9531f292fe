"""Every forecaster is found, and meets the common conditions."""

import pkgutil
from importlib import import_module

import pytest

import predictors
from predictors.base import Forecaster
from predictors.checks import CHECKS
from predictors.registry import FORECASTERS, SHOWN, make


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_registry_has_every_forecaster_class():
    for module in pkgutil.walk_packages(predictors.__path__, "predictors."):
        import_module(module.name)
    written = {kind for kind in subclasses(Forecaster) - {Forecaster} if kind.__module__.startswith("predictors.")}
    assert written == {type(make(name)) for name in FORECASTERS}


def test_names_are_their_own():
    assert [make(name).name for name in FORECASTERS] == list(FORECASTERS)
    assert set(SHOWN) <= set(FORECASTERS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FORECASTERS)
def test_it_keeps(name, check):
    check(lambda: make(name))
