"""A server of ours as a view under Django's ASGI handler, and the admin's page of a conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async

from goaitools_py import AsyncChat, Chat, tool
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.serve import Caller, Refused, serve
from goaitools_py.testing import Calls, ScriptedBackend

from ._django import Conversation  # sets Django up: before anything of Django's

# isort: split
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.test.utils import override_settings
from django.urls import clear_url_caches, path, set_urlconf
from django.utils.html import escape

from goaitools_py.integrations.django import AsyncDjangoStore, DjangoStore
from goaitools_py.integrations.django_admin import ConversationAdmin
from goaitools_py.integrations.django_views import django_request, serve_view

HOSTILE = "<script>alert(1)</script>"
KEYS = Keyring(Key(b"k" * 32))
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


class Sealed(ConversationAdmin):
    """Shows states that are signed."""

    codec = Signed(KEYS)

    def binding(self, row: Any) -> Any:
        """The user, who is the first part of the key."""
        return {"user": row.key.partition("/")[0]}


site = AdminSite()
site.register(Conversation, ConversationAdmin)
urlpatterns: list[Any] = [path("admin/", site.urls)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A database with users, sessions and conversations."""
    name = str(tmp_path_factory.mktemp("pages") / "site.db")
    connections["default"].close()
    connections["default"].settings_dict["NAME"] = connections.settings["default"]["NAME"] = name
    with connections["default"].schema_editor() as editor:
        for model in (ContentType, Permission, Group, User, Session, LogEntry, Conversation):
            editor.create_model(model)
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=MIDDLEWARE, TEMPLATES=TEMPLATES):
        yield
    connections.close_all()


def user(name: str, **facts: Any) -> User:
    found, _ = User.objects.get_or_create(username=name, defaults=facts)
    return found  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------- the view


class Site:
    """A site of Django with our server as a view, and a client that is signed in, or not."""

    def __init__(self, *steps: Any) -> None:
        self.held = asyncio.Event()
        self.is_inside = asyncio.Event()

        @tool(idempotent=True)
        async def look(at: str) -> str:
            """Look at something, for as long as the test wants."""
            self.is_inside.set()
            await self.held.wait()
            return f"seen {at}"

        chat = AsyncChat(ScriptedBackend(*steps), tools=[look, fire])
        app = serve(chat, AsyncDjangoStore(Conversation), key=self.whose)
        urlpatterns[1:] = [path("chat/<path:path>", serve_view(app))]
        set_urlconf_anew()
        self.application = get_asgi_application()

    @staticmethod
    async def whose(request: Any, name: str) -> Caller:
        """Whose conversation it is: that of the user of Django's session."""
        found = await django_request(request).auser()
        if not found.is_authenticated:
            raise Refused(401)
        return Caller(f"{found.username}/{name}", prefix=f"{found.username}/")

    def client(self, cookies: dict[str, str]) -> httpx.AsyncClient:
        """A client of the site with the cookies of a session."""
        token = "a" * 32
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.application),
            base_url="http://testserver/chat",
            cookies={**cookies, "csrftoken": token},
            headers={"x-csrftoken": token},
        )


def set_urlconf_anew() -> None:
    """Have Django read this module's routes again."""
    clear_url_caches()
    set_urlconf(None)


def signed_in(name: str) -> dict[str, str]:
    """The cookies of a user's session."""
    client = Client()
    client.force_login(user(name))
    return {"sessionid": client.cookies["sessionid"].value}


def in_a_site(test: Any) -> Any:
    """Run a test on an event loop, for a minute at most; its connections are closed, on all threads."""

    def run(cookies: dict[str, dict[str, str]]) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(60):
                await test(cookies)
            while waits := [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]:
                await asyncio.wait(waits)
            await sync_to_async(connections.close_all)()

        asyncio.run(in_time())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@pytest.fixture
def cookies(tables: None) -> Iterator[dict[str, dict[str, str]]]:
    """The cookies of two users who are signed in."""
    yield {name: signed_in(name) for name in ("ada", "eve")}
    connections.close_all()


