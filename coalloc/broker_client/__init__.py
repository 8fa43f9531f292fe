"""A client for the broker's HTTP interface.

The broker may be any server: the client limits the time and the length of its answers, and rejects values that make
no sense.
"""

from coalloc.broker_client.catalogue import Broker, Dataset, Found
from coalloc.broker_client.connection import BrokerRefuses, BrokerSilent
from coalloc.broker_client.tasks import BrokerTasks, Collection, PlannedFile, Submitted

__all__ = [
    "Broker",
    "BrokerRefuses",
    "BrokerSilent",
    "BrokerTasks",
    "Collection",
    "Dataset",
    "Found",
    "PlannedFile",
    "Submitted",
]
