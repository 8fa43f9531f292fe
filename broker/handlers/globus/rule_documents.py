"""Documents of access rules and pause rules, with users' UUIDs from the database."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from broker.factory import Factory
from broker.handlers.globus import documents
from broker.handlers.globus.routers import Document
from broker.models.collections import AccessRule, Collection, PauseRule

__all__ = ["access", "pause_rules"]


async def access(services: Factory, rules: Sequence[AccessRule]) -> list[Document]:
    """Return the documents of access rules."""
    people = await services.identities.people(each.principal for each in rules if each.principal_type == "identity")
    return [documents.access(each, people) for each in rules]


async def pause_rules(
    services: Factory, rules: Sequence[PauseRule], collections: Mapping[UUID, Collection], editable: bool
) -> list[Document]:
    """Return the documents of pause rules, with the names of their collections."""
    subjects = [each for rule in rules for each in (rule.subject, rule.modified_by) if each is not None]
    people = await services.identities.people(subjects)
    return [documents.pause_rule(each, people, collections[each.collection_id].name, editable) for each in rules]
