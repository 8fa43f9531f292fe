"""Functions that draw tables as Vega-Lite figures, without I/O.

Each function takes a name (for URLs), a title, the table to draw and the names of its columns; units are those of the
columns. A figure with too few data has an empty `spec`, and a note with the reason. In text values, invisible
characters are escaped; long names are shortened in the middle.
"""

from broker.reports.charts.against import scatter
from broker.reports.charts.amounts import bars
from broker.reports.charts.cells import grid
from broker.reports.charts.over_time import lines, series
from broker.reports.charts.ratios import intervals
from broker.reports.charts.times import gantt
from broker.reports.charts.trust import calibration

__all__ = ["bars", "calibration", "gantt", "grid", "intervals", "lines", "scatter", "series"]
