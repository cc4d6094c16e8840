"""Signatures of thinking. They are bound to the model, the system prompt, the tools and all earlier messages.

Owns: how a thinking block is signed, and how a signature is checked. Must never know: a server or a memory,
because the signature and the request hold everything that the check needs.

This follows Anthropic's description of preserved thinking (platform.claude.com/docs, build-with-claude/
preserved-thinking, seen November 2026). A model that may not read a block does not get it. Any other change
before a block makes the block invalid, and also the blocks after it that existed then. Thinking may be
removed at the start of the history, but not between other thinking. One difference: here no model reads
another model's thinking.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..model.prompt import opened
from .prefix import Prefix, block_bytes, read_messages

__all__ = ["Broken", "Checked", "Dropped", "Seal", "check"]

_KEY = b"goaitools simulator: signs nothing real"
_MAGIC = b"gts1"
_DIGEST_BYTES = 8
_MAC_BYTES = 16
_FIELDS = ("model", "system", "tools", "messages", "chain")
_NO_PARENT = bytes(_DIGEST_BYTES)
_TOKEN_BYTES = len(_MAGIC) + len(_FIELDS) * _DIGEST_BYTES + _MAC_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An invalid thinking block. `changed` names the changed parts; () if the block itself is not genuine."""

    message: int
    block: int
    kind: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A thinking block that the model does not get."""

    message: int
    block: int
    reason: Literal["model_binding_mismatch", "prefix_binding_mismatch"]


class Seal:
    """Signs the thinking of one reply, block by block."""

    def __init__(self, model: bytes, system: bytes, tools: bytes) -> None:
        self._model, self._system, self._tools = _digest(model), _digest(system), _digest(tools)
        self._messages = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._parent = _NO_PARENT

    def copy(self) -> Seal:
        """A copy of the seal at the same place."""
        twin = copy.copy(self)
        twin._messages = self._messages.copy()
        return twin

    def sign(self, thinking: str | None) -> str:
        """The signature of the next thinking block, or the data of a redacted one (`thinking` None)."""
        fields = (self._model, self._system, self._tools, self._messages.digest(), self._parent)
        signature = base64.b64encode(_token(fields, thinking)).decode("ascii")
        self._follow(signature)
        return signature

    def passed(self, block: Mapping[str, Any]) -> None:
        """Add a block between thinking blocks. Later signatures are bound to it."""
        self._messages.update(block_bytes("assistant", block))

    def _pass_over(self, block: Mapping[str, Any], content: bytes) -> None:
        """Add a block without a signature. A compaction counts as the messages that it replaces, whether they
        are still there or not."""
        found = opened(block.get("encrypted_content")) if block.get("type") == "compaction" else None
        if found is None:
            self._messages.update(content)
            return
        self._messages, self._parent = hashlib.blake2b(digest_size=_DIGEST_BYTES), _NO_PARENT
        for piece in read_messages(found[1]):
            if piece.is_thinking:
                self._follow(_signature(piece.value))
            else:
                self._pass_over(piece.value, piece.content)

    def _follow(self, signature: str) -> None:
        self._parent = _digest(signature.encode("utf-8", "replace"))

    def _compare(self, block: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The parts that were changed since the block was signed; None if the signature is not genuine."""
        open_text = block["thinking"] if block["type"] == "thinking" else None
        fields = _genuine(_signature(block), open_text)
        if fields is None:
            return None
        now = (self._model, self._system, self._tools, self._messages.digest(), self._parent)
        changed = [name for name, then, this in zip(_FIELDS, fields, now, strict=True) if then != this]
        if self._parent == _NO_PARENT and "chain" in changed:
            changed.remove("chain")  # all thinking before it was removed
        return tuple(changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of checking a request's thinking. `seal` signs the reply."""

    seal: Seal
    broken: tuple[Broken, ...]
    dropped: tuple[Dropped, ...]


def check(model: str, prefix: Prefix, *, drop: bool) -> Checked:
    """Check every thinking block of a request against the prefix before it.

    Args:
        drop: Ignore blocks whose prefix changed instead of reporting them. A block that is not genuine is
            always reported.
    """
    seal = Seal(model.encode("utf-8", "replace"), prefix.system, prefix.tools)
    broken: list[Broken] = []
    dropped: list[Dropped] = []
    for piece in prefix.pieces:
        if not piece.is_thinking:
            seal._pass_over(piece.value, piece.content)
            continue
        message, block, kind = piece.message, piece.block, piece.value["type"]
        changed = seal._compare(piece.value)
        if changed is None:
            broken.append(Broken(message=message, block=block, kind=kind))
        elif "model" in changed:
            dropped.append(Dropped(message=message, block=block, reason="model_binding_mismatch"))
        elif not changed:
            seal._follow(_signature(piece.value))
        elif drop:
            dropped.append(Dropped(message=message, block=block, reason="prefix_binding_mismatch"))
        else:
            broken.append(Broken(message=message, block=block, kind=kind, changed=changed))
    return Checked(seal=seal, broken=tuple(broken), dropped=tuple(dropped))


def _signature(block: Mapping[str, Any]) -> str:
    return str(block["signature" if block["type"] == "thinking" else "data"])


def _token(fields: tuple[bytes, ...], thinking: str | None) -> bytes:
    signed = _MAGIC + b"".join(fields)
    kind = b"redacted" if thinking is None else b"open:" + thinking.encode("utf-8", "surrogatepass")
    return signed + hashlib.blake2b(signed + kind, digest_size=_MAC_BYTES, key=_KEY).digest()


def _genuine(signature: str, thinking: str | None) -> tuple[bytes, ...] | None:
    """The digests in a signature; None unless it was made here for this thinking."""
    try:
        token = base64.b64decode(signature.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    if len(token) != _TOKEN_BYTES or not token.startswith(_MAGIC):
        return None
    body = token[len(_MAGIC) : -_MAC_BYTES]
    fields = tuple(body[at : at + _DIGEST_BYTES] for at in range(0, len(body), _DIGEST_BYTES))
    return fields if hmac.compare_digest(token, _token(fields, thinking)) else None


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
