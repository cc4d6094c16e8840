"""A conversation in each of its forms: kept in a store or as a state, streamed or not, of either colour.

Owns: how the next turn of it is run. Must never know: what is said.
"""

from __future__ import annotations

from typing import Any

from goaitools_py import ChatResult
from goaitools_py.stores import AsyncMemoryStore, MemoryStore

__all__ = ["FORMS", "Talk"]

FORMS = [(kept, streamed) for kept in (False, True) for streamed in (False, True)]
"""Values of `kept` and `streamed`."""


class Talk:
    """One conversation of a chat.

    Attributes:
        state: The state behind the newest turn.
    """

    def __init__(self, face: Any, chat: Any, *, kept: bool, streamed: bool) -> None:
        self.state: bytes | None = None
        self._face, self._chat, self._streamed = face, chat, streamed
        store: Any = AsyncMemoryStore() if face.is_async else MemoryStore()
        self._kept = chat.inner.conversation(store, "talk") if kept else None

    def say(self, user: str, **fields: Any) -> ChatResult:
        """Run a turn."""
        fields["user"] = user
        if self._kept is None:
            if self._streamed:
                result = self._chat.start(self.state, **fields).result()
            else:
                result = self._chat.chat_with_state(self.state, **fields)
        else:
            kept = self._kept
            answer: Any = kept.start(**fields).result() if self._streamed else kept.send(**fields)
            result = self._face.run(answer) if self._face.is_async else answer
        self.state = result.state
        return result  # type: ignore[no-any-return]
