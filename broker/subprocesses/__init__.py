"""Subprocesses for jobs that need much memory or time, with limits for each job.

`SeparateProcess` is the client, and `child` the program of the subprocess; `Turns` shares a resource fairly between
users. A job is a module's function with arguments that can be pickled; it has no access to the database or secrets.
"""

from broker.subprocesses.child import framed, frames
from broker.subprocesses.separate_process import Budget, JobKind, SeparateProcess
from broker.subprocesses.turns import Turns

__all__ = ["Budget", "JobKind", "SeparateProcess", "Turns", "framed", "frames"]
