"""Plans which bytes go over which hosts, and when: a network and a demand in, a certified plan out. Pure."""

from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared

__all__ = ["Demand", "File", "Host", "Isp", "Link", "LinkKey", "Network", "Shared"]
