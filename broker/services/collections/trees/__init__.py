"""Trees: one interface to the directories and files of all kinds of collections.

All errors are `coalloc.errors.SourceError`s, so that the code that runs tasks has one family of errors to handle.
"""

from broker.services.collections.trees.base import Tree
from broker.services.collections.trees.catalogue import CatalogueTree
from broker.services.collections.trees.gridftp import GridFTPTree
from broker.services.collections.trees.local import LocalTree
from broker.services.collections.trees.message_paths import Naming, called, named
from broker.services.collections.trees.trees import Trees

__all__ = [
    "CatalogueTree",
    "GridFTPTree",
    "LocalTree",
    "Naming",
    "Tree",
    "Trees",
    "called",
    "named",
]