@in_a_site
async def test_a_view_serves_the_users_of_the_site(cookies: Any) -> None:
    """Django's session says who it is; nobody sees another's conversation; CSRF and limits hold."""
    site = Site("Good evening.")
    said = {"text": "Hello", "turn_id": "m1"}
    async with (
        site.client(cookies["ada"]) as ada,
        site.client(cookies["eve"]) as eve,
        site.client({}) as nobody,
    ):
        assert (await nobody.post("/conversations/hall/turns", json=said)).status_code == 401
        answer = await ada.post("/conversations/hall/turns", json=said)
        assert (answer.status_code, answer.json()["text"]) == (200, "Good evening.")
        assert answer.headers["content-type"] == "application/json"
        assert (await eve.get("/conversations/hall")).status_code == 404
        assert (await ada.get("/conversations/hall")).json()["turns"] == 1
        assert (await ada.get("/nothing")).status_code == 404
        large = await ada.post("/conversations/hall/turns", json={**said, "text": "x" * 1_100_000})
        assert large.status_code == 413
        assert (await ada.get("/openapi.json")).json()["servers"] == [{"url": "/chat"}]
        forged = await ada.post("/conversations/hall/turns", json=said, headers={"x-csrftoken": "b" * 32})
        assert (forged.status_code, forged.headers["content-type"]) == (403, "text/html; charset=utf-8")


@in_a_site
async def test_a_view_streams(cookies: Any) -> None:
    site = Site(Calls([("look", {"at": "door"})], text="Hm."), "Done.")
    site.held.set()
    async with site.client(cookies["ada"]) as ada:
        headers = {"accept": "text/event-stream"}
        said = {"text": "Look", "turn_id": "m1"}
        answer = await ada.post("/conversations/yard/turns", json=said, headers=headers)

    assert answer.headers["content-type"].startswith("text/event-stream")
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert [name for name in names if name != "text"] == ["started", "tool_call", "tool_result", "done"]


@in_a_site
async def test_a_turn_outlives_its_request(cookies: Any) -> None:
    """The client goes away in the middle of a tool; Django cancels the request, and the turn is saved."""
    site = Site(Calls([("look", {"at": "door"})]), "Done.")
    body = json.dumps({"text": "Look", "turn_id": "m1"}).encode()
    token = b"a" * 32
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/chat/conversations/gone/turns", "query_string": b"", "root_path": "",
        "headers": [
            (b"host", b"testserver"), (b"content-type", b"application/json"), (b"x-csrftoken", token),
            (b"accept", b"text/event-stream"),
            (b"cookie", b"csrftoken=%s; sessionid=%s" % (token, cookies["ada"]["sessionid"].encode())),
        ],
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        await site.is_inside.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await site.application(scope, receive, send)
    site.held.set()
    async with site.client(cookies["ada"]) as ada:
        followed = await ada.get("/conversations/gone/turns/current")
        messages = (await ada.get("/conversations/gone/messages")).json()

    assert "event: done" in followed.text
    assert messages[-1]["text"] == "Done."


