"""Globus documents of timers, as pure functions. They have the keys of both of its forms of timers."""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.handlers.globus.filters import stamp
from broker.models.oauth import TIMER
from broker.models.tasks import Item, Options
from broker.models.timers import Schedule, Timer, TimerRun, TimerTransfer

__all__ = ["timer"]

RUNS = "https://actions.automate.globus.org/transfer/transfer/run"
"""The address by which Globus's CLI recognises timers with transfers; nothing is sent there."""
Times = float | None


def timer(
    known: Timer, running: bool, runs: Sequence[TimerRun] = (), tasks: Mapping[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the document of a timer.

    :param running: whether the task of its last run is not over
    :param runs: its latest runs, the newest first
    :param tasks: documents of the tasks of these runs, by id
    """
    schedule = known.schedule
    body = _body(known.transfer)
    return {
        "job_id": str(known.id),
        "timer_type": "transfer",
        "name": known.name,
        "status": _status(known),
        "inactive_reason": _inactive(known),
        "activity": _activity(known, running),
        "submitted_at": stamp(known.submitted_at),
        "start": stamp(schedule.start),
        "interval": schedule.interval,
        "stop_after": _stop(schedule),
        "schedule": _schedule(schedule),
        "last_ran_at": _stamp(known.last_ran_at),
        "next_run": _stamp(known.next_run if known.stopped is None else None),
        "n_runs": known.runs,
        "n_errors": known.errors,
        "number_of_runs": known.runs,
        "number_of_errors": known.errors,
        "scope": None,
        "callback_url": RUNS,
        "callback_body": {"body": body},
        "body": body,
        "results": {"data": [_result(run, (tasks or {}).get(run.task_id or "")) for run in runs], "page_next": None},
    }


def _stamp(moment: Times) -> str | None:
    return None if moment is None else stamp(moment)


def _status(known: Timer) -> str:
    if known.next_run is None:
        return "ended"
    if known.stopped is not None:
        return "inactive"
    return "loaded" if known.runs else "new"


def _inactive(known: Timer) -> dict[str, Any] | None:
    """Return why a timer is inactive. The CLI asks for a new login if the reason is a missing authorization."""
    if known.stopped is None:
        return None
    if known.stopped == "user":
        return {"cause": "user", "detail": None}
    parameters = {"session_message": known.reason, "required_scopes": [TIMER]}
    return {
        "cause": "globus_auth_requirements",
        "detail": {"code": "ConsentRequired", "authorization_parameters": parameters},
    }


def _activity(known: Timer, running: bool) -> dict[str, Any] | None:
    if running:
        return {"code": "run_in_progress", "start_timestamp": _stamp(known.last_ran_at)}
    if known.next_run is None:
        return None
    return {"code": "paused" if known.stopped else "awaiting_next_run", "start_timestamp": None}


def _stop(schedule: Schedule) -> dict[str, Any] | None:
    runs = 1 if schedule.interval is None else schedule.most
    if runs is None and schedule.until is None:
        return None
    return {"date": _stamp(schedule.until), "n_runs": runs}


def _schedule(schedule: Schedule) -> dict[str, Any]:
    if schedule.interval is None:
        return {"type": "once", "datetime": stamp(schedule.start)}
    end: dict[str, Any] | None = None
    if schedule.most is not None:
        end = {"condition": "iterations", "count": schedule.most}
    elif schedule.until is not None:
        end = {"condition": "time", "datetime": stamp(schedule.until)}
    start = {"interval_seconds": schedule.interval, "start": stamp(schedule.start)}
    return {"type": "recurring", **start, "end": end}


def _body(transfer: TimerTransfer) -> dict[str, Any]:
    """Return the transfer document of a timer, without a submission id, since each run has its own."""
    return {
        "DATA_TYPE": "transfer",
        "source_endpoint": str(transfer.source),
        "destination_endpoint": str(transfer.destination),
        "label": transfer.label,
        "store_base_path_info": False,
        **_options(transfer.options),
        "DATA": [_item(each) for each in transfer.items],
    }


def _options(options: Options) -> dict[str, Any]:
    only_deletions = {"recursive", "ignore_missing", "interpret_globs", "dry_run"}
    document = options.model_dump(exclude=only_deletions)
    rules = [{"DATA_TYPE": "filter_rule", **rule.model_dump()} for rule in options.filter_rules]
    return document | {"filter_rules": rules or None}


def _item(item: Item) -> dict[str, Any]:
    algorithm, _, value = (item.checksum or "").partition(":")
    return {
        "DATA_TYPE": "transfer_symlink_item" if item.symlink else "transfer_item",
        "source_path": item.source,
        "destination_path": item.destination,
        "recursive": item.recursive,
        "external_checksum": value or None,
        "checksum_algorithm": algorithm or None,
    }


def _result(run: TimerRun, task: dict[str, Any] | None) -> dict[str, Any]:
    """Return the document of a run: the task that it submitted, or the error.

    :param task: document of its task; None if it submitted none, or the task is no longer known
    """
    status = task["status"] if task else "FAILED" if run.error_code else "UNKNOWN"
    times = {"start_time": stamp(run.ran_at), "completion_time": task and task["completion_time"]}
    data = {"action_id": run.task_id, "status": status, **times, "details": task}
    return {
        "ran_at": stamp(run.ran_at),
        "start_timestamp": stamp(run.ran_at),
        "end_timestamp": task["completion_time"] if task else stamp(run.ran_at),
        "run_status": status.lower(),
        "resource_id": run.task_id,
        "status": 202 if run.error_code is None else 403,
        "data": None if run.task_id is None else data,
        "errors": None if run.error_code is None else {"code": run.error_code, "detail": run.error},
    }
