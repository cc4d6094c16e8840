"""The part of the dialect contract about the optional protocols that repair, views and conversion need.

Owns: these checks, and the list of the protocols that a dialect has. Must never know: a particular provider
API, a test framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..backends import protocols
from ..backends.base import Dialect, RequestParts
from ..backends.host_rules import GUESSES, RULES
from ..backends.protocols import (
    ChecksHistory,
    HistoryFrame,
    HostRules,
    SplitsResults,
    TranslatesReplies,
    ViewsHistory,
    problems_of,
)
from ..backends.wire.reply_pieces import Called, Lost, Said, reply_text
from ..base.values import replace
from ..types.messages import Text, ToolResult, user
from ._contract import DialectCase, Findings, check, one_line_object, shown
from ._contract_writing import answers_to, history_of

__all__ = ["CHECKS", "optional_protocols"]

_OPTIONAL: Final[tuple[type, ...]] = (
    protocols.ChecksHistory,
    protocols.ViewsHistory,
    protocols.SplitsResults,
    protocols.TranslatesReplies,
    protocols.EstimatesTokens,
    protocols.WritesOutput,
    protocols.CountsTokens,
    protocols.CompactsHistory,
    protocols.EditsContext,
    protocols.MarksHistory,
    protocols.FitsSettings,
    protocols.RunsProviderTools,
)

_LOST: Final = "a-call-that-nothing-made"


def optional_protocols(dialect: Dialect) -> tuple[str, ...]:
    """The names of the optional protocols that a dialect has."""
    return tuple(one.__name__ for one in _OPTIONAL if isinstance(dialect, one))


def _whole_history(case: DialectCase) -> list[bytes]:
    """A valid history with every reply of the samples that may be followed by something else."""
    found: list[bytes] = []
    for _, _, reply in case.whole():
        if reply.stop != "pause":
            results = case.dialect.results(answers_to(reply.calls)) if reply.calls else []
            found += [*case.dialect.entries([user("Well?")]), *reply.entries, *results]
    return found


@check("ChecksHistory: a result without its call is a problem, and what is not JSON never raises")
def _checking(case: DialectCase) -> Findings:
    dialect = case.dialect
    if not isinstance(dialect, ChecksHistory):
        return
    asked = dialect.entries([user("Well?")])
    stray = dialect.results([ToolResult(call_id=_LOST, parts=(Text("5"),))])
    if not problems_of(dialect, [*asked, *stray]):
        yield "history_problems finds nothing in a history with a result that no call wants"
    if not any(dialect.history_problems([b"nothing"], HistoryFrame())):
        yield "history_problems finds nothing in an entry that is not JSON"
    if not any(dialect.entry_problems(b"5")):
        yield "entry_problems finds nothing in an entry that is not an object"
    for number, entry in enumerate(_whole_history(case)):
        for problem in dialect.entry_problems(entry):
            yield f"entry_problems of a valid entry ({number}): {problem}"


@check(
    "ViewsHistory: an import's forms and a host's view leave valid entries as they are, and repeat nothing"
)
def _viewing(case: DialectCase) -> Findings:
    dialect, entries = case.dialect, _whole_history(case)
    if not isinstance(dialect, ViewsHistory):
        return
    found = list(dialect.history_forms(entries))
    if len(found) != len(entries):
        yield f"history_forms: {len(found)} views for {len(entries)} entries"
    else:
        for number, (view, entry) in enumerate(zip(found, entries, strict=True)):
            if not view.changes and view.entry is not entry:
                yield f"history_forms: entry {number} has no change, and is another object"
            if view.entry and (problem := one_line_object(view.entry)):
                yield f"history_forms: view {number} {problem}"
        left = [view.entry for view in found if view.entry]
        if any(view.changes for view in dialect.history_forms(left)):
            yield "history_forms: a second time it changes something again"
    (odd,) = dialect.history_forms([b"nothing"])
    if odd.entry != b"nothing":
        yield "an entry that is not JSON does not stay as it is"
    yield from _views(case, dialect, entries)
    yield from _repeated(case, dialect)


def _views(case: DialectCase, dialect: ViewsHistory, entries: Sequence[bytes]) -> Findings:
    parts = RequestParts(model="model", history=entries)
    if dialect.request_view(parts, HostRules()) is not parts:
        yield "request_view without rules is not the same object"
    if not set(dialect.known_rules("model").letters) <= RULES.keys():
        yield "known_rules has letters that `host_rules.RULES` does not have"
    for letters in (*RULES, *GUESSES):
        rules = HostRules(letters=letters)
        seen = dialect.request_view(parts, rules)
        if dialect.request_view(parts, rules) != seen:
            yield f"request_view with the rules {letters!r} differs between two calls"
        if len(letters) == 1 and dialect.request_view(seen, rules) != seen:
            yield f"request_view with the rules {letters!r}: a second time it changes something again"
        joined = replace(parts, history=[b",\n".join(entries)])
        one = b",\n".join(dialect.request_view(joined, rules).history)
        if one != b",\n".join(seen.history):
            yield f"request_view with the rules {letters!r} depends on the pieces of the history"
        whole = b",\n".join(seen.history).split(b",\n")
        for problem in problems_of(case.dialect, [entry for entry in whole if entry]):
            yield f"request_view with the rules {letters!r}: {problem}"


def _repeated(case: DialectCase, dialect: ViewsHistory) -> Findings:
    for name, _, reply in case.whole():
        if not reply.calls or not reply.run_calls or any(call.kind == "provider" for call in reply.calls):
            continue
        turn = [*reply.entries, *case.dialect.results(answers_to(reply.calls))]
        twice = [*turn, *turn]
        found = list(dialect.unique_calls(twice))
        if len(found) != len(twice):
            yield f"{name}: unique_calls has {len(found)} views for {len(twice)} entries"
        elif any(view.entry is not entry for view, entry in zip(found, turn, strict=False)):
            yield f"{name}: unique_calls changes the first call with an id"
        elif not any(view.ids for view in found[len(turn) :]):
            yield f"{name}: unique_calls gives no other id to a call with the id of an answered one"


@check("SplitsResults: an entry with several results comes apart, and together again without a changed byte")
def _splitting(case: DialectCase) -> Findings:
    dialect = case.dialect
    results = [ToolResult(call_id=f"call_{number}", parts=(Text("5"),)) for number in range(2)]
    entries = dialect.results(results)
    if not isinstance(dialect, SplitsResults):
        if len(entries) < len(results) and isinstance(dialect, ChecksHistory):
            yield "results() puts two results into one entry, so a repair needs SplitsResults"
        return
    for entry in entries:
        parts = dialect.split_results(entry)
        if len(parts) != len(dialect.view([entry])):
            yield f"split_results gives {len(parts)} entries for {len(dialect.view([entry]))} results"
        if len(parts) > 1 and dialect.join_results(parts) != [entry]:
            yield f"join_results of the split results is {shown(dialect.join_results(parts))}"
    if any(map(dialect.failed_calls, entries)):
        yield "failed_calls names calls with good results"


@check("TranslatesReplies: the pieces have the text and the calls, and what is written is read as written")
def _translating(case: DialectCase) -> Findings:
    dialect = case.dialect
    if not isinstance(dialect, TranslatesReplies):
        return
    for name, sample, reply in case.whole():
        pieces = list(dialect.reply_pieces(reply.entries))
        if not all(isinstance(piece, (Said, Called, Lost)) for piece in pieces):
            yield f"{name}: reply_pieces gives something else than Said, Called and Lost"
            continue
        calls = tuple(piece.call.name for piece in pieces if isinstance(piece, Called))
        if calls != sample.calls:
            yield f"{name}: the pieces have the calls {shown(calls)}, wanted {shown(sample.calls)}"
        own = "".join(piece.text for piece in pieces if isinstance(piece, Said) and not piece.is_hosted)
        if own != sample.text:
            yield f"{name}: the pieces have the text {shown(own)}, wanted {shown(sample.text)}"
        functions = tuple(call for call in reply.calls if call.kind == "function")
        if not own and not functions:
            continue
        written, _ = dialect.write_reply(reply_text(pieces)[0], functions)
        (read,) = dialect.view(written)
        if [(one.id, one.name) for one in read.tool_calls] != [(one.id, one.name) for one in functions]:
            yield f"{name}: write_reply gives a message with other calls"
        history = [
            *history_of(dialect),
            *written,
            *(dialect.results(answers_to(functions)) if functions else ()),
        ]
        for problem in problems_of(dialect, history):
            yield f"{name}: a history with the written reply is refused: {problem}"
    for id in ("call_1", "t.1:" + "0" * 200):
        made = dialect.call_id(id)
        if dialect.call_id(made) != made:
            yield f"call_id({shown(id)}) gives an id that it would change again"
        if dialect.call_id(id, taken=True) == id:
            yield f"call_id({shown(id)}, taken=True) gives the id that is taken"


CHECKS: Final = (_checking, _viewing, _splitting, _translating)
