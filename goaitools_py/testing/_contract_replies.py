"""The part of the dialect contract about whole replies: reading, storing, cutting and viewing them.

Owns: these checks. Must never know: a particular provider API, a test framework.
"""

from __future__ import annotations

import json
import re
from typing import Final

from ..backends.base import Reply
from ..backends.protocols import problems_of
from ..types.messages import user
from ._contract import DialectCase, Findings, check, flaws_of, shown
from ._contract_writing import answers_to, history_of

__all__ = ["CHECKS", "neutral"]


def neutral(reply: Reply) -> tuple[object, ...]:
    """The content of a reply, without the stored bytes."""
    return (
        reply.text,
        reply.reasoning,
        tuple((call.name, call.arguments, call.kind) for call in reply.calls),
        reply.stop,
        reply.run_calls,
    )


@check("reply() reads the text and the calls that the sample holds")
def _reading(case: DialectCase) -> Findings:
    for name, sample, reply in case.whole():
        calls = tuple(call.name for call in reply.calls)
        if reply.text != sample.text:
            yield f"{name}: wanted text {shown(sample.text)}, got {shown(reply.text)}"
        if calls != sample.calls:
            yield f"{name}: wanted calls of {shown(sample.calls)}, got {shown(calls)}"
        if not reply.entries:
            yield f"{name}: nothing of it would be stored"
        if reply != case.dialect.reply(sample.body):
            yield f"{name}: reading it twice gives two different replies"
        if reply.usage.requests != 1:
            yield f"{name}: usage.requests must be 1, got {reply.usage.requests}"


