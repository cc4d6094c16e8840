"""What a client is shown of a stored conversation.

Owns: the way from a snapshot to the value that front ends take. Must never know: HTTP, or a turn that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frontends import Shown
from ..history.turns import History
from .stored import shown_pending

if TYPE_CHECKING:
    from ..kept.facade import ConversationSnapshot

__all__ = ["shown_of"]


def shown_of(snapshot: ConversationSnapshot | None) -> Shown:
    """Give what a front end shows of a conversation; of one that is not stored, that there is nothing."""
    if snapshot is None:
        return Shown(history=History(turns=()), conversation_id="")
    id = snapshot.info.state.conversation_id
    return Shown(history=snapshot.history, conversation_id=id, pending=shown_pending(snapshot))
