from coalloc.engine.sessions.route_meter import BEGINNING, RouteMeter


def ignore(start: int, end: int, data: memoryview | None) -> None:
    pass


def test_the_beginning_is_that_of_one_session():
    meter = RouteMeter(lambda: "a:4000")
    assert meter.use is None
    for seconds in (0.25, 0.5):
        meter.opened(seconds)
    with meter.fetching(ignore, "one") as first, meter.fetching(ignore, "two") as second:
        second(0, BEGINNING, None)
        first(0, 1000, None)
        first(1000, 3000, None)
    use = meter.use
    assert use
    assert (use.route, use.bytes, use.sessions, use.opening_seconds) == ("a:4000", BEGINNING + 3000, 2, 0.25)
    assert use.beginning == 3000
    assert 0 <= use.beginning_seconds <= use.seconds


def test_the_beginning_ends_after_a_megabyte():
    meter = RouteMeter(lambda: "none")
    meter.opened(0.1)
    with meter.fetching(ignore, "one") as counted:
        for start in range(0, 10 * BEGINNING, BEGINNING // 2):
            counted(start, start + BEGINNING // 2, None)
    assert meter.use
    assert (meter.use.beginning, meter.use.bytes) == (BEGINNING, 10 * BEGINNING)


def test_after_a_fallback_to_another_route_nothing_more_is_counted():
    routes = iter(["a:4000", "none"])
    meter = RouteMeter(lambda: next(routes))
    got = []
    for count in (5, 7):
        meter.opened(0.1)
        with meter.fetching(lambda start, end, data: got.append(end - start), "one") as counted:
            counted(0, count, None)
    assert got == [5, 7]
    assert meter.use
    assert (meter.use.route, meter.use.bytes) == ("a:4000", 5)
