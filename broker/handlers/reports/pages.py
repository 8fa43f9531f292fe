"""Reports as web pages, one page per report, with the report's parameters as fields of a form."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel

from broker.dependencies.context import Services
from broker.dependencies.sessions import Browsing, Form, browsing
from broker.handlers.reports.forms import acts
from broker.handlers.reports.routes import Tidy, asking, made
from broker.handlers.routers import page_router
from broker.models.callers import Caller
from broker.pages import shown
from broker.reports.drawing import DRAWING, drawn
from broker.reports.queries import day_of
from broker.reports.registry import REPORTS, ReportKind

__all__ = ["router"]

router = page_router("/reports", Tidy)
NUMBERS = ("integer", "number")


def _menu(caller: Caller) -> list[ReportKind]:
    """Return the reports for the menu: those that the caller may see, except reports with required parameters."""
    return [kind for kind in REPORTS.values() if kind.listed and (caller.may("admin") or not kind.admin)]


@router.get("")
async def first(caller: Browsing) -> Response:
    """Redirect to the first report."""
    return RedirectResponse(f"/reports/{_menu(caller)[0].name}", 303, {"Cache-Control": "no-store"})


def _page(kind: ReportKind) -> Callable[..., Any]:
    async def show(request: Request, caller: Any, form: Form, services: Services, parameters: Any) -> Response:
        report = await made(kind, services, caller, parameters)
        query = f"?{request.url.query}" if request.url.query else ""
        return shown(
            "report",
            name=kind.name,
            report=report,
            drawn=await services.drawing.run(DRAWING, caller.subject, drawn, report.figures),
            fields=_fields_of(parameters),
            query=query,
            menu=_menu(caller),
            caller=caller,
            form=form,
            acts=acts(caller, form, f"{request.url.path}{query}"),
            live=kind.live is not None,
        )

    return asking(kind, show, browsing(kind.admin))


class _FormField(NamedTuple):
    """A field of a form.

    :param value: current value; empty if none
    :param options: possible values and their labels; empty if any value is possible
    :param kind: type of the field: text, number or date
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: Mapping[str, str] = {}
    kind: Literal["text", "number", "date"] = "text"


def _fields_of(parameters: BaseModel) -> list[_FormField]:
    """Return the form fields for a report's parameters, with their values; fields marked `hidden` are left out."""
    schema = type(parameters).model_json_schema()
    values = parameters.model_dump(mode="json")
    shown = {name: each for name, each in schema["properties"].items() if not each.get("hidden")}
    return [_field(name, each, values[name], schema.get("$defs", {})) for name, each in shown.items()]


def _field(name: str, schema: Mapping[str, Any], value: Any, named: Mapping[str, Any]) -> _FormField:
    kinds = [_resolved(each, named) for each in schema.get("anyOf", [schema])]
    kind = next(each for each in kinds if each.get("type") != "null")
    options = _options(kind)
    if options and schema.get("default") is None:
        options = {"": "any", **options}
    hint = str(schema.get("description", kind.get("description", "")))
    label = _label(name, str(schema["title"]))
    if kind.get("day"):
        return _FormField(name, label, "" if value is None else day_of(value), hint, kind="date")
    return _FormField(name, label, _text(value), hint, options, "number" if kind.get("type") in NUMBERS else "text")


def _options(kind: Mapping[str, Any]) -> dict[str, str]:
    if words := kind.get("words"):
        return dict(words)
    listed = kind.get("enum", (False, True) if kind.get("type") == "boolean" else ())
    return {each: each for each in map(_text, listed)}


def _label(name: str, title: str) -> str:
    """Return a field's label: its explicit title, otherwise its name as words with a capital first letter."""
    return title.capitalize() if title == name.replace("_", " ").title() else title


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _text(value: Any) -> str:
    """Return a value as text for a query."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


for each in REPORTS.values():
    router.add_api_route(f"/{each.name}", _page(each))
