"""Redaction in single places: what counts as a match, what it becomes, and what stays."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Document,
    Image,
    KeepRecentTurns,
    ModelSettings,
    StateConflictError,
    ToolReturn,
    TurnLimit,
    event,
    tool,
    user,
)
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.archive_records import part_of, record_digest, records_of
from goaitools_py.history.redact import rows
from goaitools_py.history.redact.entry_texts import Redactor
from goaitools_py.history.redact.matching import Finder
from goaitools_py.history.redact.redaction import Redaction
from goaitools_py.seal import Plain
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.closed_turns import FACTS, ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.parts import ARCHIVE, MEDIA, new_part
from goaitools_py.state.records import CutRow, Meta, RingRow, cut_facts
from goaitools_py.state.state import closed_turns, dump_state, load_state, new_state, rebuild
from goaitools_py.state.whole_blobs import detach
from goaitools_py.states import (
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_from_messages,
    state_messages,
    undo_cut,
    update_state,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.messages import Text
from tests.compaction._histories import WIRES, Book, Said

from ._planted import pieces, traces

SECRET = "hunter2-ZQ9"
CUT = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool(external=True)
def ask(question: str) -> str:
    """Ask."""
    raise AssertionError


def talk(wire: str, *texts: str, replies: tuple[Any, ...] = (), **fields: Any) -> bytes:
    """A conversation of these texts, each with a reply."""
    script = replies or tuple(f"Reply {n}." for n, _ in enumerate(texts))
    with Chat(ScriptedBackend(*script, wire=wire), tools=[ask]) as chat:
        return chat.run_turns(None, list(texts), **fields).state


def entry_state(wire: str, *entries: dict[str, Any] | bytes, letters: str) -> bytes:
    """A state of one turn with these entries."""
    raw = tuple(one if isinstance(one, bytes) else json.dumps(one).encode() for one in entries)
    iterations = (Iteration(roles=letters),)
    turn = ClosedTurn(raw, TurnRecord(at=0, messages=len(raw), iterations=iterations))
    return dump_state(rebuild(new_state(wire, id="c", created=1), [turn]))


def entries_of(blob: bytes) -> list[bytes]:
    return [entry for turn in closed_turns(load_state(blob)) for entry in turn.entries]


# ------------------------------------------------------------------------------------------- matches


def each(text: str) -> Iterator[tuple[int, int]]:
    """A detector of secrets."""
    return (found.span() for found in re.finditer("hunter\\d+-ZQ9", text))


@pytest.mark.parametrize("match", [SECRET, re.compile(r"HUNTER\d-zq9", re.I), each])
def test_text_expression_and_function(match: Any, wire: str) -> None:
    """All three find the same."""
    blob = talk(wire, f"My key is {SECRET}.", "Hi.", replies=(f"It is {SECRET}{SECRET}.", "Bye."))

    done = redact_state(blob, match)

    messages = read_history(done.state).all_messages()
    assert [one.text for one in messages] == [
        "My key is [redacted].",
        "It is [redacted][redacted].",
        "Hi.",
        "Bye.",
    ]
    assert done.count == 3
    assert [(one.where, one.turn, one.count) for one in done.places] == [("history", 1, 3)]


def test_a_report_has_no_content(wire: str) -> None:
    """The repr of a redaction shows numbers and places."""
    done = redact_state(talk(wire, f"It is {SECRET}."), SECRET)

    assert SECRET not in repr(done)
    assert "It is" not in repr(done)
    assert isinstance(done, Redaction)


@pytest.mark.parametrize(
    ("match", "with_", "error"),
    [
        ("", "x", ValueError),
        ("a", "bab", ValueError),
        (re.compile(".+"), "x", ValueError),
        (re.compile(b"a"), "x", TypeError),
        (7, "x", TypeError),
        ("a", " ", ValueError),
        ("a", "", ValueError),
        ("a", None, TypeError),
        (lambda text: [(0, len(text) + 1)], "x", ValueError),
        (lambda text: [len(text)], "x", ValueError),
    ],
)
def test_what_cannot_be_searched_is_refused(match: Any, with_: Any, error: type[Exception]) -> None:
    """Before anything is done, and without content in the error."""
    with pytest.raises(error):
        redact_state(talk("openai", "Hi."), match, with_)


def test_a_match_that_a_replacement_forms_goes_too() -> None:
    """Words that come together by a replacement are searched again."""
    done = redact_state(talk("openai", "<<aab>b>"), "ab", "-")

    assert read_history(done.state).all_messages()[0].text == "<<a->b>"
    with pytest.raises(ValueError, match="found again"):
        redact_state(talk("openai", "aaaabbbb"), "ab", "bbaa")


def test_the_same_bytes_if_nothing_matches(wire: str) -> None:
    """Not even the revision grows."""
    blob = talk(wire, "Hi.")

    done = redact_state(blob, SECRET)

    assert (done.state, done.count, done.places, done.dropped) == (blob, 0, (), 0)


# ------------------------------------------------------------------------------------- inside entries


def test_words_of_the_provider_api_stay(wire: str) -> None:
    """A secret that is also a word of the format leaves the content only."""
    blob = talk(wire, "A user of the role text.")

    done = redact_state(blob, re.compile("user|role|text|content|message"))

    assert read_history(done.state).all_messages()[0].text == "A [redacted] of the [redacted] [redacted]."
    assert done.kept > 0
    assert check_history(wire, entries_of(done.state)) == []


DATA_URLS = {
    f"data:text/plain,It is {SECRET}.": "data:text/plain,It%20is%20%5Bredacted%5D.",
    f"data:text/plain;x=y,{SECRET.replace('-', '%2D')}": "data:text/plain;x=y,%5Bredacted%5D",
    f"data:image/png;name={SECRET}.png;base64,iVBORw0KGgo=": "data:image/png;base64,iVBORw0KGgo=",
    f"data:text/plain;base64,{base64.b64encode(SECRET.encode()).decode()}": (
        f"data:text/plain;base64,{base64.b64encode(b'[redacted]').decode()}"
    ),
    "data:image/png;base64,iVBORw0KGgo=": "data:image/png;base64,iVBORw0KGgo=",
    "data:image/gif,GIF89a%01%2C": "data:image/gif,GIF89a%01%2C",
}


@pytest.mark.parametrize(("url", "left"), DATA_URLS.items())
def test_data_urls(url: str, left: str) -> None:
    """The text of one that is not base64, and the parameters before the comma, are read. Others stay."""
    said = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    blob = entry_state("openai", said, {"role": "assistant", "content": "A."}, letters="ua")

    done = redact_state(blob, SECRET)

    found = json.loads(entries_of(done.state)[0])["content"][0]["image_url"]["url"]
    assert found == left
    assert done.count == (url != left)
    assert traces(done.state, SECRET) == 0


def test_arguments_stay_json(wire: str) -> None:
    """Numbers and keys in them are content; a match over their syntax does not break them."""
    call = ("look", {"phone": 491511234567, "hunter2-ZQ9": [SECRET], "deep": {"at": f'{{"x": "{SECRET}"}}'}})
    book = Book(wire)
    book.add(user("Hi."), Said("", (call,), "", ((Text("ok"),),)), Said("Done."))

    done = redact_state(dump_state(book.state), re.compile(r"hunter2-ZQ9|\d{9,}"))

    calls = [call for message in read_history(done.state).all_messages() for call in message.tool_calls]
    assert calls[0].parsed == {
        "phone": "[redacted]",
        "[redacted]": ["[redacted]"],
        "deep": {"at": '{"x": "[redacted]"}'},
    }
    for match, with_ in ((r'"deep.*', "[redacted]"), (r"\{.*\}", "7")):
        over = redact_state(dump_state(book.state), re.compile(match, re.DOTALL), with_)
        calls = [call for message in read_history(over.state).all_messages() for call in message.tool_calls]
        assert isinstance(calls[0].parsed, dict)
        assert check_history(wire, entries_of(over.state)) == []


@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_is_matched_as_it_reads(wire: str, ascii_only: bool) -> None:
    """JSON in a result, once and twice escaped, whole or in the middle of other text."""
    secret = 'Zoë "Z" 🦊'
    once = json.dumps({"name": secret}, ensure_ascii=ascii_only)
    twice = json.dumps({"inner": once}, ensure_ascii=ascii_only)
    texts = [once, twice, f"Found {once} here", f"Found {twice} here", json.dumps([secret, 1e5])[:-3]]
    book = Book(wire)
    for text in texts:
        book.add(user("Hi."), Said("", (("look", {}),), "", ((Text(text),),)), Said("Done."))

    done = redact_state(dump_state(book.state), secret)

    results = [one.text for one in read_history(done.state).all_messages() if one.role == "tool"]
    assert results == [
        '{"name": "[redacted]"}',
        json.dumps({"inner": '{"name": "[redacted]"}'}),
        'Found {"name": "[redacted]"} here',
        'Found {"inner": "{\\"name\\": \\"[redacted]\\"}"} here',
        '["[redacted]", 100000',
    ]
    assert done.count == 5


def test_a_replacement_is_escaped_as_its_place_is(wire: str) -> None:
    """Quotation marks in it do not end a string, however deep."""
    inner = json.dumps({"name": "Zoë"})
    book = Book(wire)
    book.add(user("Hi."), Said("", (("look", {"at": inner}),), "", ((Text(f"See {inner}!"),),)), Said("Zoë."))

    done = redact_state(dump_state(book.state), "Zoë", 'a "b" \\')

    messages = read_history(done.state).all_messages()
    assert json.loads(messages[1].tool_calls[0].parsed["at"]) == {"name": 'a "b" \\'}
    assert json.loads(messages[2].text[4:-1]) == {"name": 'a "b" \\'}
    assert messages[3].text == 'a "b" \\.'


def test_across_the_parts_of_a_message(wire: str) -> None:
    """A model reads the parts as one text, and so does the search."""
    with Chat(ScriptedBackend("Done.", wire=wire)) as chat:
        blob = chat.chat_with_state(
            None, messages=[user(Text("It is hun"), Text("ter2"), Text("-ZQ9!"))]
        ).state

    done = redact_state(blob, SECRET)

    parts = [part.text for part in read_history(done.state).all_messages()[0].parts if isinstance(part, Text)]
    assert parts == ["It is [redacted]", "[redacted]", "!"]
    assert check_history(wire, entries_of(done.state)) == []


def test_inside_of_events(wire: str) -> None:
    """Also where the block escapes it. An event stays an event, and topics stay different."""
    with Chat(ScriptedBackend(wire=wire)) as chat:
        blob = chat.append_to_state(None, event("AT&T called", topic="<AT&T> 1", id="AT&T"))
        blob = chat.append_to_state(blob, event("He left", topic="<AT&T> 2"))

    done = redact_state(blob, re.compile("<?AT&T>?( [12])?"), "<gone>")

    waiting = read_history(done.state).waiting
    assert [(one.is_event, one.said) for one in waiting] == [(True, "<gone> called"), (True, "He left")]
    assert len({item.topic for item in load_state(done.state).inbox}) == 2


def test_other_bytes_of_an_entry_stay(wire: str) -> None:
    """White space, escapes and numbers of an entry with the secret are as the provider wrote them."""
    entry = b'{"role" : "user","content":"caf\\u00e9 \\/ hunter2-ZQ9","zz":1e5, "yy":-0.0}'

    done = redact_state(entry_state(wire, entry, letters="u"), SECRET)

    assert entries_of(done.state) == [
        '{"role" : "user","content":"café / [redacted]","zz":1e5, "yy":-0.0}'.encode()
    ]


def test_lone_surrogates_survive() -> None:
    """What UTF-8 cannot hold is escaped again."""
    entry = b'{"role":"user","content":"\\ud800 \\ud83e\\udd8a \\udcff hunter2-ZQ9"}'

    done = Redactor(Finder(SECRET, "[redacted]")).entry(entry)

    assert done == '{"role":"user","content":"\\ud800 🦊 \\udcff [redacted]"}'.encode()


def test_media(wire: str) -> None:
    """Names and text documents are searched; a picture keeps its bytes, an address leaves with its part."""
    picture, text = b"\x89PNG hunter2-ZQ9" * 9, f"The key is {SECRET}.".encode()
    parts: list[Any] = [
        Text("See:"),
        Image.from_bytes(picture),
        Image.from_url(f"https://x.invalid/{SECRET}"),
    ]
    parts += [Document.from_bytes(b"%PDF" + picture, name=f"{SECRET}.pdf")]
    parts += [Document.from_bytes(text, media_type="text/plain", name="a.txt")] if wire == "anthropic" else []
    with Chat(ScriptedBackend("Done.", wire=wire)) as chat:
        blob = chat.chat_with_state(None, messages=[user(*parts)]).state

    done = redact_state(blob, SECRET)

    message = read_history(done.state).all_messages()[0]
    assert message.parts[1] == read_history(blob).all_messages()[0].parts[1]
    assert "[redacted]" in [part.text for part in message.parts if isinstance(part, Text)]
    raw = b"\n".join(entries_of(done.state))
    assert b"[redacted].pdf" in raw
    assert base64.b64encode(picture) in raw
    assert SECRET.encode() not in raw
    assert base64.b64encode(text) not in raw
    assert check_history(wire, entries_of(done.state)) == []


# --------------------------------------------------------------------------------------- ids and calls


def test_ids_and_names_of_calls_keep_their_shape() -> None:
    """The result still finds its call, and different ids stay different."""
    calls = [
        {
            "id": f"call_{SECRET}{n}",
            "type": "function",
            "function": {"name": f"f_{SECRET}", "arguments": "{}"},
        }
        for n in ("", "x", "_redacted")
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "tool_calls": calls}, *results]
    blob = state_from_messages("openai", messages)

    done = redact_state(blob, re.compile(f"{SECRET}x?"))

    assert check_history("openai", state_messages(done.state)) == []
    made = state_messages(done.state)[1]["tool_calls"]
    assert len({call["id"] for call in made}) == 3
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["id"]) for call in made)
    assert {call["function"]["name"] for call in made} == {"f_redacted"}
    assert traces(done.state, SECRET) == 0


def test_a_waiting_call_goes_on(wire: str) -> None:
    """Its journal matches its reply: the answer is taken, and the turn ends."""
    blob = talk(wire, "Ask.", replies=(Calls([("ask", {"question": f"Is it {SECRET}?"})], text=SECRET),))

    done = redact_state(blob, SECRET)

    (call,) = pending_calls(done.state)
    assert json.loads(call.arguments) == {"question": "Is it [redacted]?"}
    with Chat(ScriptedBackend("Done.", wire=wire), tools=[ask]) as chat:
        result = chat.resume(done.state, {call.id: ToolReturn("yes")})
    assert result.text == "Done."


@pytest.mark.parametrize("name", ["sim:openai", "sim:openai-responses", "sim:anthropic"])
def test_the_conversation_goes_on_in_the_simulator(name: str) -> None:
    """With reasoning, in the middle of a turn and after it: the simulator checks order and signatures."""
    thinks = ModelSettings(thinking_budget_tokens=2048) if name.endswith("anthropic") else None
    with Chat(name, tools=[ask], settings=thinks or ModelSettings()) as chat:
        state = chat.chat_with_state(None, user="My name is Ada.").state
        state = chat.chat_with_state(state, user=f"My key is {SECRET}.").state
        state = chat.chat_with_state(state, user="And now?").state
        done = redact_state(state, SECRET)
        result = chat.chat_with_state(done.state, user=f'Call ask with {{"question": "{SECRET}"}}.')
        assert not result.warnings
        waiting = redact_state(result.state, SECRET)
        calls = pending_calls(waiting.state)
        if calls:
            result = chat.resume(waiting.state, {calls[0].id: ToolReturn("ok")})
    assert result.status == "complete"


# ------------------------------------------------------------------------------- signatures and archive


def reasoned(wire: str, *texts: str) -> Book:
    book = Book(wire)
    for number, text in enumerate(texts):
        book.add(user(text), Said(f"Reply {number}.", (), "I think."))
    return book


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_signatures_behind_the_first_change_go(wire: str) -> None:
    """Turns before it stay byte for byte, with their signed blocks."""
    blob = dump_state(reasoned(wire, "One.", "Two.", f"It is {SECRET}.", "Four.").state)

    done = redact_state(blob, SECRET)

    old, new = closed_turns(load_state(blob)), closed_turns(load_state(done.state))
    assert [turn.entries for turn in new[:2]] == [turn.entries for turn in old[:2]]
    unsigned = dialect_of(wire).unsigned
    for turn, before in zip(new[2:], old[2:], strict=True):
        assert turn.entries[1:] == tuple(filter(None, unsigned(before.entries[1:])))
        assert turn.entries[1:] != before.entries[1:]
    assert done.unsigned == {"anthropic": 2, "openai-responses": 4}[wire]
    assert load_state(done.state).meta.signed
    all_of = redact_state(dump_state(reasoned(wire, SECRET, "Two.").state), SECRET)
    assert not load_state(all_of.state).meta.signed


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_signatures_of_earlier_model_calls_of_the_turn_stay(wire: str) -> None:
    """A result is redacted: the reply that made the call stays byte for byte, the reply to it is unsigned."""
    book = Book(wire)
    call = Said("", (("look", {}),), "I think.", ((Text(f"It is {SECRET}."),),))
    book.add(user("Look."), call, Said("Done.", (), "I think again."))

    new = redact_state(dump_state(book.state), SECRET).state

    (old,), (turn,) = closed_turns(book.state), closed_turns(load_state(new))
    made = len(old.record.iterations[0].roles)
    assert turn.entries[:made] == old.entries[:made]
    assert dialect_of(wire).unsigned(old.entries[:made]) != list(old.entries[:made])
    assert turn.entries[made + 1 :] == tuple(filter(None, dialect_of(wire).unsigned(old.entries[made + 1 :])))
    assert load_state(new).meta.signed


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_signatures_in_the_archive_go_alike(wire: str) -> None:
    """An undone cut brings back turns whose signed blocks all fit."""
    blob = dump_state(reasoned(wire, "One.", f"It is {SECRET}.", "Three.", "Four.").state)
    with Chat(ScriptedBackend(wire=wire)) as chat:
        cut = chat.compact_state(blob, CUT).state

    back = undo_cut(redact_state(cut, SECRET).state)

    assert [turn.entries for turn in closed_turns(load_state(back))] == [
        turn.entries for turn in closed_turns(load_state(redact_state(blob, SECRET).state))
    ]
    assert traces(back, SECRET) == 0


def test_the_archive_can_still_be_undone(wire: str) -> None:
    """Each record names the new digest of the one before; going back over two cuts works."""
    with Chat(ScriptedBackend(*["Reply."] * 9, wire=wire)) as chat:
        state = chat.run_turns(None, ["One.", f"It is {SECRET}.", "Three."]).state
        state = chat.compact_state(state, CUT).state
        state = chat.run_turns(state, [f"Again {SECRET}.", "Five."]).state
        state = chat.compact_state(state, CUT).state

    done = redact_state(state, SECRET)

    assert verify_state(done.state) == ()
    assert {place.where for place in done.places} == {"archive"}
    assert [place.turn for place in done.places] == [2, 4]
    back = undo_cut(undo_cut(done.state))
    said = [one.text for one in read_history(back).all_messages() if one.role == "user"]
    assert said == ["One.", "It is [redacted].", "Three.", "Again [redacted].", "Five."]
    assert read_history(rewind_state(done.state, 4)).all_messages()[0].text == "One."


# ---------------------------------------------------------------------------------- beside the entries


def test_title_metadata_and_remembered_replies(wire: str) -> None:
    """What a cut has left in the meta data, and what the application says."""
    with Chat(ScriptedBackend(f"It is {SECRET}.", "B.", wire=wire)) as chat:
        state = chat.chat_with_state(None, user="Hi.", turn_id="t-1", metadata={"k": SECRET}).state
        state = chat.chat_with_state(state, user="Ho.", conversation_id=f"of {SECRET}").state
        state = chat.compact_state(state, Compactor(TurnLimit(1), KeepRecentTurns(1))).state
        state = update_state(state, title=f"About {SECRET}", metadata={SECRET: SECRET})
        done = redact_state(state, SECRET)
        again = chat.chat_with_state(done.state, user="Hi.", turn_id="t-1")

    info = inspect_state(done.state)
    assert (info.title, dict(info.metadata)) == ("About [redacted]", {"[redacted]": "[redacted]"})
    assert dict(load_state(done.state).meta.info) == {"k": "[redacted]"}
    assert (again.text, again.duplicate) == ("It is [redacted].", True)
    assert SECRET not in info.conversation_id
    assert info.conversation_id != inspect_state(redact_state(state, SECRET).state).conversation_id


def test_speakers_and_request_ids(wire: str) -> None:
    """What else stands in the row of an iteration stays."""
    blob = talk(wire, "Hi.")
    state = load_state(blob)
    (turn,) = closed_turns(state)
    more = b'{"m":0,"s":[7,9],"q":"req hunter2-ZQ9","who":[[0,"hunter2-ZQ9 sr."]]}'
    first, *rest = turn.record.iterations
    record = replace(turn.record, iterations=(replace(first, more=more), *rest))
    blob = dump_state(rebuild(state, [replace(turn, record=record)]))

    done = redact_state(blob, SECRET)

    (new,) = closed_turns(load_state(done.state))
    assert new.record.iterations[0].more == (
        b'{"m":0,"s":[7,9],"q":"req [redacted]","who":[[0,"[redacted] sr."]]}'
    )
    assert read_history(done.state).all_messages()[0].speaker == "[redacted] sr."


NO_TEXT = frozenset(
    {
        *("wire", "rev", "parent", "created", "updated", "status", "messages", "turns", "processed"),
        *("total", "usage", "preamble", "tools", "context", "events", "turn", "systems", "signed", "unbound"),
        *("aside", "gauge", "cost", "warned", "rules", "ask_failed", "rests", "gap", "media", "output"),
        *("tokens", "hosts"),
    }
)
"""The meta data that hold no text. A redaction searches all others."""


@pytest.mark.parametrize("name", sorted(set(Meta.__struct_fields__) - NO_TEXT))
def test_each_text_of_the_meta_data_is_searched(name: str) -> None:
    """A new field has to be named as one without text, or to be searched."""
    row = RingRow("i", "s", "complete", SECRET)
    values: dict[str, Any] = {
        "cuts": (CutRow(1, SECRET, 0, 0),),
        "ring": (row,),
        "carry": {"container": (SECRET, 0)},
        "models": ((SECRET, "m"), ("f", SECRET)),
        "failed": (SECRET, SECRET),
    }
    is_dict = isinstance(getattr(Meta(wire="openai"), name), dict)
    value = values.get(name) or ({"k": SECRET, SECRET: "v"} if is_dict else f"x {SECRET}")
    state = new_state("openai", id="c", created=1)
    blob = dump_state(replace(state, meta=msgspec.structs.replace(state.meta, **{name: value})))

    done = redact_state(blob, SECRET)

    assert traces(blob, SECRET) == 1
    assert traces(done.state, SECRET) == 0
    assert [place.where for place in done.places] == ["facts"]


@pytest.mark.parametrize("name", sorted(FACTS - rows.NO_TEXT_FACTS))
def test_each_text_of_a_turns_facts_is_searched(name: str) -> None:
    """A new fact is searched unless it is named as one without text."""
    values: dict[str, Any] = {
        "who": [[0, SECRET]],
        "metadata": {SECRET: SECRET},
        "failed": [SECRET, SECRET],
        "citations": [[0, SECRET]],
        "acts": [[SECRET, {SECRET: SECRET}]],
    }
    book = Book("openai")
    book.add(user("Hi."), Said("Ho."), **{name: values.get(name, SECRET)})

    done = redact_state(dump_state(book.state), SECRET)

    assert traces(done.state, SECRET) == 0
    assert done.count > 0


def test_flags_follow_their_calls() -> None:
    """The flag of a result is found under the new id of its call."""
    book = Book("openai")
    book.add(user("Hi."), Said("", (("look", {}),), "", ((Text("?"),),)), Said("Ho."))
    old = read_history(dump_state(book.state)).all_messages()[1].tool_calls[0].id
    turn = closed_turns(book.state)[0]
    record = replace(turn.record, facts={"flags": {old: "unknown"}})
    blob = dump_state(rebuild(book.state, [replace(turn, record=record)]))

    done = redact_state(blob, old)

    history = read_history(done.state)
    (new,) = [call.id for message in history.all_messages() for call in message.tool_calls]
    assert new != old
    assert history.turns[0].facts["flags"] == {new: "unknown"}


def test_a_medium_by_address_in_a_journal() -> None:
    """A result that waits to be sent has a text in the place of an address that matches."""
    blob = talk("openai", "Ask.", replies=(Calls([("ask", {"question": "?"})]),))
    state = load_state(blob)
    assert state.open is not None
    (call,) = state.open.calls
    parts = (
        Image.from_url(f"https://x.invalid/{SECRET}"),
        Document.from_bytes(b"%PDF", name=f"{SECRET}.pdf"),
    )
    done_call = replace(call, state="done", parts=parts)
    blob = dump_state(replace(state, open=replace(state.open, calls=(done_call,))))

    new = load_state(redact_state(blob, SECRET).state)

    assert new.open is not None
    first, second = new.open.calls[0].parts
    assert first == Text("[redacted]")
    assert isinstance(second, Document)
    assert (second.name, second.data) == ("[redacted].pdf", b"%PDF")


def test_an_undone_cut_forgets_the_context() -> None:
    """The digest of a context block that was changed in the archive does not come back with it."""
    with Chat(ScriptedBackend(*"ABC")) as chat:
        state = chat.chat_with_state(None, user="Hi.", context=f"Key: {SECRET}").state
        state = chat.run_turns(state, ["Ho.", "Hu."]).state
        state = chat.compact_state(state, CUT).state

    back = undo_cut(redact_state(state, SECRET).state)

    assert load_state(back).meta.context == ""
    assert "Key: [redacted]" in read_history(back).all_messages()[0].text


def test_a_context_block_is_sent_again() -> None:
    """The history does not have it any more as it was, so the next turn sends the one it is given."""
    with Chat(ScriptedBackend("A.", "B.")) as chat:
        state = chat.chat_with_state(None, user="Hi.", context=f"Key: {SECRET}").state
        done = redact_state(state, SECRET)
        state = chat.chat_with_state(done.state, user="Ho.", context="Key: other").state

    assert [one.text for one in read_history(state).all_messages() if one.role == "user"] == [
        "<app-context>\nKey: [redacted]\n</app-context>Hi.",
        "<app-context>\nKey: other\n</app-context>Ho.",
    ]
    assert load_state(done.state).meta.context == ""


def test_values_of_a_later_release_are_dropped_and_counted(wire: str) -> None:
    """What this release cannot read might hold the secret. What it can read stays."""
    with Chat(ScriptedBackend("A.", "B.", "C.", wire=wire)) as chat:
        state = chat.chat_with_state(None, messages=[user("Hi.", speaker="Ada")]).state
        blob = chat.compact_state(chat.run_turns(state, ["Ho.", "Hu."]).state, CUT).state
    known = load_state(blob)
    row = known.meta.cuts[-1]
    more = msgspec.Raw(bytes(row.more)[:-1] + f',"mood":"{SECRET}"}}'.encode())
    segment = replace(blobs.segment(Kind.SEALED, SECRET.encode(), 1), kind=40)
    part = replace(new_part(MEDIA, SECRET.encode(), 1), kind=100)
    state = replace(
        known,
        meta=msgspec.structs.replace(known.meta, cuts=(row._replace(more=more),)),
        extras={"mood": msgspec.Raw(f'"{SECRET}"'.encode())},
        later=(segment,),
        parts=(*known.parts, part),
    )

    done = redact_state(dump_state(state), SECRET)

    assert (done.count, done.dropped) == (0, 4)
    assert traces(done.state, SECRET) == 0
    new = load_state(done.state)
    assert (new.meta.cuts, new.parts[0].digest) == (known.meta.cuts, load_state(blob).parts[0].digest)
    facts = cut_facts(new.meta.cuts[-1])
    assert facts is not None
    assert facts.record
    assert read_history(undo_cut(done.state)).all_messages()[0].speaker == "Ada"


def test_parts_elsewhere_are_refused() -> None:
    """A head cannot vouch for what a store keeps."""
    with Chat(ScriptedBackend(*["A."] * 3)) as chat:
        blob = chat.compact_state(chat.run_turns(None, ["Hi.", "Ho.", "Hu."]).state, CUT).state
    head, _ = detach(blob)

    with pytest.raises(ValueError, match="a store keeps parts"):
        redact_state(head, SECRET)


@pytest.mark.parametrize("change", ["history", "title"])
def test_another_workers_turn_does_not_bring_it_back(change: str) -> None:
    """A turn on the state before is a conflict; a message that was appended to it joins the new state."""
    with Chat(ScriptedBackend("A.", "B.")) as chat:
        base = chat.chat_with_state(None, user=f"It is {SECRET}." if change == "history" else "Hi.").state
        base = chat.append_to_state(base, event(f"{SECRET} waits"))
        base = update_state(base, title=SECRET)
        appended = chat.append_to_state(base, event("It rains"))
        mine = chat.chat_with_state(base, user="Ho.").state
    theirs = redact_state(base, SECRET).state

    with pytest.raises(StateConflictError):
        rebase_state(mine, base=base, theirs=theirs)
    joined = rebase_state(appended, base=base, theirs=theirs)
    assert traces(joined, SECRET) == 0
    assert [one.said for one in read_history(joined).waiting] == ["[redacted] waits", "It rains"]


def test_the_function_sees_decoded_text() -> None:
    """Each string by itself, without escapes, also within arguments."""
    seen: list[str] = []

    def look(text: str) -> list[tuple[int, int]]:
        seen.append(text)
        return []

    book = Book("openai")
    call = ("look", {"at": "Zoë\n1"})
    book.add(user("Hi."), Said("", (call,), "", ((Text("ok"),),)), Said("Done."))
    redact_state(dump_state(book.state), look)

    assert {"Zoë\n1", "ok", "Hi.", "Done."} <= set(seen)


def test_a_word_of_the_provider_api_is_counted() -> None:
    """The role stays, and the report says that it matched."""
    blob = talk("openai", "Hi.")

    done = redact_state(blob, "assistant")

    assert (done.state, done.count, done.kept) == (blob, 0, 1)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "I think.", "signature": f"x{SECRET}x"},
        {"type": "redacted_thinking", "data": f"x{SECRET}x"},
    ],
)
def test_what_only_the_provider_reads_stays_whole(block: dict[str, Any]) -> None:
    """Changed, it would be refused. The report says that it was not searched."""
    said = {"role": "assistant", "content": [block, {"type": "text", "text": "A."}]}
    blob = entry_state("anthropic", {"role": "user", "content": "Hi."}, said, letters="ua")

    done = redact_state(blob, SECRET)

    assert (done.state, done.count) == (blob, 0)
    assert done.sealed == ("data" in block)


PLACES = {
    "key of an entry": {"role": "assistant", "content": "A.", f"Key {SECRET}": 1},
    "key of a part": {
        "role": "assistant",
        "content": [{"type": "text", "text": "A."}, {"type": "text", "text": "B.", f"Key {SECRET}": 1}],
    },
    "beside the text of a part": {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "A.", "citations": [{"type": "page_location", "cited_text": SECRET}]},
            {"type": "text", "text": "B."},
        ],
    },
    "key in an object of the model": {
        "role": "assistant",
        "content": [{"type": "text", "text": "A."}],
        "metadata": {f"Key {SECRET}": {SECRET: [SECRET]}},
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_each_place_of_an_entry_is_searched(place: str) -> None:
    """Keys too, and what stands beside a text."""
    blob = entry_state("anthropic", {"role": "user", "content": "Hi."}, PLACES[place], letters="ua")

    done = redact_state(blob, SECRET)

    assert traces(blob, SECRET) == 1
    assert traces(done.state, SECRET) == 0


@pytest.mark.parametrize("swapped", [False, True], ids=["in order", "swapped"])
@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (("call_hunter1-ZQ9", "call_hunter2-ZQ9"), re.compile(r"hunter\d-ZQ9")),  # both become the same
        (("call_redacted", "call_hunter2-ZQ9"), SECRET),  # one becomes the other
        (("call_hunter2-ZQ9", "call_redacted"), SECRET),
        (("look.hunter1-ZQ9:0", "look.hunter2-ZQ9:0"), re.compile(r"hunter\d-ZQ9")),  # ids of another shape
    ],
)
def test_ids_stay_different(ids: tuple[str, str], match: Any, swapped: bool) -> None:
    """Each result still finds its own call, also if the results came in another order."""
    calls = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    results = [{"role": "tool", "tool_call_id": id, "content": f"of {n}"} for n, id in enumerate(ids)]
    blob = entry_state(
        "openai",
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *(reversed(results) if swapped else results),
        {"role": "assistant", "content": "Ho."},
        letters="uatta",
    )

    done = redact_state(blob, match)

    found = read_history(done.state).tool_calls()
    assert len({call.id for call in found}) == 2
    assert [call.result for call in found] == ["of 0", "of 1"]
    assert traces(done.state, SECRET) == 0


def test_messages_that_leave_are_not_counted() -> None:
    """A reply of signed thinking alone leaves behind a change. The count is that of the messages left."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said, reply = {"role": "user", "content": SECRET}, {"role": "assistant", "content": [thought]}
    state = load_state(entry_state("anthropic", said, reply, letters="ua"))
    blob = dump_state(replace(state, meta=msgspec.structs.replace(state.meta, messages=2)))

    done = redact_state(blob, SECRET)

    assert len(entries_of(done.state)) == inspect_state(done.state).messages == 1


