"""Work that takes much memory or time, in processes of its own with a budget: what exceeds it ends alone.

`Apart` is the side that asks, `child` the process that works; `Turns` share out what cannot be had apart. What is asked
for is a function that a module has, and values that can be pickled; it knows no database and no secret.
"""

from broker.apart.asking import Apart, Budget, Kind
from broker.apart.child import framed, frames
from broker.apart.turns import Turns

__all__ = ["Apart", "Budget", "Kind", "Turns", "framed", "frames"]
