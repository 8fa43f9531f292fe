"""Trees: folders and files of collections of every kind, to be examined, listed, made and renamed.

All errors are `coalloc.errors.SourceError`s, so that the code that carries out tasks has one family to handle.
"""

from broker.services.trees.base import Tree
from broker.services.trees.catalogue import CatalogueTree
from broker.services.trees.gridftp import GridFTPTree
from broker.services.trees.local import LocalTree
from broker.services.trees.naming import Naming, called, named
from broker.services.trees.trees import CredentialRefused, Trees

__all__ = [
    "CatalogueTree",
    "CredentialRefused",
    "GridFTPTree",
    "LocalTree",
    "Naming",
    "Tree",
    "Trees",
    "called",
    "named",
]
