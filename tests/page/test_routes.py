"""What the page shows, and what its buttons do."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from goaitools_py import AsyncChat, Compactor, KeepRecentTurns, MessageLimit
from goaitools_py.backends import BackendError
from goaitools_py.compaction import MiddleOut
from goaitools_py.frontends import AskError
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.serve.page.page_app import PageSettings, key_of, name_of, page_app
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ..serve._world import asynchronous
from ._pages import BASE, paged, said

KEYS = ["hall", "user-7/t1", "~odd", "..", "Äpfel & Birnen", "a" * 93, "x/" * 40]


@pytest.mark.parametrize("key", KEYS)
def test_any_key_has_an_address(key: str) -> None:
    """Also one with slashes, which no address can hold as it is."""
    name = name_of(key)
    assert name is not None
    assert key_of(name) == key
    with paged("Hello.") as client:
        said(client, "Hi", name)
        [row] = client.get("/conversations").json()["conversations"]
        view = client.get(f"/conversations/{name}").json()
    assert (row["name"], row["key"], view["key"]) == (name, key, key)


@pytest.mark.parametrize(
    "name",
    [
        "~",
        "~!",
        "~aGFsbA",
        "~aGFsbA==",
        "~_w",
        "~\xe9",
        "",
        "..",
        "a b",
        "a/b",
        "\xc4",
        "a\0",
        "a" * 129,
        "a" * 600,
        "%2e",
    ],
)
def test_a_name_has_one_spelling(name: str) -> None:
    """So two addresses never lead to one conversation, and nonsense leads to none."""
    with pytest.raises(AskError):
        key_of(name)
    with paged() as client:
        if name not in ("", "..", "a/b"):  # these are other addresses
            path = f"/conversations/{quote(name)}"
            for address in (path, f"{path}/facts", f"{path}/removed", f"/api{path}"):
                assert client.get(address).status_code == 400
    assert name_of("k" * 400) is not None or name_of("/" * 400) is None


def test_a_conversation_is_shown_as_it_is() -> None:
    """Its messages, what waits, its facts, and nothing of one that is not there."""
    with paged(Calls([("fire", {"at": "door"})], text="Now."), "Hit.") as client:
        assert client.get("/conversations/hall").json()["version"] is None
        assert client.get("/conversations/hall/facts").status_code == 404
        assert said(client, "Fire at the door.")["status"] == "awaiting_tools"
        view = client.get("/conversations/hall").json()
        assert (view["status"], view["turn_status"]) == ("awaiting_tools", "none")
        [call] = view["pending"]
        answer = client.post(
            "/api/conversations/hall/answers", json={"answers": {call["id"]: {"approve": True}}}
        )
        assert answer.json()["text"] == "Hit."
        view = client.get("/conversations/hall").json()
        facts = client.get("/conversations/hall/facts").json()

    assert view["pending"] == []
    assert [one["role"] for one in view["messages"]] == ["user", "assistant"]
    [turn] = facts["turns"]
    assert turn["said"] == "Fire at the door."
    assert turn["iterations"][0]["calls"][0]["name"] == "fire"
    assert facts["state"]["turns"] == facts["state"]["turns_processed"] == 1
    assert facts["usage"]["requests"] == 2


def test_raw_entries_and_differences() -> None:
    """A turn's entries are those that are stored; the difference to the turn before names this turn."""
    with paged("One.", "Two.") as client:
        said(client, "First")
        said(client, "Second")
        raw = client.get("/conversations/hall/turns/1/raw").json()
        diff = client.get("/conversations/hall/turns/1/diff").json()
        newest = client.get("/conversations/hall/turns/2/diff").json()
        gone = [client.get(f"/conversations/hall/turns/7/{what}").status_code for what in ("raw", "diff")]

    assert [json.loads(entry)["content"] for entry in raw[0]] == ["First", "One."]
    assert (diff["added"], newest["added"]) == ([1], [2])
    assert newest["facts"]["messages"] == [2, 4]
    assert "revision" not in newest["facts"]
    assert gone == [404, 404]


