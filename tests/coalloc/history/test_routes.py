import pytest

from coalloc.history.route_values import MeasuredRoute, expected_times
from coalloc.history.routes import RouteHistory
from coalloc.model.routes import RouteUse

MIB = 1024 * 1024
NOW = 1_700_000_000.0
DAY = 86400.0


def measured(route: str, opening: float, beginning: float, ago: float = 0.0, **fields) -> MeasuredRoute:
    size = fields.pop("size", MIB)
    use = RouteUse(route, size, 1.0, 1, opening, size, beginning)
    return MeasuredRoute(fields.get("scheme", "ftp"), fields.get("host", "a.example"), NOW - ago, use)


@pytest.fixture
def history(tmp_path) -> RouteHistory:
    return RouteHistory(tmp_path / "history.sqlite")


def test_each_route_to_a_host_has_its_expected_time(history):
    history.add([measured("none", 0.2, 0.3), measured("depot:4000", 0.3, 0.1), measured("none", 1, 1, host="b")])
    assert expected_times(history.newest(NOW)) == {
        "a.example": {"none": 0.5, "depot:4000": pytest.approx(0.4)},
        "b": {"none": 2.0},
    }


def test_the_median_of_the_newest_five_is_expected(history):
    history.add(measured("none", opening, 0, ago) for ago, opening in enumerate([1, 9, 2, 8, 3, 1000, 1000, 1000]))
    assert expected_times(history.newest(NOW)) == {"a.example": {"none": 3}}


def test_old_and_small_measurements_do_not_count(history):
    history.add([measured("none", 1, 1, ago=8 * DAY), measured("none", 1, 1, size=MIB // 4)])
    assert not history.newest(NOW)
    history.add([measured("none", 1, 1, size=MIB // 2)])
    assert expected_times(history.newest(NOW)) == {"a.example": {"none": 3}}


def test_other_schemes_are_not_compared(history):
    history.add([measured("none", 1, 1, ago=9), measured("none", 7, 0, ago=8, scheme="http")])
    history.add([measured("depot:4000", 1, 1, ago=7)])
    assert expected_times(history.newest(NOW)) == {"a.example": {"none": 2, "depot:4000": 2}}


def test_without_measurements_there_is_no_file(history):
    history.add([])
    assert not history.newest(NOW)
    assert not history.path.exists()
