"""Globus documents of tasks, as pure functions."""

from collections.abc import Mapping
from typing import Any

from broker.handlers.globus.errors import PREFIX
from broker.handlers.globus.filters import stamp
from broker.models.collections import Collection
from broker.models.standstills import PAUSES, Standstill, standstill
from broker.models.tasks import Event, Task
from broker.services.auth.identities import People
from broker.storage.tasks import FinishedWork

__all__ = ["event", "skipped", "submitted", "task", "transferred"]

SUBTASKS = {
    "total": "total",
    "pending": "pending",
    "retrying": "retrying",
    "succeeded": "succeeded",
    "failed": "failed",
    "canceled": "canceled_work",
    "expired": "expired",
    "skipped_errors": "skipped",
}
COUNTS = (
    "files",
    "directories",
    "symlinks",
    "files_skipped",
    "files_transferred",
    "bytes_transferred",
    "bytes_checksummed",
    "faults",
)
OPTIONS = (
    "sync_level",
    "verify_checksum",
    "encrypt_data",
    "preserve_timestamp",
    "skip_source_errors",
    "fail_on_quota_errors",
    "delete_destination_extra",
    "recursive_symlinks",
)
WITHOUT_VALUE = (
    "destination_base_path",
    "destination_host_endpoint",
    "destination_host_endpoint_display_name",
    "destination_host_endpoint_id",
    "destination_host_path",
    "destination_local_user",
    "destination_local_user_status",
    "destination_mapped_collection_display_name",
    "destination_mapped_collection_id",
    "nice_status_expires_in",
    "source_base_path",
    "source_host_endpoint",
    "source_host_endpoint_display_name",
    "source_host_endpoint_id",
    "source_host_path",
    "source_local_user",
    "source_local_user_status",
    "source_mapped_collection_display_name",
    "source_mapped_collection_id",
)


def task(known: Task, people: People, collections: Mapping[str, Collection], now: float) -> dict[str, Any]:
    """Return the document of a task at the time `now`."""
    over = known.completed_at is not None
    options = known.options
    stands = standstill(known, {number: found.name for number, found in collections.items()}, now)
    return {
        "DATA_TYPE": "task",
        **dict.fromkeys(WITHOUT_VALUE),
        "task_id": known.id,
        "type": known.kind,
        "status": known.status,
        "label": known.label,
        "owner_id": people.id(known.owner),
        "owner_string": known.owner,
        "username": people.username(known.owner),
        "command": "API 0.10",
        "request_time": stamp(known.requested_at),
        "completion_time": stamp(known.completed_at) if known.completed_at is not None else None,
        "deadline": stamp(known.deadline),
        "deadline_probability": known.deadline_chance,
        "deadline_holds_at": None if known.deadline_holds_at is None else stamp(known.deadline_holds_at),
        **_end("source", known.source, collections),
        **_end("destination", known.destination, collections),
        **{name: getattr(known, name) for name in COUNTS},
        **{f"subtasks_{name}": getattr(known, count) for name, count in SUBTASKS.items()},
        "effective_bytes_per_second": _rate(known, now),
        **_nice(known, stands),
        "is_paused": stands is not None and stands.code in PAUSES,
        "fatal_error": {"code": known.error_code, "description": known.error} if known.status == "FAILED" else None,
        "canceled_by_admin": "BOTH" if known.canceled_by_admin else None,
        "canceled_by_admin_message": known.cancel_message,
        "history_deleted": False,
        **{name: getattr(options, name) for name in OPTIONS},
        "filter_rules": [
            {"DATA_TYPE": "filter_rule", "method": rule.method, "name": rule.name, "type": rule.type}
            for rule in options.filter_rules
        ]
        or None,
        "key": f"{'complete' if over else 'active'},{known.completed_at or known.requested_at}",
        "priority": known.priority,
    }


def _end(side: str, number: str | None, collections: Mapping[str, Collection]) -> dict[str, Any]:
    """Return the fields for one of the two collections of a task; its name is None if it was deleted."""
    found = collections.get(number or "")
    name = found.name if found else None
    return {f"{side}_endpoint": name or number, f"{side}_endpoint_id": number, f"{side}_endpoint_display_name": name}


def _rate(known: Task, now: float) -> int:
    seconds = (known.completed_at or now) - (known.started_at or known.requested_at)
    return int(known.bytes_transferred / seconds) if seconds > 0 else 0


def _nice(known: Task, stands: Standstill | None) -> dict[str, Any]:
    """Return the fields that describe an active task's status: a code, a short description and a sentence."""
    over = known.completed_at is not None
    if stands is None:
        ok, word = (None, None) if over else (True, "OK")
    elif stands.code in PAUSES:
        ok, word = False, "PAUSED"
    elif known.error_code == stands.code:
        ok, word = False, stands.code
    else:
        ok, word = True, "Queued"
    return {
        "is_ok": ok,
        "nice_status": word,
        "nice_status_short_description": word if ok else word and word.replace("_", " ").lower(),
        "nice_status_details": stands and _sentence(known, stands),
        "nice_status_expires_in": None if over else -1,
    }


def _sentence(known: Task, stands: Standstill) -> str:
    """Return the reason and what to do; for a fault, with the message of the server."""
    return f"{stands}: {known.error}" if known.error_code == stands.code and known.error else str(stands)


def submitted(number: str) -> dict[str, Any]:
    """Return the fields with a submitted task's id and link."""
    link = {"DATA_TYPE": "link", "href": f"{PREFIX}/task/{number}?format=json"}
    return {"task_id": number, "task_link": {**link, "rel": "related", "resource": "task", "title": "related task"}}


def event(known: Event) -> dict[str, Any]:
    """Return the document of a task's event."""
    return {
        "DATA_TYPE": "event",
        "code": known.code,
        "description": known.description,
        "details": known.details,
        "is_error": known.is_error,
        "time": stamp(known.at),
    }


def transferred(done: FinishedWork) -> dict[str, Any]:
    """Return the document of a transferred file."""
    algorithm, _, value = (done.checksum or "").partition(":")
    return {
        "DATA_TYPE": "successful_transfer",
        "source_path": done.source,
        "destination_path": done.destination,
        "size": done.size,
        "checksum_algorithm": algorithm.upper() or None,
        "checksum": value or None,
        "verified": bool(value),
    }


def skipped(done: FinishedWork) -> dict[str, Any]:
    """Return the document of a file that was skipped because of an error."""
    return {
        "DATA_TYPE": "skipped_error",
        "source_path": done.source,
        "destination_path": done.destination,
        "error_code": done.error_code,
        "error_details": done.error,
        "error_time": stamp(done.finished_at) if done.finished_at is not None else None,
        "is_directory": done.kind in ("expand", "remove"),
        "is_symlink": done.kind == "link",
        "is_delete_destination_extra": done.kind in ("delete", "remove"),
        "external_checksum": None,
        "checksum_algorithm": None,
    }
