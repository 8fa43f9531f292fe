"""SQL that generates a year of transfers, and the scores that the scorer would compute for them.

Placeholders: `{rows}` is the number of transfers, `{begin}` the time of the first, `{step}` the seconds between two,
`{random}` an expression for a random number from 0 to 1, `{least}` the name of the database's minimum function. The
statements for transfers work only on PostgreSQL.
"""

from predictors.context import SIZES

__all__ = ["ACCURACY", "DAY", "OBSERVATIONS", "PAIRS", "ROUTES", "SCORES", "STANDS"]

DAY = 86_400.0
CASES = " ".join(f"WHEN bytes < {size} THEN {number}" for number, size in enumerate(map(int, SIZES)))
CLASS = f"CASE {CASES} ELSE {len(SIZES)} END"
PANEL = (
    "last",
    "running mean",
    "mean of 25",
    "median of 25",
    "smoothing 0.20",
    "AR(5)",
    "kernel",
    "hierarchy",
    "hedge",
)
SAID = ", ".join(f'"{name}": [1.2345e8, 2.3456e8, 3.4567e8]' for name in PANEL)

PAIRS = """INSERT INTO pairs (id, source, sink, direction, observations, newest_id, newest_end)
SELECT i, 'gsiftp://dtn' || i % 40 || '.example', 'SITE' || i / 40, 'read', 0, 0, 0
FROM generate_series(1, 1000) AS i"""

OBSERVATIONS = """SELECT setseed(0.5);
INSERT INTO observations (ended, started, pair_id, bytes, setup_seconds, ranges, streams, concurrency, file_class,
    outcome, error, subject)
SELECT ended, ended - 0.2 - bytes / (1e7 * (1 + pair % 50) * exp(0.6 * (noise - 0.5))), pair, bytes::bigint, 0.2,
    1, 4, 0, '', CASE WHEN luck < 0.02 THEN 'failed' ELSE 'ok' END, CASE WHEN luck < 0.02 THEN 'no route' END,
    'user' || i % 5
FROM (SELECT i, {begin} + i * {step} AS ended, 1 + floor(1000 * power(random(), 2))::int AS pair,
    floor(power(10, 6.5 + 3.5 * random())) AS bytes, random() AS noise, random() AS luck
    FROM generate_series(1, {rows}) AS i OFFSET 0) AS made"""

STANDS = """UPDATE pairs
SET observations = seen.count, newest_id = seen.id, newest_end = seen.ended, scored_id = seen.id
FROM (SELECT pair_id, count(*) AS count, max(id) AS id, max(ended) AS ended FROM observations GROUP BY pair_id) AS seen
WHERE pairs.id = seen.pair_id"""

INDEXES = {
    "ix_scores_pair_id_ended": "pair_id, ended",
    "ix_scores_pair_id_size_class_ended": "pair_id, size_class, ended",
    "ix_scores_subject_ended": "subject, ended",
    "ix_scores_ended": "ended",
}
SCORES = f"""{"".join(f"DROP INDEX {name};" for name in INDEXES)}
INSERT INTO scores (observation_id, pair_id, size_class, subject, started, ended, bytes, rate, setup_seconds,
    forecaster, leader, given, p10, p50, p90, panel)
SELECT id, pair_id, {CLASS}, subject, started, ended, bytes, rate, setup_seconds, 'hedge', 'last', false,
    0.7 * p50, p50, 1.4 * p50, '{{{SAID}}}'
FROM (SELECT *, rate * exp(0.8 * ({{random}} - 0.5)) AS p50
    FROM (SELECT *, bytes / (ended - started - 0.2) AS rate FROM observations WHERE outcome = 'ok') AS went) AS said;
{"".join(f"CREATE INDEX {name} ON scores ({columns});" for name, columns in INDEXES.items())}"""

SUMS = """count(*) AS a, sum(ln(p50 / rate)) AS b, sum(abs(ln(p50 / rate))) AS c,
    sum(power((p50 - rate) / {least}(p50, rate), 2)) AS d, count(*) FILTER (WHERE abs(p50 / rate - 1) <= 0.15) AS e,
    count(*) FILTER (WHERE rate < p10) AS f, count(*) FILTER (WHERE rate > p90) AS g, sum(ln(p90 / p10)) AS h,
    '{"252": ' || (count(*) / 2) || ', "-250": ' || (count(*) - count(*) / 2) || '}' AS i"""
NAMES = " UNION ALL ".join(f"SELECT '{name}' AS name" for name in ("in charge", *PANEL))


def _accuracy(pair: str) -> str:
    week = f"CAST(floor(ended / {7 * DAY}) AS INTEGER) AS week"
    sums = f"SELECT {week}, {pair} AS pair, size_class AS size, {SUMS} FROM scores GROUP BY 1, 2, 3"
    return f"""INSERT INTO accuracy SELECT week, pair, size, name, a, b, c, d, e, f, g, h, i
FROM ({sums}) AS sums, ({NAMES}) AS names"""


ACCURACY = f"{_accuracy('pair_id')};{_accuracy('0')}"

ROUTES = """INSERT INTO route_measurements (ended, reporter, site, scheme, host, route, bytes, seconds, sessions,
    opening_seconds, beginning, beginning_seconds)
WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < {rows} - 1)
SELECT {begin} + (i - i % 4) * {step}, 'user' || (i / 4 % 5), 'SITE' || (i / 4 % 25), 'gsiftp',
    'dtn' || (i / 4 % 40) || '.example', CASE i % 4 WHEN 0 THEN 'none' ELSE 'depot' || (i % 4) || '.example:4000' END,
    1e9, 10.0, 1, 0.1 + 0.1 * {random}, 1048576, 0.1 + (1 + i % 4) * 0.1 * {random}
FROM numbers"""
