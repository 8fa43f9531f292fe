"""The seconds in which a class of files was late."""

from coalloc.guarantees.class_pace import ClassPace


def run(pace: ClassPace, arrivals: list[int]) -> tuple[int, int]:
    """Note what has arrived in all at the end of each quarter second; return the windows and the late ones."""
    for number, arrived in enumerate(arrivals, 1):
        pace.note(arrived, number / 4)
    return pace.result


def test_bytes_are_due_at_the_end_of_their_second():
    assert run(ClassPace(100.0, 1000, 0, 0.0), [0, 0, 100, 100, 100]) == (1, 0)
    assert run(ClassPace(100.0, 1000, 0, 0.0), [0, 0, 99, 99, 99]) == (1, 1)


def test_early_bytes_count_later_and_late_ones_are_missed_until_they_come():
    assert run(ClassPace(100.0, 1000, 250, 0.0), [250] * 17) == (4, 2)
    assert run(ClassPace(100.0, 1000, 0, 0.0), [0] * 8 + [400] * 9) == (4, 2)


def test_nothing_is_missed_after_the_end():
    assert run(ClassPace(100.0, 150, 0, 0.0), [100] * 4 + [150] * 40) == (1, 0)
    assert run(ClassPace(100.0, 0, 0, 0.0), [0] * 40) == (0, 0)


def test_a_long_silence_is_missed():
    """A process that was stopped notes nothing for a minute."""
    pace = ClassPace(100.0, 10_000, 500, 0.0)
    pace.note(600, 60.0)
    assert pace.result == (60, 55)
