"""Figures from tables: which column goes where, and why too few rows say nothing; pure.

Each is told a name (in addresses), a title, the table that it draws and the names of its columns; units are the
columns' own. A figure of too few data has an empty `spec`, and its note says why. Values of text are shown as they
are, but for letters that do not show; names that are too long lose their middle.
"""

from broker.reports.charts.against import scatter
from broker.reports.charts.amounts import bars
from broker.reports.charts.cells import grid
from broker.reports.charts.over_time import lines, series
from broker.reports.charts.times import gantt
from broker.reports.charts.trust import calibration

__all__ = ["bars", "calibration", "gantt", "grid", "lines", "scatter", "series"]
