"""What the simulator's providers make of a history when they compact it.

Owns: the opaque part of a compaction. Must never know: a wire's shape for it, or who writes the summary.

A real provider's is encrypted. Here it holds what was compacted, so that signatures over the old messages can
still be checked behind it; a model sees the summary alone.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["REQUEST", "opened", "sealed"]

REQUEST = "Summarise the conversation above."
"""What the simulated model is asked, as the newest message."""

_MARK = "simulated:"
_MAX_BYTES = 4 * 2**20


def sealed(summary: str, history: Sequence[Mapping[str, Any]]) -> str:
    """A summary, and the messages or items that it was made of."""
    packed = json.dumps({"summary": summary, "history": list(history)}, separators=(",", ":"))
    return _MARK + base64.urlsafe_b64encode(zlib.compress(packed.encode("utf-8", "replace"))).decode("ascii")


def opened(content: Any) -> tuple[str, list[dict[str, Any]]] | None:
    """What `sealed` put together; None for anything that is not ours."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        inflate = zlib.decompressobj()
        packed = inflate.decompress(base64.b64decode(content[len(_MARK) :], altchars=b"-_"), _MAX_BYTES)
        found = json.loads(packed)
        return str(found["summary"]), list(found["history"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