@in_a_site
async def test_an_error_of_the_application_is_not_lost(cookies: Any) -> None:
    """Django gets it, also in the middle of a stream: there it is logged, and the client sees a break."""
    request = AsyncRequestFactory().get("/chat/x")

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("early")

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        raise KeyError("late")

    async def says_nothing(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(KeyError, match="early"):
        await serve_view(refuses)(request, "x")
    with pytest.raises(RuntimeError, match="without a response"):
        await serve_view(says_nothing)(request, "x")
    answer: Any = await serve_view(breaks)(request, "x")
    pieces = aiter(answer)
    assert await anext(pieces) == b"one"
    with pytest.raises(KeyError, match="late"):
        await anext(pieces)


@in_a_site
async def test_headers_of_one_name_are_all_kept(cookies: Any) -> None:
    """A middleware around the application may set two cookies, or add to `Vary`."""

    async def sets(scope: Any, receive: Any, send: Any) -> None:
        headers = [
            (b"set-cookie", b"a=1; Path=/; HttpOnly; SameSite=lax"), (b"vary", b"Cookie"),
            (b"Vary", b"Accept"), (b"Set-Cookie", b"b=2; Max-Age=5"), (b"content-type", b"text/plain"),
            (b"set-cookie", b"a=3; Path=/chat"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one"})

    answer: Any = await serve_view(sets)(AsyncRequestFactory().get("/chat/x"), "x")

    assert answer.headers["vary"] == "Cookie, Accept"
    assert answer.headers["content-type"] == "text/plain"
    assert "set-cookie" not in answer.headers
    assert [one.output(header="").strip() for one in answer.cookies.values()] == [
        "a=1; HttpOnly; Path=/; SameSite=lax",
        "b=2; Max-Age=5",
        "a=3; Path=/chat",
    ]
    assert answer.cookies["a"].value == "1"
    assert (answer.cookies["a"]["httponly"], answer.cookies["a"]["samesite"]) == (True, "lax")
    assert answer.cookies["b"]["max-age"] == "5"


def test_a_view_needs_the_asgi_handler() -> None:
    """Under WSGI each request has an event loop of its own, which ends with it."""
    view = serve_view(serve(AsyncChat("sim"), AsyncDjangoStore(Conversation), key=Site.whose))

    with pytest.raises(ImproperlyConfigured, match="ASGI"):
        asyncio.run(view(RequestFactory().get("/chat/conversations"), "conversations"))


def test_a_request_from_elsewhere_has_no_user_of_django() -> None:
    with pytest.raises(LookupError):
        django_request(SimpleNamespace(scope={}))


# --------------------------------------------------------------------------------------------- the admin


@pytest.fixture
def staff(tables: None) -> Iterator[Client]:
    """A superuser: whatever a page refuses to them, nobody may."""
    found = user("root", is_staff=True, is_superuser=True)
    set_urlconf_anew()
    client = Client()
    client.force_login(found)
    yield client
    close_old_connections()


def stored(key: str, *steps: Any, **options: Any) -> None:
    """A conversation in a row, whose user says something hostile."""
    Conversation.objects.filter(pk=key).delete()
    with Chat(ScriptedBackend(*steps), tools=[fire], prices=lambda _: Decimal("0.125"), **options) as chat:
        conversation = chat.conversation(DjangoStore(Conversation), key)
        conversation.send(f"Hello {HOSTILE}", turn_id="m1", speaker=f"Ada {HOSTILE}")


def test_the_admin_shows_what_a_conversation_is_and_cost(staff: Client) -> None:
    """Status, cost and messages; what was said stays text."""
    stored(f"ada/{HOSTILE}", f"Good evening. {HOSTILE}")

    listed = staff.get("/admin/chats/conversation/").content.decode()
    row = staff.get(change_of(f"ada/{HOSTILE}")).content.decode()

    for page in (listed, row):
        assert "$0.125000" in page
        assert "complete" in page
        assert HOSTILE not in page
    assert row.count(escape(HOSTILE)) >= 4
    assert "Good evening." in row
    assert "turn 1" in row.lower()


def test_the_admin_shows_the_calls_that_wait(staff: Client) -> None:
    stored("ada/gate", Calls([("fire", {"at": HOSTILE})]))

    row = staff.get(change_of("ada/gate")).content.decode()

    assert "awaiting_tools" in row
    assert "<b>fire</b> (approval, call_1_0)" in row
    assert HOSTILE not in row


def test_the_admin_changes_nothing(staff: Client) -> None:
    """There is no form, and no request changes, adds or deletes a row."""
    stored("ada/hall", "Hi.")
    before = Conversation.objects.get(pk="ada/hall")

    assert 'name="_save"' not in staff.get(change_of("ada/hall")).content.decode()
    assert staff.post(change_of("ada/hall"), {"title": "x"}).status_code == 403
    assert staff.post(change_of("ada/hall", "delete"), {"post": "yes"}).status_code == 403
    assert staff.post("/admin/chats/conversation/add/", {"key": "x"}).status_code == 403
    act = {"action": "delete_selected", "_selected_action": "ada/hall", "post": "yes"}
    staff.post("/admin/chats/conversation/", act)
    after = Conversation.objects.get(pk="ada/hall")
    assert (after.version, after.title, bytes(after.blob)) == (
        before.version,
        before.title,
        bytes(before.blob),
    )


def test_the_admin_says_what_it_cannot_read(staff: Client) -> None:
    """A sealed state without its key, and one that is damaged; with the key it is read."""
    stored("ada/sealed", "Good evening.", codec=Signed(KEYS), binding={"user": "ada"})
    row = Conversation.objects.get(pk="ada/sealed")
    plain, sealed = ConversationAdmin(Conversation, site), Sealed(Conversation, site)

    assert "StateAuthError" in plain.messages(row)
    assert "StateAuthError" in plain.pending(row)
    assert "Good evening." in sealed.messages(row)
    assert sealed.pending(row) == "none"
    row.blob = bytes(row.blob)[:-40]
    assert "cannot be read" in sealed.messages(row)
    assert "bytes" in sealed.size(row)


def test_old_turns_are_counted(staff: Client) -> None:
    stored("ada/long", "One.", "Two.", "Three.")
    with Chat(ScriptedBackend("Two.", "Three."), tools=[fire]) as chat:
        conversation = chat.conversation(DjangoStore(Conversation), "ada/long")
        conversation.send("Second", turn_id="m2")
        conversation.send("Third", turn_id="m3")
    shown = ConversationAdmin(Conversation, site)
    shown.newest = 1

    text = shown.messages(Conversation.objects.get(pk="ada/long"))

    assert "2 older turns are not shown." in text
    assert ("Three." in text, "One." in text) == (True, False)


def change_of(key: str, page: str = "change") -> str:
    return f"/admin/chats/conversation/{quote(key)}/{page}/"
