"""Task submissions in Globus's form, and their translation to the broker's form, without I/O."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from broker.errors import Forbidden, Invalid
from broker.handlers.globus.errors import NoItems
from broker.handlers.globus.filters import moment
from broker.models.base import STORABLE, Exact
from broker.models.callers import Caller
from broker.models.tasks import FilterRule, Item, NewTask, Options
from broker.services.collection_paths import normal
from broker.services.tasks.submissions import DAY, due

__all__ = ["DeleteDocument", "Message", "TransferDocument", "label", "later"]

LONGEST_LABEL = 128
Text = Annotated[str, Field(max_length=5000)]
Message = Annotated[str, Field(max_length=1000, pattern=STORABLE)]
"""An admin's message to users."""
Priority = Annotated[int, Field(ge=-100, le=100)]


class ClientDocument(Exact):
    """A client's document, whose unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class TransferItem(ClientDocument):
    """A file, a directory, or a symbolic link (`transfer_symlink_item`)."""

    DATA_TYPE: Literal["transfer_item", "transfer_symlink_item"] = "transfer_item"
    source_path: Text
    destination_path: Text
    recursive: bool | None = None
    external_checksum: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{1,256}$")] | None = None
    checksum_algorithm: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,20}$")] | None = None

    def item(self) -> Item:
        """Return the item in the broker's form. :raises Invalid: when a path is not valid"""
        algorithm = (self.checksum_algorithm or "md5").lower().replace("-", "")
        has_checksum = (
            self.external_checksum or self.checksum_algorithm
        )  # an algorithm alone selects how the copy is verified
        return Item(
            source=normal(self.source_path),
            destination=normal(self.destination_path),
            recursive=self.recursive,
            symlink=self.DATA_TYPE == "transfer_symlink_item",
            checksum=f"{algorithm}:{(self.external_checksum or '').lower()}" if has_checksum else None,
        )


class DeleteItem(ClientDocument):
    """A path to delete; with `interpret_globs`, its last part is a pattern."""

    DATA_TYPE: Literal["delete_item"] = "delete_item"
    path: Text


class GlobusFilterRule(ClientDocument):
    """A rule that includes or excludes names."""

    method: Literal["include", "exclude"] = "exclude"
    name: Annotated[str, Field(min_length=1, max_length=1000)]
    type: Literal["file", "dir"] | None = None


class GlobusSubmission(ClientDocument):
    """The fields that transfers and deletions share."""

    submission_id: UUID
    label: str | None = None
    deadline: Annotated[str, Field(max_length=100)] | None = None
    priority: Priority = 0
    notify_on_succeeded: bool = True
    notify_on_failed: bool = True
    notify_on_inactive: bool = True

    def usual(self, caller: Caller, now: float) -> dict[str, Any]:
        """Return the fields that transfers and deletions share, in the broker's form.

        :raises Invalid: when the label or the deadline is not valid
        :raises Forbidden: when the caller sets a priority and is no admin
        """
        if self.priority and not caller.may("admin"):
            raise Forbidden(f"{caller.subject} may not set a priority", "leave it out, or ask an admin")
        return {
            "owner": caller.subject,
            "submission_id": self.submission_id,
            "label": label(self.label),
            "deadline": now + DAY if self.deadline is None else later(self.deadline, now),
            "deadline_asked": self.deadline is not None,
            "priority": self.priority,
        }


class TransferDocument(GlobusSubmission):
    """A transfer, with all options of Globus clients; `perf_*` tune GridFTP."""

    DATA_TYPE: Literal["transfer"] = "transfer"
    source_endpoint: UUID
    destination_endpoint: UUID
    sync_level: Annotated[int, Field(ge=0, le=3)] | None = None
    verify_checksum: bool = True
    preserve_timestamp: bool = False
    encrypt_data: bool = False
    skip_source_errors: bool = False
    fail_on_quota_errors: bool = False
    delete_destination_extra: bool = False
    recursive_symlinks: Literal["ignore", "keep", "copy"] = "ignore"
    filter_rules: Annotated[list[GlobusFilterRule], Field(max_length=1000)] | None = None
    perf_cc: Annotated[int, Field(ge=1, le=64)] | None = None
    perf_p: Annotated[int, Field(ge=1, le=64)] | None = None
    perf_pp: Annotated[int, Field(ge=1, le=1000)] | None = None
    DATA: list[TransferItem] = Field(default=[])

    def task(self, caller: Caller, now: float) -> NewTask:
        """Return the task in the broker's form, without queue. :raises NoItems: :raises Invalid: :raises Forbidden:"""
        if not self.DATA:
            raise NoItems("A transfer requires at least one item")
        return NewTask(
            **self.usual(caller, now),
            kind="TRANSFER",
            source=self.source_endpoint,
            destination=self.destination_endpoint,
            options=Options(
                sync_level=self.sync_level,
                verify_checksum=self.verify_checksum,
                preserve_timestamp=self.preserve_timestamp,
                encrypt_data=self.encrypt_data,
                skip_source_errors=self.skip_source_errors,
                fail_on_quota_errors=self.fail_on_quota_errors,
                delete_destination_extra=self.delete_destination_extra,
                recursive_symlinks=self.recursive_symlinks,
                filter_rules=tuple(
                    FilterRule(method=rule.method, name=rule.name, type=rule.type) for rule in self.filter_rules or ()
                ),
                perf_cc=self.perf_cc,
                perf_p=self.perf_p,
                perf_pp=self.perf_pp,
                notify_on_succeeded=self.notify_on_succeeded,
                notify_on_failed=self.notify_on_failed,
                notify_on_inactive=self.notify_on_inactive,
            ),
            items=tuple(each.item() for each in self.DATA),
        )


class DeleteDocument(GlobusSubmission):
    """A request to delete files and directories."""

    DATA_TYPE: Literal["delete"] = "delete"
    endpoint: UUID
    recursive: bool = False
    ignore_missing: bool = False
    interpret_globs: bool = False
    DATA: list[DeleteItem] = Field(default=[])

    def task(self, caller: Caller, now: float) -> NewTask:
        """Return the task in the broker's form, without queue. :raises NoItems: :raises Invalid: :raises Forbidden:"""
        if not self.DATA:
            raise NoItems("A delete requires at least one item")
        return NewTask(
            **self.usual(caller, now),
            kind="DELETE",
            source=self.endpoint,
            options=Options(
                recursive=self.recursive,
                ignore_missing=self.ignore_missing,
                interpret_globs=self.interpret_globs,
                notify_on_succeeded=self.notify_on_succeeded,
                notify_on_failed=self.notify_on_failed,
                notify_on_inactive=self.notify_on_inactive,
            ),
            items=tuple(Item(source=normal(each.path)) for each in self.DATA),
        )


def later(text: str, now: float) -> float:
    """Return a deadline in seconds since the epoch. :raises Invalid: when it is no time, past, or too far away"""
    return due(moment(text), now)


def label(text: str | None) -> str | None:
    """Return the label unchanged. :raises Invalid: when it is too long, or is not one printable line"""
    if text is not None and (len(text) > LONGEST_LABEL or not text.isprintable()):
        raise Invalid(f"{text[:80]!r} is not a label", f"give one of at most {LONGEST_LABEL} characters, in one line")
    return text
