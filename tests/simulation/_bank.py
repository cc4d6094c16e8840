"""The tools of a run, and the log of their effects.

Owns: which effects took place, and the rule how often they may. Must never know: why a tool was called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from goaitools_py import Tool, ToolContext, tool
from goaitools_py.chat.hand_off import hand_off

__all__ = ["HANDED", "OTHER", "TOOLS", "Bank", "Teller"]


class Bank:
    """What the tools did. `may_repeat` says of a message's number that its effects may come again."""

    def __init__(self, may_repeat: Callable[[int], bool], broken: Callable[[str], None]) -> None:
        self.effects: Counter[tuple[str, str]] = Counter()
        self.fault = ""
        self._may_repeat = may_repeat
        self._broken = broken

    def act(self, key: str, id: str, *, once: bool) -> str:
        """Do what a call asks for: `id` names it in the conversation `key`; a fork has effects of its own.

        `fault`: it raises before or after the effect took place.
        """
        fault, self.fault = self.fault, ""
        if fault == "before":
            raise RuntimeError("the tool failed")
        self.effects[key, id] += 1
        if once and self.effects[key, id] > 1 and not self._may_repeat(int(id[1:].partition(".")[0])):
            self._broken(f"the effect {id} took place twice in {key}")
        if fault == "after":
            raise RuntimeError("the tool failed when it was done")
        return f"done {id}"


class Teller(NamedTuple):
    """What the tools of one conversation get."""

    bank: Bank
    key: str


@tool
def pay(ctx: ToolContext[Teller], id: str) -> str:
    """Pay. It must not run twice."""
    return ctx.deps.bank.act(ctx.deps.key, id, once=True)


@tool(requires_approval=True)
def ask(ctx: ToolContext[Teller], id: str) -> str:
    """Pay once somebody has approved it."""
    return ctx.deps.bank.act(ctx.deps.key, id, once=True)


@tool(idempotent=True)
def look(ctx: ToolContext[Teller], id: str) -> str:
    """Look something up."""
    return ctx.deps.bank.act(ctx.deps.key, id, once=False)


class Handed:
    """Stands for the other conversation of a hand-off, which a worker of its own has had meanwhile."""

    result: Any = None
    failure: Exception | None = None

    def send(self, message: str, **fields: Any) -> Any:
        """What came of it."""
        if self.failure is not None:
            raise self.failure
        return self.result


HANDED: Final = Handed()
"""What the next call of `other` finds."""

OTHER: Final = hand_off("other", "Ask another one.", lambda key: HANDED, None, {})

TOOLS: Final[tuple[Tool[..., str], ...]] = (pay, ask, look, OTHER)