def test_a_part_that_matches_only_after_its_neighbour_was_cut() -> None:
    """What a first search leaves of a text is searched again: a second call would find nothing."""
    match = re.compile("abc|^d")
    said = user(Text("x ab"), Text("cd efg"))
    with Chat(ScriptedBackend("Ho.")) as chat:
        blob = chat.chat_with_state(None, messages=[said]).state

    done = redact_state(blob, match, "-")

    assert [part.text for part in read_history(done.state).all_messages()[0].parts] == ["x -", "- efg"]  # type: ignore[union-attr]
    assert redact_state(done.state, match, "-").count == 0


CALLED = (
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_hunter2-ZQ9", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_hunter2-ZQ9", "content": "a clock"},
    {"role": "assistant", "content": "A clock."},
)


def call_ids(blob: bytes) -> list[str]:
    return [call.id for call in read_history(blob).tool_calls()]


def test_a_new_id_is_not_that_of_a_waiting_call() -> None:
    """The answer to the waiting call would go to another one."""
    with Chat(ScriptedBackend(Calls([("ask", {"question": "?"})])), tools=[ask]) as chat:
        blob = chat.chat_with_state(entry_state("openai", *CALLED, letters="uata"), user="Ask.").state
    waiting = pending_calls(blob)[0].id

    done = redact_state(blob, SECRET, waiting.removeprefix("call_"))

    first, second = call_ids(done.state)
    assert second == pending_calls(done.state)[0].id == waiting
    assert first != waiting


