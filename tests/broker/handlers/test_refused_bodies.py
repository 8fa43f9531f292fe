"""Refused bodies: the answer names the input and its fault, never the broker's internals."""

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from broker.handlers import others, own
from broker.models.faults import place

JUNK = (None, True, -1, 1.5, 10**30, "x\0", "x" * 3000, [], [1], ["x"], {}, {"x": {}}, [[{}]])
OURS = re.compile(r"function-|tagged-union|constrained-|is-instance|nullable|literal\[|list\[|dict\[|union\[|\[key\]")


def _routes() -> list[APIRoute]:
    found = (context.original_route for context in iter_route_contexts([*own, *others]))
    return [each for each in found if isinstance(each, APIRoute) and each.body_field is not None]


def _wrong(schema: dict[str, Any], named: dict[str, Any], depth: int = 0) -> Iterator[Any]:
    """Return invalid bodies for this schema: wholly random ones, then valid ones with one random part."""
    yield from JUNK
    schema = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _wrong(each, named, depth)
    if depth < 4 and schema.get("type") == "array":
        for each in _wrong(schema.get("items", {}), named, depth + 1):
            yield [each]
    if isinstance(inner := schema.get("additionalProperties"), dict) and depth < 4:
        for each in _wrong(inner, named, depth + 1):
            yield {"x": each, "": each}
    right = {name: _right(each, named) for name, each in schema.get("properties", {}).items()}
    if right:
        yield right
        yield {**right, "unknown": 1}
    for name, each in schema.get("properties", {}).items() if depth < 4 else ():
        yield {other: value for other, value in right.items() if other != name}
        for wrong in _wrong(each, named, depth + 1):
            yield {**right, name: wrong}


def _right(schema: dict[str, Any], named: dict[str, Any]) -> Any:
    """Return a valid value of the type, so that validators of whole objects run."""
    schema = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if options := (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return _right(options[0], named)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        return {name: _right(each, named) for name, each in schema.get("properties", {}).items()}
    return {"string": "x", "integer": 1, "number": 1, "boolean": False, "array": []}.get(str(schema.get("type")))


ROUTES = _routes()


def test_many_routes_are_checked():
    assert len(ROUTES) > 20
    assert {"/broker/v1/transfers", "/broker/v1/decisions", "/v0.10/transfer"} <= {each.path for each in ROUTES}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")
async def test_no_answer_names_a_type_of_ours(admin, route):
    field = route.body_field
    schema = TypeAdapter(field.field_info.annotation).json_schema()
    types = re.compile(rf"\b({'|'.join(schema.get('$defs', {})) or 'none'})\b")
    path = re.sub(r"\{\w+(:path)?\}", "00000000-0000-4000-8000-000000000000", route.path)
    refused = 0
    for body in _some(_wrong(schema, schema.get("$defs", {}))):
        answer = await admin.request(min(route.methods), path, json=body)
        assert answer.status_code < 500, (body, answer.text)
        if answer.status_code in (400, 422):
            refused += 1
            assert not OURS.search(answer.text), (body, answer.text)
            assert not types.search(answer.text), (body, answer.text)
    assert refused


def _some(bodies: Iterator[Any], most: int = 400) -> list[Any]:
    """Return this many of the bodies, spread evenly."""
    every = list(bodies)
    return every[:: max(1, len(every) // most)]


@pytest.mark.parametrize(
    "body",
    [{}, [{}], [1], "x", {"id": "a", "source": "ftp://a", "started": 2, "ended": 1, "bytes": 0}],
)
async def test_the_message_about_a_body_names_only_its_own_type(admin, body):
    """A list as input gives no message about objects, and the reverse."""
    message = (await admin.post("/broker/v1/transfers", json=body)).json()["error"]["message"]
    assert ("list" in message, "object" in message) == (False, body in ([1], "x"))
    assert all(each.startswith("body") for each in message.split("; "))


async def test_lines_of_an_import_are_refused_the_same_way(admin):
    lines = ['{"name": "a:b", "checksums": {"sha999": "x"}}', '{"name": "a:b", "checksums": {"md5": 5}}', "[]", "{}"]
    answer = await admin.post("/broker/v1/import?format=ndjson", content=io.BytesIO("\n".join(lines).encode()).read())
    assert not OURS.search(answer.text), answer.text


PART = st.one_of(st.text(max_size=5), st.integers(0, 3), st.just("function-after[_x(), Y]"), st.just("list[Y]"))
DOCUMENT = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(PART, max_size=6), DOCUMENT, st.booleans())
def test_a_place_has_only_parts_that_lead_through_the_document(parts, document, missing):
    found = place(["body", *parts], document, missing)
    assert found[0] == "body"
    names = {part for part in parts if isinstance(part, str) and "[" in part}
    if not (missing and parts and parts[-1] in names):
        assert not names & set(found)


@given(DOCUMENT)
def test_a_true_place_is_left_as_it_is(document):
    here, loc = document, ["body"]
    while isinstance(here, list | dict) and here:
        step = next(iter(here)) if isinstance(here, dict) else 0
        loc.append(step)
        here = here[step]
    assert place(loc, document) == [str(each) for each in loc]
