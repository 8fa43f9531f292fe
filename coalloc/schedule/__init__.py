"""The scheduler, which divides a file among sources: plan and events in, actions out. Pure: no clock, no I/O."""

from coalloc.schedule.scheduler import Scheduler

__all__ = ["Scheduler"]
