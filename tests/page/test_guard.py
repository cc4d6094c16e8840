"""Who may ask the page's server for what."""

from __future__ import annotations

import base64
import hashlib
import re
from time import process_time
from typing import Any

import pytest

from goaitools_py.serve.guard import SCRIPTS, cookie_of
from goaitools_py.stores import AsyncMemoryStore

from ._pages import paged, said

TOKEN = "Harrogate-4711-0123"
SAY = {"text": "Hi", "turn_id": "m1"}
TURNS = "/api/conversations/hall/turns"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost:1", 200),
        ("[::1]:8765", 200),
        ("127.8.9.1", 200),
        ("evil.example:8765", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.0.0.7:8765", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_a_host_of_others_is_refused(host: str, status: int) -> None:
    """A page of another site that rebinds its name to this machine names itself as the host."""
    with paged() as client:
        for path in ("/", *(f"/{name}" for name in SCRIPTS), "/about"):
            assert client.get(path, headers={"host": host}).status_code == status


def test_names_of_the_server_are_taken() -> None:
    """With a name of its own, the server is reached under it and under addresses, and under no other name."""
    with paged(hosts=("Chat.example.org",), only_loopback=False) as client:
        found = [
            client.get("/about", headers={"host": host}).status_code
            for host in ("chat.example.org", "10.0.0.7:8765", "evil.example")
        ]
    assert found == [200, 200, 421]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_origin_changes_nothing(headers: dict[str, str]) -> None:
    """Nor does it read. A request of our own page, and one of a program, pass."""
    store = AsyncMemoryStore()
    with paged("Hello.", store=store) as client:
        assert client.post(TURNS, json=SAY, headers=headers).status_code == 403
        assert client.delete("/api/conversations/hall", headers=headers).status_code == 403
        assert client.post("/login", json={"token": ""}, headers=headers).status_code == 403
        assert client.get("/conversations", headers=headers).status_code == 403
        assert client.get("/conversations").json()["conversations"] == []
        own = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
        assert client.post(TURNS, json=SAY, headers=own).status_code == 200


def test_a_form_of_another_page_is_no_request() -> None:
    """A body must be JSON, which a form cannot send."""
    with paged("Hello.") as client:
        for path in (TURNS, "/conversations/hall/rewind", "/login"):
            answer = client.post(path, content=b'{"before":1}', headers={"content-type": "text/plain"})
            assert answer.status_code == 415


def test_a_token_is_asked_for() -> None:
    """All but the page itself needs it: as a bearer, or as the cookie that the login sets."""
    with paged("Hello.", token=TOKEN) as client:
        assert client.get("/").status_code == client.get("/page.js").status_code == 200
        for path in ("/about", "/conversations", "/conversations/hall", "/api/conversations/hall"):
            assert client.get(path).status_code == 401
        assert client.post(TURNS, json=SAY).status_code == 401
        for wrong in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {cookie_of(TOKEN)}"):
            assert client.get("/about", headers={"authorization": wrong}).status_code == 401
        assert client.get("/about", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        for given in ("wrong", "", 7, None):
            assert client.post("/login", json={"token": given}).status_code == 401
        answer = client.post("/login", json={"token": TOKEN})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN.lower() not in cookie
        assert client.post(TURNS, json=SAY).status_code == 200


def test_a_page_that_only_reads_changes_nothing() -> None:
    """Nor does it ask a model. It may follow a turn that runs: that begins nothing."""
    store = AsyncMemoryStore()
    with paged("Hello.", store=store) as client:
        said(client, "Hi")
        before = client.get("/conversations").json()
    with paged(store=store, read_only=True) as client:
        refused: list[Any] = [
            client.post(TURNS, json={"text": "More", "turn_id": "m2"}),
            client.post(f"{TURNS}/current", json={}),
            client.delete(f"{TURNS}/current"),
            client.delete("/api/conversations/hall"),
            client.post("/conversations/hall/rewind", json={"before": 1}),
            client.post("/conversations/hall/fork", json={"after": None}),
            client.patch("/api/conversations/hall", json={"title": "x"}),
        ]
        assert [answer.status_code for answer in refused] == [403] * len(refused)
        assert client.get(f"{TURNS}/current").status_code == 204
        assert client.get("/conversations").json() == before
        assert client.get("/about").json()["read_only"] is True
        assert client.get("/conversations/hall/facts").status_code == 200


def test_the_page_is_protected_in_the_browser() -> None:
    """Its policy has the digest of its only style, no script but its own file, and texts cannot be HTML."""
    with paged() as client:
        answer = client.get("/")
        script = client.get("/page.js")
        style = re.findall(r"<style>(.*?)</style>", answer.text, re.S)
        policy = answer.headers["content-security-policy"]

    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert len(style) == 1
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script-src 'self';" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert script.headers["content-type"].startswith("text/javascript")
    for one in (answer, script):
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["x-frame-options"] == "DENY"


def test_the_page_is_small_and_needs_no_other_server() -> None:
    """One HTML file and five scripts of at most 80 KB together, without an address of another server or a way
    to make HTML of a text."""
    names = ("markdown.js", "values.js", "cards.js", "inspector.js", "page.js")
    with paged() as client:
        page, *scripts = (client.get(path).text for path in ("/", *names))

    assert len("".join(scripts).encode()) <= 80_000
    for text in (page, *scripts):
        assert not re.search(r"https?://[\w.]|@import|url\(", text)
    for script in scripts:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|createElementNS",
            script,
        )
    assert re.findall(r"<script[^>]*>", page) == [f'<script src="{name}">' for name in names]
    assert not re.search(r"\sstyle=|\son\w+=", page)


@pytest.mark.parametrize("name", ["origin", "sec-fetch-site"])
def test_each_of_two_headers_of_one_name_counts(name: str) -> None:
    """A proxy may have added the first one."""
    own, foreign = {
        "origin": ("http://127.0.0.1:8765", "http://evil.example"),
        "sec-fetch-site": ("same-origin", "cross-site"),
    }[name]
    with paged() as client:
        found = [
            client.get("/about", headers=[(name, one) for one in values]).status_code
            for values in ((own,), (own, own), (own, foreign), (foreign, own))
        ]
        assert client.get("/about", headers={"origin": "evil://127.0.0.1:8765"}).status_code == 403
    assert found == [200, 200, 403, 403]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "a=b; ",
        "a=b;c; ",
        'odd="[1, {2}]"; ',
        "é=ü; ",
        "x=\\\\\\; ",
        "goaitools_page=wrong; ",
        "goaitools_pages=x; ",
        ";;",
    ],
)
def test_cookies_of_others_beside_ours_change_nothing(before: str) -> None:
    """Programs on other ports of the same host share its cookies, and write them as they like."""
    own = f"goaitools_page={cookie_of(TOKEN)}"
    with paged(token=TOKEN) as client:
        for cookies in ([before + own], [f"{own}; {before}"], [before, own], [own, before]):
            headers = [("cookie", one.encode("latin-1")) for one in cookies if one]
            assert client.get("/about", headers=headers).status_code == 200
        for wrong in (before, f"{before}goaitools_page={TOKEN}", f"{before}{own}x", f"{before}x{own}"):
            assert client.get("/about", headers=[("cookie", wrong.encode("latin-1"))]).status_code == 401


@pytest.mark.parametrize(
    "cookie",
    ['a="' + "\\" * 60_000 + '"', "a=" + ";" * 60_000, "goaitools_page=" + "9" * 60_000, "," * 60_000],
)
def test_a_hostile_cookie_costs_little(cookie: str) -> None:
    """A server reads it before it knows who asks. As long as headers may be, it takes milliseconds."""
    with paged(token=TOKEN) as client:
        start = process_time()
        assert client.get("/about", headers={"cookie": cookie}).status_code == 401
        assert process_time() - start < 0.25


def test_a_login_is_short() -> None:
    """Who logs in is not known yet: a body of many values is not read."""
    with paged(token=TOKEN) as client:
        crowd = b'{"token":[' + b"[]," * 1_000_000 + b"[]]}"
        answer = client.post("/login", content=crowd, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        for given in (7, None, True, [TOKEN], {"token": TOKEN}, TOKEN + "x", "é", "\0"):
            assert client.post("/login", json={"token": given}).status_code == 401
        assert client.post("/login", json={"token": TOKEN}).status_code == 204
