"""The frozen vectors, as values.

Owns: reading `tests/golden/`, and the codecs that its names mean. Must never know: what is tested with them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from goaitools_py import PLAIN, UNBOUND
from goaitools_py.seal import Encrypted, Key, Keyring, Signed

__all__ = [
    "ACTIONS",
    "ANEW",
    "ARCHIVED",
    "BAD",
    "FACTS",
    "GOLDEN",
    "GOOD",
    "HOSTS",
    "LATER",
    "MEDIA",
    "OWN",
    "PARTED",
    "PINS",
    "RESULTS",
    "SECRETS",
    "UNSENT",
    "WAITING",
    "Vector",
    "codec_of",
    "smallest",
]

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SECRETS = {name: hashlib.sha256(f"goaitools-py golden key {name}".encode()).digest() for name in "ABC"}


@dataclass(frozen=True, slots=True)
class Vector:
    """One line of a file, its blob decoded."""

    name: str
    codec: str
    key: str
    bound: Mapping[str, str] | None
    blob: bytes = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)

    @property
    def opening(self) -> dict[str, Any]:
        """The codec and the binding that open it, as keywords."""
        return {"codec": codec_of(self.codec, self.key), "binding": self.binding}

    @property
    def binding(self) -> Any:
        """What it is bound to."""
        return self.bound if self.bound is not None else UNBOUND

    @property
    def secrets(self) -> list[bytes]:
        """The keys that open it."""
        return [SECRETS[self.key]] if self.key else []


@cache
def codec_of(name: str, *keys: str) -> Any:
    """The codec of a vector with these keys, the first one primary."""
    if name == "plain":
        return PLAIN
    ring = Keyring(*(Key(SECRETS[key]) for key in keys))
    if name == "signed":
        return Signed(ring)
    return Encrypted(ring, visible_to="client" if name == "encrypted-client" else "server")


def _read(name: str) -> list[Vector]:
    found = []
    for line in (GOLDEN / name).read_text(encoding="ascii").splitlines():
        facts = json.loads(line)
        found.append(
            Vector(
                facts["name"],
                facts["codec"],
                facts["key"],
                facts["binding"],
                base64.b64decode(facts["blob"], validate=True),
                facts,
            )
        )
    return found


GOOD = _read("v1-good.jsonl")
BAD = _read("v1-bad.jsonl")
ARCHIVED = _read("v1-archive.jsonl")
MEDIA = _read("v1-media.jsonl")
FACTS = _read("v1-facts.jsonl")
UNSENT = _read("v1-unsent.jsonl")
PINS = _read("v1-pins.jsonl")
RESULTS = _read("v1-results.jsonl")
ACTIONS = _read("v1-actions.jsonl")
WAITING = _read("v1-waiting.jsonl")
OWN = _read("v1-own.jsonl")
ANEW = _read("v1-anew.jsonl")
HOSTS = _read("v1-hosts.jsonl")
PARTED = _read("v1-parted.jsonl")
LATER = _read("v1-later.jsonl")


def smallest(codec: str) -> Vector:
    """The shortest good vector of a codec."""
    return min((each for each in GOOD if each.codec == codec), key=lambda each: len(each.blob))
