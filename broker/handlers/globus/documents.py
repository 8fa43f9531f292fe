"""Globus documents of collections and files, as pure functions; `task_documents` has those of tasks."""

from collections.abc import Iterable, Sequence
from typing import Any

from broker.handlers.globus.errors import request_id
from broker.handlers.globus.filters import stamp
from broker.models.catalogue import Endpoint
from broker.models.collections import PAUSABLE, AccessRule, Bookmark, Collection, PauseRule
from broker.models.identities import number
from broker.services.auth.identities import People
from coalloc.model.listings import Entry

__all__ = [
    "access",
    "bookmark",
    "endpoint",
    "entity_type",
    "file",
    "listing",
    "pause_rule",
    "result",
    "server",
    "some",
]

TYPES = {"file": "file", "dir": "dir", "link": "invalid_symlink", "other": "unknown"}
WITHOUT_VALUE = (
    "authentication_assurance_timeout",
    "authentication_policy_id",
    "authentication_timeout_mins",
    "contact_email",
    "contact_info",
    "department",
    "gcp_connected",
    "gcp_paused",
    "gcs_manager_url",
    "gcs_version",
    "globus_connect_setup_key",
    "host_endpoint",
    "host_endpoint_display_name",
    "host_path",
    "https_server",
    "info_link",
    "keywords",
    "last_accessed_time",
    "location",
    "mapped_collection_display_name",
    "mapped_collection_id",
    "myproxy_dn",
    "myproxy_server",
    "non_functional_endpoint_display_name",
    "non_functional_endpoint_id",
    "oauth_server",
    "organization",
    "s3_url",
    "sharing_target_endpoint",
    "storage_type",
    "subscription_id",
    "tlsftp_server",
    "user_message",
    "user_message_link",
)
UNTRUE = (
    "activated_by_me",
    "disable_anonymous_writes",
    "disable_verify",
    "force_encryption",
    "force_verify",
    "french_english_bilingual",
    "high_assurance",
    "is_globus_connect",
    "is_go_storage",
    "local_user_info_available",
    "mfa_required",
    "non_functional",
    "requester_pays",
    "s3_owner_activated",
)


def result(kind: str, code: str, message: str, resource: str, **more: Any) -> dict[str, Any]:
    """Return the document for the result of a request."""
    fields = {"code": code, "message": message, "request_id": request_id(), "resource": resource}
    return {"DATA_TYPE": kind, **fields, **more}


def entity_type(collection: Collection) -> str:
    """Return the type of a collection in Globus's terms: one of those that need no management service."""
    return "GCSv4_share" if collection.share else "GCSv4_host"