def test_a_new_id_is_not_that_of_an_archived_call() -> None:
    """Both would stand in one history after the cut was undone."""
    calls = Calls([("ask", {"question": "?"})])
    with Chat(ScriptedBackend(calls, "A.", calls, "B."), tools=[ask]) as chat:
        blob = b""
        for said in ("Ask.", "Ask again."):
            blob = chat.chat_with_state(blob or None, user=said).state
            (waiting,) = pending_calls(blob)
            blob = chat.resume(blob, {waiting.id: ToolReturn("yes")}).state
        archived, live = call_ids(blob)
        blob = chat.compact_state(blob, CUT).state
    assert call_ids(blob) == [live]

    done = redact_state(blob, live, archived)

    first, second = call_ids(undo_cut(done.state))
    assert first == archived
    assert second not in (archived, live)


def test_a_replacement_is_text_wherever_it_stands() -> None:
    """It is stored as if it had been said: in an event with the escapes of a block, and never as a block."""
    written = "<app-context>a & b</app-context>"

    def told(text: str) -> bytes:
        with Chat(ScriptedBackend("A.")) as chat:
            blob = chat.append_to_state(None, event(f"{text} came"))
            return chat.chat_with_state(blob, user=f"I am {text}.").state

    done = redact_state(told(SECRET), SECRET, written)

    assert [one.said for one in read_history(done.state).all_messages()] == [
        one.said for one in read_history(told(written)).all_messages()
    ]
    assert entries_of(done.state) == entries_of(told(written))


