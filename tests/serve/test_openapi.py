"""The OpenAPI document: it is valid, names each route, and says what the server sends and takes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.serve.openapi import document_of
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said
from .test_carried import Carried

HALL = "/conversations/hall"
BUSY = Calls([("look", {"at": "x"}), ("fire", {"at": "y"})], text="Now.", reasoning="I see.")
APART = ("/openapi.json", "/healthz", "/readyz")
METHODS = {"get", "post", "put", "patch", "delete"}


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(document_of((AISDK, AGUI))).validate()  # type: ignore[arg-type]


def test_each_route_is_in_the_document_and_no_other() -> None:
    """A new route needs its line in `goaitools_py/serve/openapi.py`."""
    routes = {
        (method.lower(), route.path)  # type: ignore[attr-defined]
        for route in World().app.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    described = {
        (method, path)
        for path, node in document_of((AISDK, AGUI))["paths"].items()
        for method in METHODS & node.keys()
    }

    assert described == routes - {("get", path) for path in APART}


def test_operations_have_names_of_their_own() -> None:
    paths = document_of((AISDK, AGUI))["paths"]
    names = [node[method]["operationId"] for node in paths.values() for method in METHODS & node.keys()]

    assert len(names) == len(set(names))


@asynchronous
async def test_the_server_gives_the_document_to_everybody() -> None:
    """Also under a path of its own: the address of the server is in it."""
    world = World()

    status, found = await world.ask("GET", "/openapi.json", user=None)

    assert (status, found) == (200, json.loads(json.dumps(document_of((AISDK, AGUI)))))


@asynchronous
async def test_a_server_without_a_store_describes_itself() -> None:
    """Each of its routes is in the document, and its answers are as the document says."""
    world = Carried(BUSY, frontends=(AISDK,))
    world.held.set()
    status, document = await world.ask("GET", "/openapi.json", user=None)
    OpenAPIV31SpecValidator(document).validate()
    routes = {route.path for route in world.app.routes}  # type: ignore[attr-defined]
    assert (status, {*document["paths"], *APART}) == (200, routes)

    _, result = await world.ask("POST", "/turns", said(), user="game")
    query = {"state": result["state"]}
    _, events = await world.ask("POST", "/events", {**query, "events": [{"text": "Rain"}]}, user="game")
    _, messages = await world.ask("POST", "/messages", query, user="game")
    failed, problem = await world.ask("POST", "/turns", said(state="gas1.x"), user="game")
    assert failed == 400

    for name, found in (
        ("CarriedResult", result), ("CarriedState", events), ("CarriedMessages", messages),
        ("ProblemDocument", problem), ("CarriedText", said(state=None, conversation="hall")),
    ):  # fmt: skip
        _strict(name, document).validate(found)


def validator(name: str) -> Any:
    document = document_of()
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    )


@asynchronous
async def test_what_the_server_sends_is_what_the_document_says() -> None:
    """Results, histories, lists and problems, with all the members that they have. Unknown ones would be
    missing from the document."""
    world = World(BUSY, "Hit.")
    world.held.set()
    file = {"type": "file", "media_type": "image/png", "url": "data:image/png;base64,iVBO", "name": "a.png"}
    body = {"parts": [{"type": "text", "text": "Fire"}, file], "turn_id": "m1"}

    _, result = await world.ask("POST", f"{HALL}/turns", body, user="game")
    _, info = await world.ask("GET", HALL, user="game")
    _, _ = await world.ask(
        "POST", f"{HALL}/answers", {"answers": {"call_1_1": {"approve": True}}}, user="game"
    )
    _, messages = await world.ask("GET", f"{HALL}/messages", user="game")
    _, rows = await world.ask("GET", "/conversations", user="game")
    _, problem = await world.ask("GET", "/conversations/nothing", user="game")
    _, many = await world.ask("POST", "/events", {"hall": [{"text": "Rain"}], "..": []}, user="game")
    _, stopped = await world.ask("DELETE", f"{HALL}/turns/current", user="game")

    for name, found in (
        ("TurnResult", result), ("ConversationFacts", info), ("ConversationList", rows),
        ("ProblemDocument", problem),
        ("Stopped", stopped), ("Done", many["hall"]), ("ProblemDocument", many[".."]),
        *(("ShownMessage", message) for message in messages),
    ):  # fmt: skip
        _strict(name).validate(found)
    assert messages[0]["files"]
    assert {piece["type"] for piece in messages[1]["pieces"]} == {
        "text", "reasoning", "tool_call", "tool_result",
    }  # fmt: skip


def _strict(name: str, document: Any = None) -> Any:
    """A validator that knows no member beside those of the document."""
    schemas = json.loads(json.dumps((document or document_of())["components"]["schemas"]))
    for schema in schemas.values():
        if schema.get("type") == "object" and "properties" in schema:
            schema["additionalProperties"] = False
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    )


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("TextMessage", said()),
        ("TextMessage", said(context="10:20", metadata={"a": "b"})),
        ("Answers", {"answers": {"c": {"approve": True, "arguments": {"at": "y"}}}}),
        ("Answers", {"answers": {"c": {"deny": "no"}}}),
        ("Answers", {"answers": {"c": {"return": None, "is_error": True}}}),
    ],
)
def test_what_the_server_takes_is_in_the_document(name: str, body: Any) -> None:
    validator(name).validate(body)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("TextMessage", {"text": ""}),
        ("TextMessage", {"text": "a", "turn_id": "x" * 257}),
        ("TextMessage", {"text": "a", "txt": "b"}),
        ("PartsMessage", {"parts": []}),
        ("PartsMessage", {"parts": [{"type": "file", "url": "http://10.0.0.1/", "media_type": "image/png"}]}),
        ("Answers", {"answers": {}}),
        ("Answers", {"answers": {"c": {"approve": False}}}),
        ("NewEvent", {"text": "a", "kind": "b"}),
    ],
)
def test_what_the_server_refuses_is_not_in_the_document(name: str, body: Any) -> None:
    assert not validator(name).is_valid(body)
