"""Holt's level and trend, Holt and Winters' daily season, and the rules for level shifts and outliers.

Source: He, Dovrolis and Ammar, "On the predictability of large transfer TCP throughput" (2005), section 5: HW, and
the rules that make it HW-LSO. A *level shift* is detected when the newest `TAIL` values lie all above, or all below,
every earlier one, and the two medians differ by more than `SHIFT`; earlier values are then forgotten. An *outlier* is
a value that differs from the median by more than `OUTLIER` while the next value does not; it is left out once the
next value is known.

The season of Winters (1960) has 24 hours, as load has a daily cycle: a factor of the level for each hour, which is 1
for hours without values.
"""

from predictors.compiled import compilable
from predictors.models.medians import median_forecast
from predictors.models.state import COUNT, SEEN, SIZE, VALUES, Family, Member, State, insert, ordered

__all__ = ["HOLT", "MEMBERS", "RULES", "SEASON"]

LEVEL_GAIN, TREND_GAIN, SEASON_GAIN = 0.8, 0.2, 0.1
"""Gains of He, Dovrolis and Ammar; the gain of the season is not from their paper."""
SHIFT, OUTLIER, TAIL = 0.3, 0.4, 3
MOST_VALUES = 32
"""Most values since the last shift that the rules consider."""
SLOW = 0.2
"""Gain of the level with a season."""
DAY, HOURS = 86400.0, 24
LEVEL, TREND, LEAST, NEWEST, WINDOW = 0, 1, 2, 3, 6
"""Positions in the state; with the rules, the newest three values and the window follow."""
NAN = float("nan")


@compilable
def follow(state: State, first: int, value: float) -> None:
    """Update Holt's level and trend, and the least value so far. The level is NaN before the first value."""
    level, trend = state[first + LEVEL], state[first + TREND]
    if level != level:
        state[first + LEVEL], state[first + LEAST] = value, value
        return
    now = level + trend + LEVEL_GAIN * (value - level - trend)
    state[first + LEVEL] = now
    state[first + TREND] = trend + TREND_GAIN * (now - level - trend)
    state[first + LEAST] = min(value, state[first + LEAST])


@compilable
def holt_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: level, trend, least value."""
    follow(state, first, value)


@compilable
def holt_forecast(state: State, first: int, at: float) -> float:
    """Return level plus trend, but not less than the least value so far."""
    level = state[first + LEVEL]
    return max(level + state[first + TREND], state[first + LEAST]) if level == level else NAN


@compilable
def away(value: float, median: float) -> bool:
    """Return whether a value differs from a median by more than `OUTLIER`."""
    return abs(value - median) > OUTLIER * min(value, median)


@compilable
def shifted(state: State, window: int) -> bool:
    """Return whether the newest `TAIL` values of an ordered window are a level shift."""
    count = int(state[window + COUNT])
    if count < 2 * TAIL:
        return False
    values = window + VALUES
    births = values + int(state[window + SIZE])
    new = state[window + SEEN] - TAIL
    below, above = True, True
    for i in range(TAIL):
        below = below and state[births + i] >= new
        above = above and state[births + count - 1 - i] >= new
    if not (below or above):
        return False
    after = state[values + TAIL // 2] if below else state[values + count - 1 - TAIL // 2]
    others = count - TAIL
    middle = values + others // 2 + (TAIL if below else 0)
    before = state[middle] if others % 2 else 0.5 * (state[middle - 1] + state[middle])
    return abs(after - before) > SHIFT * min(after, before)


@compilable
def rules_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value.

    State: level, trend and least value before the newest value; the newest three values; an ordered window.
    """
    window, before = first + WINDOW, state[first + NEWEST]
    if state[window + COUNT] > 0.0:
        median = median_forecast(state, window, at)
        if not away(before, median) or away(value, median):
            follow(state, first, before)
    state[first + NEWEST + 2], state[first + NEWEST + 1] = state[first + NEWEST + 1], before
    state[first + NEWEST] = value
    insert(state, window, value)
    if shifted(state, window):
        state[first + LEVEL], state[first + TREND] = NAN, 0.0
        state[window + COUNT] = 0.0
        for i in range(TAIL - 1, -1, -1):
            newest = state[first + NEWEST + i]
            insert(state, window, newest)
            if i > 0:
                follow(state, first, newest)


@compilable
def rules_forecast(state: State, first: int, at: float) -> float:
    """Return level plus trend after an update with the newest value."""
    newest, level, trend = state[first + NEWEST], state[first + LEVEL], state[first + TREND]
    if level != level:
        return newest
    now = level + trend + LEVEL_GAIN * (newest - level - trend)
    return max(now + trend + TREND_GAIN * (now - level - trend), min(newest, state[first + LEAST]))


@compilable
def season_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: level, trend, then a factor for each hour of the day."""
    hour = first + 2 + int(at % DAY * HOURS / DAY)
    level, trend = state[first + LEVEL], state[first + TREND]
    if level != level:
        state[first + LEVEL] = value
        return
    now = level + trend + SLOW * (value / state[hour] - level - trend)
    if now <= 0.0:  # the trend led too far down
        now, trend = level, 0.0
    state[first + LEVEL] = now
    state[first + TREND] = trend + TREND_GAIN * SLOW * (now - level - trend)
    state[hour] += SEASON_GAIN * (value / now - state[hour])


@compilable
def season_forecast(state: State, first: int, at: float) -> float:
    """Return level plus trend, times the factor of the hour."""
    level = state[first + LEVEL]
    expected = max(level + state[first + TREND], 0.5 * level)
    return expected * state[first + 2 + int(at % DAY * HOURS / DAY)] if level == level else NAN


HOLT = Family("Holt", holt_learn, holt_forecast)
RULES = Family("Holt with rules", rules_learn, rules_forecast)
SEASON = Family("Holt-Winters", season_learn, season_forecast)

MEMBERS = (
    Member("Holt", HOLT, (NAN, 0.0, NAN), "level and trend"),
    Member(
        "Holt with rules",
        RULES,
        (NAN, 0.0, NAN, NAN, NAN, NAN, *ordered(MOST_VALUES)),
        "level and trend since the last level shift, without outliers",
    ),
    Member("Holt-Winters", SEASON, (NAN, 0.0, *([1.0] * HOURS)), "level, trend and the hour of the day"),
)