def test_any_two_turns_are_compared() -> None:
    """From after one turn to after another, and from the beginning; of turns that are there, and in order."""
    with paged("One.", "Two.", "Three.") as client:
        for text in ("First", "Second", "Third"):
            said(client, text)
        path = "/conversations/hall/turns/3/diff"
        found = {since: client.get(path, params={"since": since}).json() for since in (0, 1, 2)}
        assert client.get(path).json() == found[2]
        wrong = [client.get(path, params={"since": since}).status_code for since in ("3", "7", "-1", "x", "")]
        gone = client.get("/conversations/hall/turns/7/diff", params={"since": "5"}).status_code

    assert {since: one["added"] for since, one in found.items()} == {0: [1, 2, 3], 1: [2, 3], 2: [3]}
    assert {since: one["facts"]["messages"] for since, one in found.items()} == {
        0: [0, 6],
        1: [2, 6],
        2: [4, 6],
    }
    assert (wrong, gone) == ([400] * 5, 404)


def test_rewind_and_fork() -> None:
    """A copy has a key of its own and may end earlier; a rewind takes turns out; both refuse nonsense."""
    with paged("One.", "Two.", "Three.") as client:
        said(client, "First")
        said(client, "Second")
        copy = client.post("/conversations/hall/fork", json={"after": 1}).json()
        whole = client.post("/conversations/hall/fork", json={"after": None}).json()
        assert client.post("/conversations/hall/fork", json={"after": 7}).status_code == 404
        assert client.post("/conversations/hall/rewind", json={"before": 7}).status_code == 404
        assert client.post("/conversations/hall/rewind", json={"before": 1}).status_code == 204
        texts = [
            [one["text"] for one in client.get(f"/conversations/{name}").json()["messages"]]
            for name in (copy["name"], whole["name"], "hall")
        ]
        wrong: list[Any] = [0, -1, True, "1", None]
        refused = [client.post("/conversations/hall/rewind", json={"before": n}).status_code for n in wrong]
        refused += [client.post("/conversations/hall/fork", json={"after": n}).status_code for n in wrong[:4]]
        assert client.post("/conversations/none/fork", json={"after": None}).status_code == 404
        assert client.post("/conversations/hall/rewind", json=[1]).status_code == 400

    assert texts == [["First", "One."], ["First", "One.", "Second", "Two."], []]
    assert refused == [400] * 9
    assert copy["key"].startswith("hall-")


@pytest.mark.parametrize("retain", [True, False], ids=["archive", "no archive"])
def test_behind_a_cut_turns_are_those_that_the_page_shows(retain: bool) -> None:
    """With an archive a rewind brings back what a cut took out, so a turn is found by its number, not by its
    place in the list. Without one, what stood before the cut is not known, and the page says so."""
    backend = ScriptedBackend(*[f"Reply {n}." for n in range(1, 9)])
    cut = Compactor(MessageLimit(8), MiddleOut(first=2, last=2), retain=retain)
    app = page_app(AsyncChat(backend, compactor=cut), AsyncMemoryStore(), PageSettings())
    with TestClient(app, base_url=BASE) as client:
        for n in range(1, 9):
            said(client, f"Message {n}")
        facts = client.get("/conversations/hall/facts").json()
        path = "/conversations/hall/turns/2/diff"
        first, since = client.get(path), client.get(path, params={"since": 0})
        copied = client.post("/conversations/hall/fork", json={"after": 1})
        rewound = client.post("/conversations/hall/rewind", json={"before": 2})
        shown = client.get("/conversations/hall").json()["messages"]

    live = [turn["number"] for turn in facts["turns"]]
    assert (live[0], live[-1]) == (8, 1)
    assert len(live) < 8
    if retain:
        assert facts["numbers"] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert (first.json()["added"], since.json()["added"]) == ([2], [1, 2])
        assert (copied.status_code, rewound.status_code) == (200, 204)
        assert [one["text"] for one in shown] == ["Message 1", "Reply 1."]
    else:
        assert facts["numbers"] == sorted(live)
        assert {one.status_code for one in (first, since, copied, rewound)} <= {400, 404}
        assert len(shown) == 2 * len(live)


def test_a_reply_is_written_again() -> None:
    """The newest reply goes and comes anew, under the same message."""
    with paged("One.", "Two.") as client:
        first = said(client, "Hi")
        again = said(client, "Hi", turn_id="m2", again=first["turn"])
        messages = client.get("/conversations/hall").json()["messages"]
        body = {"again": first["turn"], "answers": {"c": {"approve": True}}}
        assert client.post("/api/conversations/hall/answers", json=body).status_code == 400

    assert again["text"] == "Two."
    assert [one["text"] for one in messages] == ["Hi", "Two."]


