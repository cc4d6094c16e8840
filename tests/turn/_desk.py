"""A desk with tools, some of which wait for somebody: what the tests of waiting turns share.

Owns: the tools, their effects, and one scripted provider that several chats ask one after another, as
several processes would. Every history that is sent is checked against the wire's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from goaitools_py import ToolContext, tool
from goaitools_py.base import rawjson
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from ._reading import HISTORY

__all__ = ["Desk", "clerk", "codes", "flags", "look", "pay", "spends"]


def pay(amount: Any) -> tuple[str, dict[str, Any]]:
    """A call of the tool that waits."""
    return "pay", {"amount": amount}


def look(place: str) -> tuple[str, dict[str, Any]]:
    """A call of the tool that waits for nobody."""
    return "look", {"place": place}


def clerk(question: str) -> tuple[str, dict[str, Any]]:
    """A call whose result comes from outside."""
    return "clerk", {"question": question}


def codes(result: Any) -> list[str]:
    """The codes of a result's warnings."""
    return [warning.code for warning in result.warnings]


def flags(state: bytes) -> dict[str, str]:
    """The flags of the last turn's results that are no plain success, by call id."""
    found: dict[str, str] = read_history(state).turns[-1].facts.get("flags", {})
    return found


def spends(result: Any) -> int:
    """How many requests a turn has paid for."""
    return int(result.usage.requests)


class Desk:
    """Three tools and a provider.

    Attributes:
        effects: What the tools did, in order.
        keys: The idempotency keys that `pay` was given, in order.
        pay_options: How `pay` is made; a later process may make it in another way.
        backend: The provider; it goes on in its script whichever chat asks.
    """

    def __init__(
        self,
        face: Any,
        wire: str,
        *,
        requires_approval: bool | Callable[[dict[str, Any]], bool] = True,
        idempotent: bool = False,
    ) -> None:
        self.wire = wire
        self.effects: list[str] = []
        self.keys: list[str] = []
        self.backend = ScriptedBackend(wire=wire)
        self._face = face
        self.pay_options: dict[str, Any] = {"requires_approval": requires_approval, "idempotent": idempotent}

    def tools(self) -> list[Any]:
        """The tools, made anew as another process makes them."""

        @tool(**self.pay_options)
        def pay(ctx: ToolContext[Any], amount: int) -> str:
            """Pay an amount."""
            self.effects.append(f"pay {amount}")
            self.keys.append(ctx.idempotency_key)
            ctx.log_action(f"paid {amount}")
            return f"paid {amount}"

        @tool
        def look(ctx: ToolContext[Any], place: str) -> str:
            """Look at a place."""
            self.effects.append(f"look {place}")
            ctx.log_action(f"looked at {place}")
            return f"{place} is quiet"

        @tool(external=True)
        def clerk(question: str) -> str:
            """Ask the clerk, who is somewhere else."""
            raise AssertionError("an external tool was run")

        return [pay, look, clerk]

    def script(self, *steps: Any) -> None:
        """What the provider says next: texts, or lists of calls."""
        self.backend.then(*(Calls(step) if isinstance(step, list) else step for step in steps))

    def chat(self, **fields: Any) -> Any:
        """Another process: a chat that shares nothing with the ones before it but the provider."""
        fields.setdefault("tools", self.tools())
        return self._face.chat(self.backend, **{"tool_threads": False, **fields})

    def waiting(self, *calls: tuple[str, Any], text: str = "", user: str = "Go on.", **fields: Any) -> Any:
        """The result of a turn that waits for its calls."""
        self.backend.then(Calls(calls, text))
        result = self.chat().chat_with_state(fields.pop("state", None), user=user, **fields)
        assert result.status == "awaiting_tools"
        return result

    @property
    def asked(self) -> int:
        """How many requests there were."""
        return len(self.backend.requests)

    def sent(self, number: int = -1) -> str:
        """The history of one request, as text."""
        return rawjson.dumps(self._histories()[number]).decode()

    def check(self, *states: bytes) -> None:
        """Every request's history, and the closed view of every state, is one that the provider takes."""
        for history in (*self._histories(), *map(state_messages, states)):
            assert check_history(self.wire, history) == []
        for state in states:
            assert inspect_state(state).wire == self.wire

    def _histories(self) -> Sequence[Any]:
        return [body[HISTORY[self.wire]] for body in self.backend.bodies()]
