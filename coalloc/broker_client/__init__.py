"""A client for the broker's HTTP interface.

The client does not trust the broker: it limits the time and the length of its answers, and rejects impossible values.
"""

from coalloc.broker_client.catalogue import Broker, DatasetEntry
from coalloc.broker_client.tasks import BrokerTasks, CollectionEntry, PlannedFile, SubmittedTask
from coalloc.broker_connection import BrokerRefuses, BrokerSilent

__all__ = [
    "Broker",
    "BrokerRefuses",
    "BrokerSilent",
    "BrokerTasks",
    "CollectionEntry",
    "DatasetEntry",
    "PlannedFile",
    "SubmittedTask",
]
