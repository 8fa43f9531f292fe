"""A planner of transfers through a network: a network and a demand in, a certified plan out. Pure."""

from coalloc.planner.choose import plan
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.plan import Certificate, Limit, PlannedPath, TransferPlan

__all__ = [
    "Certificate",
    "Demand",
    "File",
    "Host",
    "Isp",
    "Limit",
    "Link",
    "LinkKey",
    "Network",
    "PlannedPath",
    "Shared",
    "TransferPlan",
    "plan",
]