def test_matches_that_overlap_are_one() -> None:
    """A detector may name a place twice."""
    done = redact_state(
        talk("openai", "0123456789"),
        lambda text: [(4, 8), (2, 6), (2, 3)] if text == "0123456789" else [],
    )

    assert read_history(done.state).all_messages()[0].text == "01[redacted]89"
    assert done.count == 1


def test_what_an_unfinished_turn_keeps_aside() -> None:
    """The text of a reply that broke off, a text document of a result, and who speaks in the inbox."""
    blob = talk("openai", "Ask.", replies=(Calls([("ask", {"question": "?"})]),))
    with Chat(ScriptedBackend()) as chat:
        state = load_state(chat.append_to_state(blob, user("Hi.", speaker=f"{SECRET} sr.")))
    assert state.open is not None
    (call,) = state.open.calls
    note = Document.from_bytes(f"It is {SECRET}.".encode(), media_type="text/plain")
    opened = replace(
        state.open, partial=f"I was {SECRET}", calls=(replace(call, state="done", parts=(note,)),)
    )

    done = redact_state(dump_state(replace(state, open=opened)), SECRET)

    new = load_state(done.state)
    assert traces(done.state, SECRET) == 0
    assert new.open is not None
    (left,) = new.open.calls[0].parts
    assert isinstance(left, Document)
    assert left.data == b"It is [redacted]."
    assert new.open.partial == "I was [redacted]"
    assert read_history(done.state).waiting[0].speaker == "[redacted] sr."
    assert base64.b64encode(SECRET.encode()) not in b"".join(pieces(done.state, Plain(), None))