@check("a reply's entries are lines of JSON, its call ids unique, its calls run only if they are whole")
def _well_formed(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        yield from (f"{name}: {flaw}" for flaw in flaws_of(reply))


@check("reply() stores the provider's bytes, on one line each however they were laid out")
def _verbatim(case: DialectCase) -> Findings:
    for name, sample, reply in case.whole():
        stored = b",\n".join(reply.entries)
        for piece in sample.kept:
            if piece not in stored:
                yield f"{name}: {shown(piece)} is not in the entries as it came"
        laid_out = json.dumps(json.loads(sample.body), indent=2).replace("\n", "\r\n").encode()
        other = case.dialect.reply(laid_out)
        yield from (f"{name}, laid out over lines: {flaw}" for flaw in flaws_of(other))
        said = (other.text, other.stop, [call.name for call in other.calls])
        if said != (reply.text, reply.stop, [call.name for call in reply.calls]):
            yield f"{name}: laid out over lines it says something else"


@check("view() reads a reply's entries as one assistant message that says what the reply says")
def _view(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        seen = case.dialect.view(reply.entries)
        if len(seen) != 1:
            yield f"{name}: {len(reply.entries)} entries were read as {len(seen)} messages"
            continue
        (message,) = seen
        if message.role != "assistant":
            yield f"{name}: wanted role 'assistant', got {message.role!r}"
        if message.text != reply.text:
            yield f"{name}: wanted text {shown(reply.text)}, got {shown(message.text)}"
        if message.tool_calls != reply.calls:
            yield f"{name}: wanted the calls {shown(reply.calls)}, got {shown(message.tool_calls)}"
        if message.raw != b",\n".join(reply.entries):
            yield f"{name}: raw is not the entries joined by ',\\n' but {shown(message.raw)}"


@check("view() of a whole exchange finds its messages in order")
def _view_of_an_exchange(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        asked = case.dialect.entries([user("Well?")])
        results = case.dialect.results(answers_to(reply.calls)) if reply.calls else []
        seen = case.dialect.view([*asked, *reply.entries, *results, *asked])
        wanted = ["user", "assistant", *("tool" for _ in reply.calls), "user"]
        if [message.role for message in seen] != wanted:
            yield f"{name}: wanted {wanted}, got {[message.role for message in seen]}"


@check("without_calls() leaves the text, no call, and a history that the provider takes")
def _without_calls(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        cut = case.dialect.without_calls(reply)
        if not reply.calls:
            if cut.entries != reply.entries:
                yield f"{name}: it has no calls, and its entries changed"
            continue
        if cut.calls or cut.run_calls:
            yield f"{name}: calls are left in the reply"
        if any(message.tool_calls for message in case.dialect.view(cut.entries)):
            yield f"{name}: calls are left in the entries"
        if any(call.id.encode() in entry for call in reply.calls for entry in cut.entries):
            yield f"{name}: the id of a call is left in the entries"
        if cut.text != reply.text or "".join(m.text for m in case.dialect.view(cut.entries)) != reply.text:
            yield f"{name}: the text did not stay"
        if not reply.text and cut.entries:
            yield f"{name}: it said nothing beside its calls, so entries must be ()"
        yield from (f"{name}: {flaw}" for flaw in flaws_of(cut))


@check("with_call_ids() changes the calls' ids, in the calls and in the entries, and nothing else")
def _with_call_ids(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        if not reply.calls:
            continue
        old = [call.id for call in reply.calls]
        new = [f"call_{number:024d}" for number, _ in enumerate(old)]
        renamed = case.dialect.with_call_ids(reply, new)
        seen = [call for message in case.dialect.view(renamed.entries) for call in message.tool_calls]
        if [call.id for call in renamed.calls] != new or [call.id for call in seen] != new:
            yield f"{name}: the new ids are not in the calls and in the entries"
        if neutral(renamed) != neutral(reply):
            yield f"{name}: something else than the ids changed"
        back = case.dialect.with_call_ids(renamed, old)
        if list(map(_tokens, back.entries)) != list(map(_tokens, reply.entries)) or back.calls != reply.calls:
            yield f"{name}: giving the calls their old ids again does not give the same reply"
        if case.dialect.with_call_ids(reply, old).entries != reply.entries:
            yield f"{name}: giving the calls the ids that they have changes the entries"
        try:
            case.dialect.with_call_ids(reply, [*new, "one_more"])
            yield f"{name}: an id too many must be a ValueError"
        except ValueError:
            pass


@check("unsigned() gives one entry for each, the very same object where nothing is signed, and is idempotent")
def _unsigned(case: DialectCase) -> Findings:
    own = history_of(case.dialect)
    if not _same_objects(case.dialect.unsigned(own), own):
        yield "entries of callers changed"
    if list(case.dialect.unsigned([])) != []:
        yield "no entries became some"
    for name, _, reply in case.whole():
        entries = list(reply.entries)
        bare = case.dialect.unsigned(entries)
        if len(bare) != len(entries):
            yield f"{name}: {len(entries)} entries became {len(bare)}"
            continue
        if not reply.signed and not _same_objects(bare, entries):
            yield f"{name}: the reply is not signed, and its entries are not the objects they were"
        if reply.signed and bare == entries:
            yield f"{name}: the reply is signed, and unsigned() took nothing out"
        again = case.dialect.unsigned([entry for entry in bare if entry])
        if not _same_objects(again, [entry for entry in bare if entry]):
            yield f"{name}: doing it twice changes something"
        left = case.dialect.view([entry for entry in bare if entry])
        if "".join(m.text for m in left) != reply.text or sum(len(m.tool_calls) for m in left) != len(
            reply.calls
        ):
            yield f"{name}: text or calls are gone with the signed blocks"


@check("settled() gives one entry for each, the very same object where nothing is cut, and is idempotent")
def _settled(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        entries = list(reply.entries)
        settled = case.dialect.settled(entries)
        if len(settled) != len(entries):
            yield f"{name}: {len(entries)} entries became {len(settled)}"
            continue
        if reply.stop != "pause" and not _same_objects(settled, entries):
            yield f"{name}: the reply was not paused, and its entries are not the objects they were"
        kept = [entry for entry in settled if entry]
        if not _same_objects(case.dialect.settled(kept), kept):
            yield f"{name}: doing it twice changes something"


@check("what the dialect makes is a history that the wire's rules allow (check_history)")
def _rules(case: DialectCase) -> Findings:
    dialect = case.dialect
    asked = dialect.entries([user("Well?")])
    for name, _, reply in case.whole():
        results = dialect.results(answers_to(reply.calls)) if reply.calls else []
        histories = {
            "with its results": [*asked, *reply.entries, *results, *asked],
            "without its calls": [*asked, *dialect.without_calls(reply).entries, *asked],
            "unsigned": [*asked, *filter(None, dialect.unsigned(reply.entries)), *results, *asked],
        }
        if not reply.calls:
            histories["settled"] = [*asked, *filter(None, dialect.settled(reply.entries)), *asked]
        for what, entries in histories.items():
            if (what == "with its results" or what == "unsigned") and reply.stop == "pause":
                continue
            for problem in problems_of(dialect, entries, unique_ids=True):
                yield f"{name} {what}: {problem}"


def _tokens(entry: bytes) -> bytes:
    """JSON without the spaces between its tokens."""
    return re.sub(rb'("(?:[^"\\]|\\.)*+")|[ \t\r\n]+', rb"\1", entry)


def _same_objects(got: object, wanted: list[bytes]) -> bool:
    return (
        isinstance(got, (list, tuple))
        and len(got) == len(wanted)
        and all(one is other for one, other in zip(got, wanted, strict=True))
    )


CHECKS: Final = (
    _reading,
    _well_formed,
    _verbatim,
    _view,
    _view_of_an_exchange,
    _without_calls,
    _with_call_ids,
    _unsigned,
    _settled,
    _rules,
)
