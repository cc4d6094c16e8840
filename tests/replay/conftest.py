"""Shared by the tests on real input: the records, the published request type, and both colours of a chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from ._drive import Colour
from ._recorded import Record, read_records


@pytest.fixture(scope="session")
def records(data_dir: Path) -> list[Record]:
    """Every recording of this wire."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    return read_records(path)


@pytest.fixture(scope="session")
def schema_problems(data_dir: Path) -> Callable[[bytes], list[str]]:
    """Says what in a request's body the published request type does not allow."""
    path = data_dir / "schemas" / "sdk-openai-chat.schema.json"
    if not path.is_file():
        pytest.skip(f"no request schema: {path.name} is not in the data directory")
    validator = jsonschema_rs.validator_for(_any_of(json.loads(path.read_bytes())))

    def problems(body: bytes) -> list[str]:
        errors = validator.iter_errors(json.loads(body))
        return ["/".join(map(str, error.instance_path)) for error in errors]

    return problems


def _any_of(schema: Any) -> Any:
    """The schema with overlapping alternatives allowed to overlap."""
    if isinstance(schema, dict):
        renamed = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}
        return {key: _any_of(value) for key, value in renamed.items() if key != "discriminator"}
    return [_any_of(item) for item in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="module", params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Each test that asks for it, or for what is made of it, runs once with `Chat`, once with `AsyncChat`."""
    made = Colour(is_async=request.param == "async")
    yield made
    made.close()
