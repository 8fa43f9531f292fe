"""The session layer: connections that are carried by a chain of depots, so that each leg has a short round trip.

`create_connection` and `open_connection` are for programs; `daemon` is the depot itself.
"""

from coalloc.depot.client import create_connection, open_connection
from coalloc.depot.route import DepotRoute, tickets_of

__all__ = ["DepotRoute", "create_connection", "open_connection", "tickets_of"]
