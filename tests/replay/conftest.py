"""Shared by the tests on real input: the records, the published request types, and both colours of a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from ._drive import Colour
from ._recorded import Record, read_records
from ._replays import Measured, Replays, measure, replay_all, table
from ._wire import Wire

pytest.register_assert_rewrite("tests.replay._facts")


@pytest.fixture(scope="session")
def read_wire(data_dir: Path) -> Callable[[Wire], list[Record]]:
    """Reads every recording of a wire, once."""

    known: dict[str, list[Record]] = {}

    def read(wire: Wire) -> list[Record]:
        path = data_dir / "recorded" / wire.recording
        if not path.is_file():
            pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
        if wire.name not in known:
            known[wire.name] = read_records(path, wire)
        return known[wire.name]

    return read


@pytest.fixture(scope="session")
def schema_problems(data_dir: Path) -> Callable[[str], Callable[[bytes], list[str]]]:
    """Says what in a request's body a published request type does not allow."""

    @cache
    def of(name: str) -> Callable[[bytes], list[str]]:
        path = data_dir / "schemas" / name
        if not path.is_file():
            pytest.skip(f"no request schema: {path.name} is not in the data directory")
        validator = jsonschema_rs.validator_for(_any_of(json.loads(path.read_bytes())))

        def problems(body: bytes) -> list[str]:
            errors = validator.iter_errors(json.loads(body))
            return ["/".join(map(str, error.instance_path)) for error in errors]

        return problems

    return of


def _any_of(schema: Any) -> Any:
    """The schema with overlapping alternatives allowed to overlap."""
    if isinstance(schema, dict):
        renamed = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}
        return {key: _any_of(value) for key, value in renamed.items() if key != "discriminator"}
    return [_any_of(item) for item in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="class", params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Each test that asks for it, or for what is made of it, runs once with `Chat`, once with `AsyncChat`."""
    made = Colour(is_async=request.param == "async")
    yield made
    made.close()


@pytest.fixture(scope="class")
def replays(
    request: pytest.FixtureRequest, read_wire: Callable[[Wire], list[Record]], colour: Colour
) -> Replays:
    """Every thread of the recordings of a class's `wire`, driven once for all tests of a colour."""
    wire = request.cls.wire
    return replay_all(wire, colour, read_wire(wire))


@pytest.fixture(scope="class")
def measured(request: pytest.FixtureRequest, replays: Replays) -> list[Measured]:
    """Every link that was driven, held against both rules; printed as a table."""
    found = measure(replays, of_dialect=request.cls.of_dialect)
    print(table(replays, found))
    return found
