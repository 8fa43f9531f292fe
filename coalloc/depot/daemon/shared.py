"""The parts of a depot that its sessions share."""

import asyncio
from typing import NamedTuple

from coalloc.depot.daemon.audit import AuditLog
from coalloc.depot.daemon.broker_link import BrokerLink
from coalloc.depot.daemon.forwarding import ForwardingTable
from coalloc.depot.daemon.limits import Limits
from coalloc.depot.daemon.metrics import Metrics
from coalloc.depot.daemon.pump import Pump
from coalloc.depot.daemon.settings import DepotSettings

__all__ = ["Depot"]


class Depot(NamedTuple):
    """The parts of a depot that its sessions share.

    :param table: forwarding table of the admin; None for none
    :param broker: connection to a broker; None for none
    :param ports: tasks of the open ports
    :param closing: set when the depot shuts down, and accepts no more connections
    """

    settings: DepotSettings
    limits: Limits
    pump: Pump
    audit: AuditLog
    metrics: Metrics
    table: ForwardingTable | None
    broker: BrokerLink | None
    ports: set[asyncio.Task[None]]
    closing: asyncio.Event

    @property
    def sessions(self) -> int:
        """The number of sessions: of those whose bytes are carried, and of those with a port."""
        return len(self.pump) + len(self.ports)
