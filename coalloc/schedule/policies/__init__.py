"""The co-allocation strategies, one per module; `make` returns the policy of a strategy."""

from typing import get_args

from coalloc.errors import UsageError
from coalloc.model.plans import Strategy
from coalloc.schedule.policies.adaptive import Adaptive
from coalloc.schedule.policies.aggressive import Aggressive
from coalloc.schedule.policies.base import Policy
from coalloc.schedule.policies.brute import Brute
from coalloc.schedule.policies.conservative import Conservative
from coalloc.schedule.policies.history import History
from coalloc.schedule.policies.single import Single

__all__ = ["NAMES", "Policy", "make"]

PLAIN: dict[str, type[Policy]] = {policy.name: policy for policy in (Single, Brute, History)}
IN_BLOCKS: dict[str, type[Conservative]] = {policy.name: policy for policy in (Conservative, Aggressive)}
NAMES = get_args(Strategy)


def make(name: str, blocks: int | None = None, *, widens: bool = True) -> Policy:
    """Return the policy of the strategy called `name`; `blocks` is k, the number of blocks, if it uses blocks.

    :param widens: whether `adaptive` may change the number of parallel streams
    :raises UsageError: if the name is unknown, or `blocks` is below 1 or given for a strategy without blocks
    """
    if name in IN_BLOCKS:
        if blocks is not None and blocks < 1:
            raise UsageError(f"--blocks {blocks} is not a number of blocks", "give 1 or more")
        return IN_BLOCKS[name](blocks)
    if name not in (*PLAIN, Adaptive.name):
        raise UsageError(f"unknown strategy {name}", f"choose one of {', '.join(NAMES)}")
    if blocks is not None:
        raise UsageError(f"--blocks makes no sense with --strategy {name}", f"use it with {' or '.join(IN_BLOCKS)}")
    return Adaptive(widens=widens) if name == Adaptive.name else PLAIN[name]()
