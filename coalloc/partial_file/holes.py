"""Long runs of zeros in arriving bytes, which need no blocks of the disk. Pure."""

__all__ = ["zero_runs"]

STEP = 8192
"""Bytes between the samples: so many that dense data cost no time, so few that most holes of a file are found."""
LEAST = 4096
"""Minimum bytes of a run: the blocks of most file systems."""
ZEROS = bytes(STEP)


def zero_runs(view: memoryview) -> list[tuple[int, int]]:
    """Return long runs of zeros [start, end) in order; each begins at a multiple of `STEP`.

    >>> zero_runs(memoryview(bytes(3 * STEP) + b"x")), zero_runs(memoryview(b"x" + bytes(2 * STEP - 1) + bytes(5000)))
    ([(0, 24576)], [(8192, 21384)])
    """
    samples = bytes(view[::STEP])
    found: list[tuple[int, int]] = []
    at = samples.find(0)
    while at >= 0:
        start = at * STEP
        block = view[start : start + STEP]
        if not block[-1] and block.tobytes() == ZEROS[: len(block)]:
            begun = found.pop()[0] if found and found[-1][1] == start else start
            found.append((begun, start + len(block)))
        at = samples.find(0, at + 1)
    return [(start, end) for start, end in found if end - start >= LEAST]