def test_a_first_message_that_failed_is_not_said_twice() -> None:
    """The turn goes on with the message that waits, and does not take it once more."""
    with paged(BackendError("away"), "One.") as client:
        failed = client.post("/api/conversations/hall/turns", json={"text": "Hi", "turn_id": "m1"})
        again = said(client, "Hi", turn_id="m2", again="")
        messages = client.get("/conversations/hall").json()["messages"]

    assert failed.status_code == 503
    assert again["text"] == "One."
    assert [one["text"] for one in messages] == ["Hi", "One."]


def test_a_title_is_set() -> None:
    """It is in the list and in the view."""
    with paged("One.") as client:
        said(client, "Hi")
        assert client.get("/conversations").json()["conversations"][0]["title"] == "Hi"
        client.patch("/api/conversations/hall", json={"title": "Greetings"})
        [row] = client.get("/conversations").json()["conversations"]
        assert row["title"] == client.get("/conversations/hall").json()["title"] == "Greetings"


def test_sealed_conversations_are_opened_with_the_chats_key() -> None:
    """The page's own functions get a plain copy; what is stored stays sealed."""
    store = AsyncMemoryStore()

    def binding(key: str) -> dict[str, str]:
        return {"user": key}

    with paged("One.", store=store, codec=Encrypted(Keyring(Key.generate())), binding=binding) as client:
        said(client, "First")
        facts = client.get("/conversations/hall/facts").json()
        raw = client.get("/conversations/hall/turns/1/raw").json()
        copy = client.post("/conversations/hall/fork", json={"after": None}).json()
        assert client.get(f"/conversations/{copy['name']}").json()["messages"][0]["text"] == "First"

    assert facts["turns"][0]["said"] == "First"
    assert "First" in raw[0][0]


@asynchronous
async def test_what_cuts_removed_is_shown() -> None:
    """With an archive, the turns that a cut took out have their texts."""
    backend = ScriptedBackend(*[f"Reply {n}." for n in range(6)])
    chat = AsyncChat(backend, compactor=Compactor(MessageLimit(4), KeepRecentTurns(1), retain=True))
    with TestClient(page_app(chat, AsyncMemoryStore(), PageSettings()), base_url=BASE) as client:
        for n in range(4):
            said(client, f"Message {n}")
        facts = client.get("/conversations/hall/facts").json()
        removed = client.get("/conversations/hall/removed").json()

    assert facts["cuts"]
    assert facts["cuts"][0]["turns"] >= 1
    assert ("Message 0", "Reply 0.") in [(turn["said"], turn["reply"]) for turn in removed]
    assert not {turn["number"] for turn in removed} & {turn["number"] for turn in facts["turns"]}


def test_an_address_that_names_nothing_is_no_fault_of_the_server() -> None:
    """A number of thousands of digits, which Python refuses to read, and a name that stands for a key that no
    store keeps."""
    digits = "9" * 5_000
    with paged("One.", "Two.") as client:
        said(client, "First")
        said(client, "Second")
        found = [
            client.get(f"/conversations/{path}").status_code
            for path in (
                f"hall/turns/{digits}/raw", f"hall/turns/{digits}/diff", "hall/turns/x/raw",
                f"hall/turns/2/diff?since={digits}", "~AAA", "~AAA/facts", "hall/turns/2/raw",
                "hall/turns/2/diff?since=1",
            )
        ]  # fmt: skip
    assert found == [404, 404, 404, 400, 400, 400, 200, 200]


@pytest.mark.parametrize("key", [*KEYS, "a" * 128, "Ä" * 46])
def test_a_copy_has_an_address(key: str) -> None:
    """Also one of a conversation whose name is as long as a name may be."""
    with paged("Hello.") as client:
        said(client, "Hi", name_of(key))  # type: ignore[arg-type]
        copy = client.post(f"/conversations/{name_of(key)}/fork", json={"after": None}).json()
        assert copy["key"] != key
        view = client.get(f"/conversations/{copy['name']}").json()
    assert view["key"] == copy["key"]
    assert len(view["messages"]) == 2
