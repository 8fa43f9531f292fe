"""A client for the broker's HTTP interface.

The broker may be any server: the client limits the time and the length of its answers, and rejects values that make
no sense.
"""

from coalloc.broker_client.catalogue import Broker, DatasetEntry, FoundReplicas
from coalloc.broker_client.connection import BrokerRefuses, BrokerSilent
from coalloc.broker_client.tasks import BrokerTasks, CollectionEntry, PlannedFile, SubmittedTask

__all__ = [
    "Broker",
    "BrokerRefuses",
    "BrokerSilent",
    "BrokerTasks",
    "CollectionEntry",
    "DatasetEntry",
    "FoundReplicas",
    "PlannedFile",
    "SubmittedTask",
]
