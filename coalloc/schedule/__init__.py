"""The scheduler, which divides a file among sources: it turns events into actions. Pure: no clock, no I/O."""

from coalloc.schedule.scheduler import Scheduler

__all__ = ["Scheduler"]
