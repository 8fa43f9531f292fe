"""Who fetches what: plan and events in, actions out. Pure: no clock, no I/O."""

from coalloc.schedule.machine import Scheduler

__all__ = ["Scheduler"]
