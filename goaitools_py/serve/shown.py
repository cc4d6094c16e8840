"""A stored conversation as a client sees it.

Owns: the way from a snapshot to the value that front ends take. Must never know: HTTP, or a turn that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..frontends import Shown
from ..history.turns import History
from .stored import shown_pending
from .whose import NAME

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationSnapshot
    from ..chat.kept.summaries import Summaries

__all__ = ["rows_of", "shown_of"]


def shown_of(snapshot: ConversationSnapshot | None) -> Shown:
    """Give a conversation as a front end shows it; an empty history if it is not stored."""
    if snapshot is None:
        return Shown(history=History(turns=()), conversation_id="")
    id = snapshot.info.state.conversation_id
    return Shown(history=snapshot.history, conversation_id=id, pending=shown_pending(snapshot))


def rows_of(page: Summaries, prefix: str) -> list[dict[str, Any]]:
    """Give the rows of a list of conversations, by the names that a client may use.

    The client has sent the cursor: a store that trusts it may list rows of another user. These are left
    out.
    """
    return [
        {
            "name": name,
            "updated_at": row.updated_at.isoformat(),
            "title": row.title,
            "status": row.status,
            "turns": row.turns,
            "cost_usd": None if row.cost_usd is None else float(row.cost_usd),
        }
        for row in page.rows
        if row.key.startswith(prefix) and NAME.fullmatch(name := row.key.removeprefix(prefix))
    ]