def test_a_long_replacement_fits_where_there_is_a_bound() -> None:
    """Class and code of a failure have one; the state is written all the same."""
    book = Book("openai")
    book.add(user("Hi."), Said("Ho."), failed=["RateLimitError", SECRET])

    done = redact_state(dump_state(book.state), SECRET, "y" * 500)

    assert read_history(done.state).turns[0].failure == ("RateLimitError", "y" * 64)


def test_sealed_pieces_of_the_archive_are_counted() -> None:
    """They are not searched, wherever they stand."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}
    told = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Ho.", "annotations": []}],
    }  # fmt: skip
    blob = entry_state("openai-responses", said, item, told, letters="uaa")
    with Chat(ScriptedBackend("A.", "B.", wire="openai-responses")) as chat:
        blob = chat.compact_state(chat.run_turns(blob, ["Hu."]).state, CUT).state

    assert redact_state(blob, "no such text").sealed == 1


# ------------------------------------------------------------------------------------- in the archive


def test_the_name_of_an_archived_cut() -> None:
    """A strategy may be called as anything; its record and its row in the list of cuts have the name."""

    def keep(request: Any) -> Any:
        return request.turns[-1:]

    keep.__name__ = f"keep_{SECRET}"
    with Chat(ScriptedBackend("A.", "B.")) as chat:
        state = chat.run_turns(None, ["Hi.", "Ho."]).state
        state = chat.compact_state(state, Compactor(TurnLimit(1), keep, retain=True)).state
    assert traces(state, SECRET) == 2

    done = redact_state(state, SECRET)

    assert traces(done.state, SECRET) == 0
    assert {place.where for place in done.places} == {"archive", "facts"}
    assert read_history(undo_cut(done.state)).all_messages()[0].text == "Hi."


def test_media_of_the_archive() -> None:
    """A picture that did not change still stands there once, for all. A text that matched is another one
    now, and the old one is nowhere; the record names the media that it has."""
    picture = Image.from_bytes(random.Random(3).randbytes(9000), media_type="image/png")
    words = " ".join(f"word{n}" for n in range(1500))
    note = Document.from_bytes(f"{SECRET} {words}".encode(), media_type="application/pdf")
    with Chat(ScriptedBackend("A.", "B.", "C.", wire="anthropic")) as chat:
        state = chat.chat_with_state(None, messages=[user("First.", picture, note)]).state
        state = chat.chat_with_state(state, messages=[user("Again.", picture)]).state
        state = chat.compact_state(chat.run_turns(state, ["Hu."]).state, CUT).state
    assert inspect_state(state).media == 2

    done = redact_state(state, SECRET)

    assert traces(done.state, SECRET) == 0
    assert inspect_state(done.state).media == 1
    assert len(done.state) < len(state) + 2000
    (part,) = [part for part in load_state(done.state).parts if part.kind == ARCHIVE]
    ((_, (head, *_)),) = records_of(part, Plain())
    assert len(json.loads(head)["media"]) == 1
    verify_state(done.state)
    back = undo_cut(done.state)
    verify_state(back)
    parts = [part for message in read_history(back).all_messages() for part in message.parts]
    assert [part.data for part in parts if isinstance(part, Image)] == [picture.data] * 2
    (left,) = [part.data for part in parts if isinstance(part, Document)]
    assert left is not None
    assert left.decode() == f"[redacted] {words}"


def test_what_a_later_release_wrote_into_the_archive() -> None:
    """Names in the head of a record and in the records of its turns leave, and the chain stays whole."""
    book = Book("openai")
    book.add(user("Hi."), Said("Ho."), mood=SECRET)
    book.add(user("Hu."), Said("Ha."))
    with Chat(ScriptedBackend()) as chat:
        state = load_state(chat.compact_state(dump_state(book.state), CUT).state)
    place = next(place for place, part in enumerate(state.parts) if part.kind == ARCHIVE)
    ((record, (head, *rows)),) = records_of(state.parts[place], Plain())
    columns = [rawjson.replaced(head, {"tint": json.dumps(SECRET).encode()}), *rows]
    entries = [entry for turn in record.turns for entry in turn.entries]
    facts = rawjson.replaced(
        bytes(state.meta.cuts[-1].more), {"record": json.dumps(record_digest(columns, entries)).encode()}
    )
    cuts = (*state.meta.cuts[:-1], state.meta.cuts[-1]._replace(more=msgspec.Raw(facts)))
    parts = list(state.parts)
    parts[place] = part_of([(columns, entries)], Plain())
    blob = dump_state(replace(state, parts=tuple(parts), meta=msgspec.structs.replace(state.meta, cuts=cuts)))
    assert traces(blob, SECRET) == 1

    done = redact_state(blob, SECRET)

    assert (done.count, done.dropped) == (0, 2)
    assert traces(done.state, SECRET) == 0
    assert [one.text for one in read_history(undo_cut(done.state)).all_messages()] == [
        "Hi.",
        "Ho.",
        "Hu.",
        "Ha.",
    ]
