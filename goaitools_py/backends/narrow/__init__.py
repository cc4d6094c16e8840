"""Narrowing: changes entries into a form that the provider's own host takes. Entries in, entries out.

Owns: which form is changed, by provider API, and the name of each change. Must never know: where a history
comes from, which server it goes to, or who stores it.

The rules of `backends.rules` are wide: a history that one server of a provider API takes is valid, because a
state belongs to an API and not to a server. So another server of the API may still refuse a valid history,
first of all api.openai.com and api.anthropic.com. The rules here describe these two hosts. Each names
its source. A valid entry comes back as the same object.

There are two depths. Without `fully`, only forms change: every server of the API takes the result, and a
model reads the same. That is done to an imported history. With `fully`, things are left out that another
server may need, such as DeepSeek's ``reasoning_content``, thinking without a signature, or a picture in a
tool's result. That is done after a server has refused the history, and only then.

=================  ==================================================================================
members            Members that the request type does not have. A model does not read them.
marks              Marks for a prompt cache. The request has marks of its own.
item_id            The id of an item, where it is too long, of another type of item, or there twice.
call_renamed       The id of a call is too long, has other characters, or is there twice (`distinct`). A
                   digest replaces it.
tool_renamed       The name of a tool in a call has other characters, or is too long.
speaker_renamed    The name of a message's author has other characters, or is too long.
rewritten          A member or part has another shape, with the same meaning.
reference          A reference to an item that the server should have stored. Nothing is stored there.
thinking           Thinking where it cannot be, or without a signature.
left_out           A part or block that cannot stand there. A line of text says so.
empty              An assistant's message that says nothing, or empty text beside its calls.
=================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...base.values import Value
from ..anthropic import narrow as anthropic
from ..openai_chat import narrow as openai_chat
from ..openai_responses import narrow as openai_responses
from ..wire.narrowing import Change, Narrow
from ..wire.unique_calls import distinct

__all__ = ["Change", "Narrow", "Narrowed", "distinct", "is_read", "narrowed"]


class Narrowed(Value, frozen=True):
    """A narrowed history.

    Attributes:
        entries: One result for each given entry, the same object if nothing changed; b"" if nothing is left.
        log: For each change its kind, and the place of the given entry.
        ids: For each entry the new ids of its calls and results, by the given ids.
    """

    _unshown = frozenset({"entries"})

    entries: tuple[bytes, ...]
    log: tuple[tuple[Change, int], ...]
    ids: tuple[Mapping[str, str], ...]


def narrowed(wire: str, entries: Sequence[bytes], *, fully: bool) -> Narrowed:
    """The entries as the provider's own host takes them. An entry that is not a JSON object stays as it is.

    Args:
        wire: The provider API. Without rules for it here nothing changes.
        entries: A whole history, in order: some rules count over all of it.
        fully: True: leave out, too, parts that this host does not take but another may need.
    """
    own = _OWN.get(wire)
    if own is None:
        return Narrowed(tuple(entries), (), ({},) * len(entries))
    found = list(own(entries, fully))
    log = [(kind, at) for at, one in enumerate(found) for kind in one.changes]
    return Narrowed(tuple([one.entry for one in found]), tuple(log), tuple([one.ids for one in found]))


_UNREAD: frozenset[Change] = frozenset({"members", "marks", "item_id", "reference", "thinking", "empty"})


def is_read(change: Change) -> bool:
    """True if a model reads something else after the change than before it.

    A part that a host refuses has never been read there. So the host signed a history without that part.
    """
    return change not in _UNREAD


_OWN: Mapping[str, Callable[[Sequence[bytes], bool], Iterator[Narrow]]] = {
    "openai": openai_chat.history,
    "openai-responses": openai_responses.history,
    "anthropic": anthropic.history,
}
