"""Separate processes for work that takes much memory or time, with a budget: a job that exceeds it ends alone.

`SeparateProcess` is the side that asks, `child` the process that works; `Turns` share out work that cannot be done in
such a process. A job is a function of a module, with arguments that can be pickled; it has no access to the database or
secrets.
"""

from broker.subprocesses.child import framed, frames
from broker.subprocesses.separate_process import Budget, JobKind, SeparateProcess
from broker.subprocesses.turns import Turns

__all__ = ["Budget", "JobKind", "SeparateProcess", "Turns", "framed", "frames"]
