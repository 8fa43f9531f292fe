"""The broker over HTTP.

A broker is a stranger's program: what it answers is read with limits of time and length, and believed only where it
makes sense.
"""

from coalloc.brokerclient.catalogue import Broker, Dataset, Found
from coalloc.brokerclient.connection import BrokerRefuses, BrokerSilent
from coalloc.brokerclient.tasks import BrokerTasks, Collection, PlannedFile, Submitted

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
