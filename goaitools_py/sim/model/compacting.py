"""The compaction of a history by a simulated provider.

Owns: the opaque part of a compaction. Must never know: a provider's shape for it, or who writes the summary.

A real provider encrypts that part. Here it holds the compacted messages, so that signatures over them can
still be checked after it. A model reads only the summary.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["REQUEST", "opened", "sealed"]

REQUEST = "Summarise the conversation above."
"""The newest message, which asks the simulated model for a summary."""

_MARK = "simulated:"
_MAX_BYTES = 4 * 2**20


def sealed(summary: str, history: Sequence[Mapping[str, Any]]) -> str:
    """A summary, and the messages or items that it replaces."""
    packed = json.dumps({"summary": summary, "history": list(history)}, separators=(",", ":"))
    return _MARK + base64.urlsafe_b64encode(zlib.compress(packed.encode("utf-8", "replace"))).decode("ascii")


def opened(content: Any) -> tuple[str, list[dict[str, Any]]] | None:
    """Read the text of `sealed`; None for any other text."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        inflate = zlib.decompressobj()
        packed = inflate.decompress(base64.b64decode(content[len(_MARK) :], altchars=b"-_"), _MAX_BYTES)
        found = json.loads(packed)
        return str(found["summary"]), list(found["history"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
