"""Bugs that are planted on purpose, to see that a run finds them.

Owns: one wrong behaviour each. Must never know: how it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from goaitools_py import StateConflictError
from goaitools_py.base.values import replace
from goaitools_py.chat.kept import changes, facade, privacy, row, row_parts, steering
from goaitools_py.chat.kept import turn as kept_turn
from goaitools_py.chat.kept.branches import EditBranch
from goaitools_py.chat.kept.steering import StopWatch
from goaitools_py.chat.kept.turn import KeptTurn
from goaitools_py.history import additions
from goaitools_py.history.branch import rewind_state
from goaitools_py.history.convert import state as conversion
from goaitools_py.history.redact import redaction
from goaitools_py.history.redact.redaction import Redaction
from goaitools_py.history.rewrite import cut
from goaitools_py.open_turn import given_answers, steps, turn_ids
from goaitools_py.open_turn.inbox import released
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.turn import fallback
from goaitools_py.turn import tool_calls as calling
from goaitools_py.turn.flow import CallModel, Checkpoint, Clock, Flow
from goaitools_py.turn.turn_state import TurnState

from ._store import Rows

__all__ = ["BUGS", "planted"]


def _blind_save(save: Any) -> Any:
    def blind(self: Rows, by: str, key: str, blob: bytes, expected: int | None) -> int:
        old = self.rows.get(key)
        return save(self, by, key, blob, old.version if old else None)  # type: ignore[no-any-return]

    return blind


def _release_any(_: Any) -> Any:
    def release(self: Rows, key: str, token: str) -> None:
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]
        self.leases.pop(key, None)

    return release


def _in_any_save(_: Any) -> Any:
    return KeptTurn._has_finished


def _unclaimed(make: Any) -> Any:
    def init(self: KeptTurn, *args: Any, **how: Any) -> None:
        make(self, *args, **how)
        self._plan = replace(self._plan, claims=False, is_shared=False)

    return init


def _started_first(start: Any) -> Any:
    def late(*args: Any) -> Flow[None]:
        flow = start(*args)
        answer: Any = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration:
                return
            # The start is not kept: the first thing that is known of the call is its result.
            answer = None if isinstance(effect, Checkpoint) else (yield effect)

    return late


def _of_claimed(withdraw: Any) -> Any:
    return lambda state, id, **how: withdraw(released(state), id, **how)


def _yes(_: Any) -> Any:
    def withdrawn(*_: Any, **how: Any) -> Flow[bool]:
        yield Clock()
        return True

    return withdrawn


def _as_it_waits(_: Any) -> Any:
    return lambda blob, id, **how: blob


def _never(_: Any) -> Any:
    return lambda *_: False


def _without_parts(_: Any) -> Any:
    return lambda *of: {}


def _beginning_anew(look: Any) -> Any:
    def looked(self: row.Row, *how: Any) -> Flow[bool]:
        try:
            return (yield from look(self, *how))
        except StateConflictError:  # the conversation was deleted
            self.stored, self._version, self._kept_parts = self.mine, None, frozenset()
            return True

    return looked


def _unsaved(_: Any) -> Any:
    def settle(self: KeptTurn) -> Flow[None]:
        yield from self._row.release()
        self.is_settled = True

    return settle


def _still_waiting(left_by: Any) -> Any:
    def left(self: KeptTurn, engine: Any, exc: Exception) -> bytes:
        handed_back = getattr(exc, "pending_input", ())
        return self._row.mine if handed_back else left_by(self, engine, exc)  # type: ignore[no-any-return]

    return left


def _without_newest(field: str) -> Callable[[Any], Any]:
    def lossy(rebase: Any) -> Any:
        def rebased(*blobs: Any, **how: Any) -> bytes:
            blob = rebase(*blobs, **how)
            state = load_state(blob, codec=how["codec"])
            left = {field: getattr(state.meta, field)[:-1]}
            return dump_state(
                replace(state, meta=msgspec.structs.replace(state.meta, **left)), codec=how["codec"]
            )

        return rebased

    return lossy


def _without_about(rebase: Any) -> Any:
    def rebased(*blobs: Any, **how: Any) -> bytes:
        codec = how["codec"]
        state = load_state(rebase(*blobs, **how), codec=codec)
        return dump_state(replace(state, meta=msgspec.structs.replace(state.meta, about={})), codec=codec)

    return rebased


def _mine_alone(_: Any) -> Any:
    return lambda mine, **how: bytes(mine)


def _unrecorded(_: Any) -> Any:
    return lambda cut, *of, **how: cut


def _cuts_alone(_: Any) -> Any:
    return lambda meta, *of: meta.cuts


def _as_it_was(_: Any) -> Any:
    return lambda value, *of, **how: value


def _as_stored(_: Any) -> Any:
    def redacted(of: row.Row, *how: Any) -> Flow[Any]:
        yield from of.load(is_whole=True)
        return Redaction(state=of.stored, count=0, places=(), kept=0, unsigned=0, sealed=0, dropped=0)

    return redacted


def _erasing_nothing(_: Any) -> Any:
    def act(of: row.Row) -> Flow[int]:
        yield from of.load()
        return 0

    return lambda settings: act


def _forgetful(left_by: Any) -> Any:
    return lambda self, engine, exc: self._row.mine


def _stopping_by_itself(is_asked: Any) -> Any:
    def asked(self: Any, effect: Any) -> Flow[bool]:
        found: bool = yield from is_asked(self, effect)
        return found or type(effect) is CallModel

    return asked


def _no_flow(_: Any) -> Any:
    def nothing(*_: Any) -> Flow[None]:
        yield from ()

    return nothing


def _raising(_: Any) -> Any:
    def raising(*_: Any) -> Any:
        raise LookupError("nobody knows this error")

    return raising


def _of_a_tool(add_reply: Any) -> Any:
    def added(*of: Any, **how: Any) -> Any:
        state = add_reply(*of, **how)
        *entries, replied = state.open.entries
        entries = (*entries, replied.replace(b'"assistant"', b'"tool"'))
        return replace(state, open=replace(state.open, entries=entries))

    return added


def _another_text(stored_reply: Any) -> Any:
    return lambda *of: replace(stored_reply(*of), text="something else")


def _for_ever(take: Any) -> Any:
    return lambda self, key, token, ttl: take(self, key, token, 1e9)


def _from_the_beginning(plan_after: Any) -> Any:
    def after(plan: Any, place: Any, failed: Any) -> Any:
        found = plan_after(plan, place, failed)
        return replace(found, blob=plan.blob, messages=plan.messages, resume=plan.resume)

    return after


def _with_the_newest_gone(undo: Any) -> Any:
    return lambda blob, **how: rewind_state(undo(blob, **how), 1, **how)


def _not_taken_in(_: Any) -> Any:
    def taken(of: row.Row, *_: Any) -> Flow[bool]:
        yield from of.look()
        of.mine = of.stored  # the next save takes the turn's state for one that has the messages
        return False

    return taken


def _empty(_: Any) -> Any:
    return lambda *_: ()


def _none_waiting(right: Any) -> Any:
    return lambda *of: replace(right(*of), inbox=())


class Bug(NamedTuple):
    """A bug: where it is planted, what it makes of the right thing there, and what a run says of it.

    `told`: a regular expression. `seed`: a schedule that finds it, for the short form. It is a hint: if seeds
    draw others, the search begins at the first one.
    """

    owner: Any
    name: str
    wrong: Callable[[Any], Any]
    told: str
    seed: int = 0


def _for_good(right: Any) -> Any:
    def wrong(self: TurnState, begun: Any) -> None:
        right(self, replace(begun, unedited=None))

    return wrong


BUGS: Final[dict[str, Bug]] = {
    "no compare-and-swap": Bug(Rows, "save", _blind_save, "took place twice"),
    "a release of somebody else's lease": Bug(Rows, "release", _release_any, "got the lease of", 364),
    "a lease without an end": Bug(Rows, "take", _for_ever, "the run does not end", 86),
    "no claim before a tool": Bug(KeptTurn, "__init__", _unclaimed, "took place twice", 12),
    "a checkpoint after the tool instead of before": Bug(
        calling, "_start", _started_first, "took place twice", 175
    ),
    "an approval that comes again runs the call again": Bug(
        given_answers, "_is_used_up", _never, "took place twice", 34
    ),
    "a save that leaves out its parts": Bug(row_parts, "names_of", _without_parts, "parts of", 4),
    "a deleted conversation comes back": Bug(
        row.Row, "_look", _beginning_anew, "^[me].* was deleted in", 1_418
    ),
    "an erasure that keeps the row": Bug(facade, "erasing", _erasing_nothing, "^erase .* is there", 92),
    "a redaction that does nothing": Bug(privacy, "_redacted", _as_stored, "^redact .* is there", 55),
    "a redaction of which others do not know": Bug(
        redaction, "with_cut", _cuts_alone, "^s.* was deleted in", 2_338
    ),
    "a redaction that leaves the archive": Bug(redaction, "cuts_of", _empty, "is in its archive", 2_386),
    "a cancelled turn is never saved": Bug(KeptTurn, "settle", _unsaved, "and then cancelled", 291),
    "a failed turn leaves its replies out": Bug(KeptTurn, "_left_by", _forgetful, "was paid for", 2_658),
    "a refused message is not taken back": Bug(KeptTurn, "_left_by", _still_waiting, "and handed back", 101),
    "the newest finished turn id is lost in a rebase": Bug(
        row, "rebase_state", _without_newest("ring"), "stands in .* twice", 7
    ),
    "the newest turn id that waits is lost in a rebase": Bug(
        row, "rebase_state", _without_newest("turn"), "stands in .* twice", 12
    ),
    "a rebase leaves out what others added": Bug(row, "rebase_state", _mine_alone, "is lost", 7),
    "an update is lost in a rebase": Bug(row, "rebase_state", _without_about, "was said of .* is lost", 52),
    "a cut without its record": Bug(cut, "with_record", _unrecorded, "was acknowledged .* is lost", 4),
    "an undone cut takes a turn along": Bug(changes, "undo_cut", _with_the_newest_gone, "is lost", 233),
    "a conversion without what waits": Bug(
        conversion, "_translated", _none_waiting, "was acknowledged .* is lost", 171
    ),
    "a fallback that begins anew": Bug(fallback, "_plan_after", _from_the_beginning, "twice", 3_521),
    "calls that stay open": Bug(steps, "_with_results", _as_it_was, "refused: "),
    "a reply that is stored as one of a tool": Bug(
        steps, "add_reply", _of_a_tool, "the history of .* would be refused", 16
    ),
    "a turn that stops by itself": Bug(StopWatch, "is_asked", _stopping_by_itself, "nobody had asked", 41),
    "a stop flag that stays": Bug(StopWatch, "clear", _no_flow, "is not answered at the end", 98),
    "another reply to a message that comes again": Bug(
        turn_ids, "stored_reply", _another_text, "was answered with"
    ),
    "a look that does not take the messages in": Bug(kept_turn, "take_in", _not_taken_in, "is lost", 579),
    "a withdrawal of what a turn has claimed": Bug(
        additions, "withdrawn", _of_claimed, "taken back in .* in a request", 179
    ),
    "a withdrawal that is not saved": Bug(steering, "_withdrawn", _yes, "taken back in .* is there", 9_419),
    "a withdrawal that does nothing": Bug(
        steering, "withdraw_message", _as_it_waits, "did not take it back", 9
    ),
    "a turn of later messages is taken for another worker's": Bug(
        KeptTurn, "_is_there", _in_any_save, "was paid for", 169
    ),
    "an edit without its branch": Bug(EditBranch, "keep", _no_flow, "no branch has it", 68),
    "a refused edit takes the old messages away": Bug(
        TurnState, "start_from", _for_good, "is not there itself", 2_418
    ),
    "an error that no page names": Bug(KeptTurn, "_repeat", _raising, "ended with LookupError", 12),
}
"""The bugs by name."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with a bug."""
    bug = BUGS[name]
    right = getattr(bug.owner, bug.name)
    setattr(bug.owner, bug.name, bug.wrong(right))
    try:
        yield
    finally:
        setattr(bug.owner, bug.name, right)