def endpoint(
    collection: Collection, people: People, mine: bool, shown: bool, servers: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the document of a collection.

    :param people: identities that include the collection's owner
    :param mine: whether the caller may change its access rules
    :param shown: whether all users may see the collection
    """
    share = collection.share
    return {
        "DATA_TYPE": "endpoint",
        **dict.fromkeys(WITHOUT_VALUE),
        **dict.fromkeys(UNTRUE, False),
        "id": str(collection.id),
        "display_name": collection.name,
        "name": collection.name,
        "canonical_name": f"{collection.owner}#{collection.name}",
        "username": people.username(collection.owner),
        "description": collection.description,
        "entity_type": entity_type(collection),
        "shareable": collection.sharing,
        "host_endpoint_id": str(share.host) if share and mine else None,
        "sharing_target_root_path": share.folder if share and mine else None,
        "owner_id": people.id(collection.owner),
        "owner_string": collection.owner,
        "public": shown,
        "activated": True,
        "expires_in": -1,
        "expire_time": None,
        "acl_available": True,
        "acl_editable": mine,
        "in_use": False,
        "default_directory": "/",
        "max_concurrency": collection.concurrency,
        "network_use": "normal",
        "my_effective_roles": ["administrator"] if mine else [],
        "DATA": list(servers),
    }


def server(known: Endpoint) -> dict[str, Any]:
    """Return the document of a collection's GridFTP server."""
    port = known.port or {"ftp": 21, "gsiftp": 2811}.get(known.scheme)
    return {
        "DATA_TYPE": "server",
        "id": 1,
        "hostname": known.host,
        "uri": f"{known.scheme}://{known.host}:{port}",
        "port": port,
        "scheme": known.scheme,
        "subject": None,
        "is_connected": True,
        "is_paused": False,
        "incoming_data_port_start": None,
        "incoming_data_port_end": None,
        "outgoing_data_port_start": None,
        "outgoing_data_port_end": None,
    }


def file(entry: Entry) -> dict[str, Any]:
    """Return the document of a file, directory or symbolic link.

    The link's target is left out if it is absolute, since it would reveal the collection's path on the server.
    """
    return {
        "DATA_TYPE": "file",
        "name": _shown(entry.name),
        "type": TYPES[entry.kind],
        "size": entry.size or 0,
        "permissions": entry.permissions,
        "user": entry.user,
        "group": entry.group,
        "last_modified": None if entry.modified is None else stamp(entry.modified, " "),
        "link_target": _shown(target) if (target := entry.link_target) and not target.startswith("/") else None,
        "link_user": None,
        "link_group": None,
        "link_size": None,
        "link_last_modified": None,
    }


def _shown(name: str) -> str:
    """Return the name with `?` for characters that UTF-8 cannot encode."""
    return name if name.isascii() else name.encode(errors="replace").decode()


def listing(collection: Collection, path: str, files: list[dict[str, Any]], total: int) -> dict[str, Any]:
    """Return the document of a directory's listing, or of a part of it."""
    inside = path.rstrip("/") + "/"
    return {
        "DATA_TYPE": "file_list",
        "endpoint": str(collection.id),
        "path": inside,
        "absolute_path": inside,
        "rename_supported": collection.kind != "catalogue",
        "symlink_supported": collection.kind == "gridftp",
        "length": len(files),
        "total": total,
        "DATA": files,
    }


def access(rule: AccessRule, people: People) -> dict[str, Any]:
    """Return the document of an access rule; rules for roles, which Globus lacks, have the principal type `role`."""
    known = rule.principal
    if rule.principal_type == "identity" and number(known) is None:
        known = people.id(known)
    return {
        "DATA_TYPE": "access",
        "id": str(rule.id),
        "principal_type": rule.principal_type,
        "principal": known,
        "path": rule.path,
        "permissions": rule.permissions,
        "role_id": None,
        "role_type": None,
        "create_time": None,
        "expiration_date": None,
    }


def bookmark(known: Bookmark) -> dict[str, Any]:
    """Return the document of a bookmark."""
    return {
        "DATA_TYPE": "bookmark",
        "id": str(known.id),
        "name": known.name,
        "endpoint_id": str(known.collection_id),
        "path": known.path,
        "pinned": known.pinned,
    }


def pause_rule(rule: PauseRule, people: People, name: str, editable: bool) -> dict[str, Any]:
    """Return the document of a pause rule at a collection with this name."""
    return {
        "DATA_TYPE": "pause_rule",
        "id": str(rule.id),
        "message": rule.message,
        "endpoint_id": str(rule.collection_id),
        "endpoint_display_name": name,
        "identity_id": None if rule.subject is None else people.id(rule.subject),
        "start_time": None,
        "created_time": stamp(rule.created_at),
        "modified_time": stamp(rule.modified_at),
        "modified_by": rule.modified_by,
        "modified_by_id": people.id(rule.modified_by),
        "modified_by_host_manager": False,
        "created_by_host_manager": False,
        "editable": editable,
        **{f"pause_{operation}": operation in rule.operations for operation in PAUSABLE},
    }


def some(kind: str, documents: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a list of documents as a document."""
    data = list(documents)
    return {"DATA_TYPE": kind, "length": len(data), **more, "DATA": data}
