"""States in Django: the field, the model, the store, on real servers."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from goaitools_py import Chat, StateConflictError, StateFormatError, StoreUnavailableError, event
from goaitools_py.stores.common import is_listed
from goaitools_py.testing import store_contract

from ..stores._places import mariadb_database, postgres_database
from ..stores.test_keys import near_keys
from ._django import Conversation, Player, server_settings  # sets Django up: before anything of Django's

# isort: split
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.core import serializers
from django.db import connections, models, transaction
from django.db.backends.signals import connection_created
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.forms import modelform_factory
from django.test import RequestFactory
from django.utils import timezone

from goaitools_py.integrations.django import AsyncDjangoStore, DjangoStore, StateField

WORD = "Harrogate-4711"
STATE = Chat("sim").append_to_state(None, event(WORD))
LARGE = STATE + bytes(200_000)
MODELS = (Conversation, Player)


@pytest.fixture(scope="module", params=["default", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with the tables in it, made by the migration that Django writes for the models."""
    name = str(request.param)
    with ExitStack() as stack:
        if name == "default":
            settings = {"NAME": str(tmp_path_factory.mktemp("django") / "chats.db")}
        else:
            url = stack.enter_context(postgres_database() if name == "postgres" else mariadb_database())
            settings = server_settings(url)
        connections[name].settings_dict.update(settings)
        connections.settings[name].update(settings)
        migrate(name)
        yield name
        connections.close_all()


def chats() -> ProjectState:
    """The models as they are."""
    made = ProjectState()
    for model in MODELS:
        made.add_model(ModelState.from_model(model))
    return made


def makemigrations(before: ProjectState, after: ProjectState) -> str:
    """The text of the migration that leads from one state of the models to another; empty if none does."""
    detector = MigrationAutodetector(before, after, MigrationQuestioner({"ask_initial": True}))
    found = detector.changes(MigrationGraph()).get("chats", [])
    return "".join(MigrationWriter(migration, include_header=False).as_string() for migration in found)


def migrate(alias: str) -> ProjectState:
    """Write the migration, read it back, and apply it."""
    names: dict[str, Any] = {}
    exec(makemigrations(ProjectState(), chats()), names)
    migration = names["Migration"]("0001_initial", "chats")
    with connections[alias].schema_editor() as editor:
        after: ProjectState = migration.apply(ProjectState(), editor)
    return after


@pytest.fixture
def store(alias: str) -> DjangoStore:
    """A store over an empty table."""
    Conversation.objects.using(alias).all().delete()
    return DjangoStore(Conversation, using=alias)


def in_thread(call: Callable[[], Any]) -> Any:
    """Call it in a thread of its own, with a connection of its own."""

    def run() -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


# ----------------------------------------------------------------------------------------------- the field


def test_migrations_know_the_field() -> None:
    """``makemigrations`` writes the field by its public name, and then finds nothing left to do."""
    written = makemigrations(ProjectState(), chats())

    assert "goaitools_py.integrations.django.StateField()" in written
    assert "goaitools_py.integrations.django.StateField(null=True)" in written
    assert makemigrations(chats(), chats()) == ""


def test_a_field_is_rebuilt_from_what_it_deconstructs_to() -> None:
    """What `deconstruct` names makes an equal field."""
    _, path, args, kwargs = StateField(null=True, db_column="memory").deconstruct()

    assert path == "goaitools_py.integrations.django.StateField"
    assert StateField(*args, **kwargs).deconstruct()[1:] == (path, [], {"null": True, "db_column": "memory"})


def test_each_engine_has_its_type(alias: str) -> None:
    """The column is bytea, longblob or BLOB, and keys are compared by code points."""
    field, key = Player._meta.get_field("state"), Conversation._meta.get_field("key")
    expected = {
        "default": ("BLOB", "BINARY"),
        "postgres": ("bytea", "C"),
        "mariadb": ("longblob", "utf8mb4_nopad_bin"),
    }

    found = field.db_type(connections[alias]), key.db_parameters(connections[alias])["collation"]

    assert found == expected[alias]


@pytest.mark.parametrize("state", [STATE, LARGE, b"", None], ids=["small", "large", "empty", "none"])
def test_bytes_come_back_as_they_went(alias: str, state: bytes | None) -> None:
    """Every byte comes back, also of a state too large for a plain BLOB, and what is shown is the size."""
    made = Player.objects.using(alias).create(name="Ada", state=state)

    found = Player.objects.using(alias).get(pk=made.pk).state

    assert found == state
    assert found is None or (isinstance(found, bytes) and str(found) == f"<state of {len(found)} bytes>")


@pytest.mark.parametrize("state", [bytearray(STATE), memoryview(STATE)], ids=["bytearray", "memoryview"])
def test_any_bytes_are_taken(alias: str, state: Any) -> None:
    """A bytearray and a memoryview are stored as the bytes that they are."""
    made = Player.objects.using(alias).create(name="Ada", state=state)

    assert Player.objects.using(alias).get(pk=made.pk).state == STATE


def test_text_is_refused_by_name(alias: str) -> None:
    """Text is refused with the likely damage, on every way to the database."""
    text = base64.b64encode(STATE).decode()
    players = Player.objects.using(alias)

    for save in (lambda: players.create(name="Ada", state=text), lambda: players.update(state=text)):
        with pytest.raises(StateFormatError, match="it is base64") as caught:
            save()
        assert text not in str(caught.value)


def test_no_form_has_the_field() -> None:
    """A model form leaves the field out, and an editable one cannot be made."""
    form = modelform_factory(Player, fields="__all__")

    assert list(form.base_fields) == ["name"]
    with pytest.raises(TypeError, match="cannot be editable"):
        StateField(editable=True)


def test_fixtures_hold_base64(alias: str) -> None:
    """``dumpdata`` and ``loaddata`` carry a state; another text in its place is refused."""
    made = Player.objects.using(alias).create(name="Ada", state=STATE)
    written = serializers.serialize("json", [made])
    Player.objects.using(alias).all().delete()

    for read in serializers.deserialize("json", written, using=alias):
        read.save(using=alias)

    assert Player.objects.using(alias).get().state == STATE
    with pytest.raises(serializers.base.DeserializationError, match="expected it to start with"):
        list(serializers.deserialize("json", written.replace("9UdB", "AAAA"), using=alias))


# ----------------------------------------------------------------------------------------------- the admin


def page(model: type[models.Model], pk: str | None = None) -> str:
    """A page of the admin as a superuser sees it: of one row, or the list."""
    request = RequestFactory().get("/admin/")
    request.user = SimpleNamespace(  # type: ignore[attr-defined] - in place of the middleware
        is_active=True,
        is_staff=True,
        pk=1,
        has_perm=lambda *_: True,
        has_module_perms=lambda *_: True,
        get_username=lambda: "root",
        has_usable_password=lambda: True,
        is_authenticated=True,
    )
    view = admin.site.get_model_admin(model)
    response = view.changelist_view(request) if pk is None else view.change_view(request, pk)
    return response.render().content.decode()  # type: ignore[no-any-return]


@pytest.mark.parametrize("alias", ["default"], indirect=True)
def test_the_admin_shows_the_size(alias: str, store: DjangoStore) -> None:
    """The admin's pages show the size of a state and the plain columns, and no content."""
    with connections[alias].schema_editor() as editor:
        editor.create_model(ContentType)
    with Chat("sim") as chat:
        result = chat.chat_with_state(STATE, user="My name is Ada.")
    store.save("ada", result.state, expected=None)
    player = Player.objects.create(name="Bea", state=result.state)
    used = result.total_usage.total_tokens

    row, listed, own = page(Conversation, "ada"), page(Conversation), page(Player, str(player.pk))

    for shown in (row, own):
        assert f"&lt;state of {len(result.state)} bytes&gt;" in shown
    for shown in (row, listed):
        assert "complete" in shown
        assert f"{used}" in shown
    for shown in (row, listed, own):
        assert WORD not in shown
        assert "GAS" not in shown
        assert not {"blob", "state"} & set(re.findall(r'<(?:input|textarea)[^>]* name="(\w+)"', shown))


# ----------------------------------------------------------------------------------------------- the model


def test_the_plain_columns_tell_of_the_state(alias: str, store: DjangoStore) -> None:
    """Status and tokens are filled on each save, as `inspect_state` tells them."""
    with Chat("sim") as chat:
        first = chat.chat_with_state(None, user="My name is Ada.")
        second = chat.chat_with_state(first.state, user="What is my name?")
    rows = Conversation.objects.using(alias)

    version = store.save("ada", first.state, expected=None)
    before = rows.get(key="ada")
    store.save("ada", second.state, expected=version)
    after = rows.get(key="ada")

    assert (before.status, after.status) == ("complete", "complete")
    assert before.total_tokens == first.total_usage.total_tokens > 0
    assert after.total_tokens == second.total_usage.total_tokens > before.total_tokens
    assert after.version != before.version
    assert after.updated_at >= before.updated_at


def test_what_cannot_be_read_is_kept_all_the_same(alias: str, store: DjangoStore) -> None:
    """Bytes that are no state are stored; their plain columns are empty."""
    store.save("ada", b"something else", expected=None)

    row = Conversation.objects.using(alias).get(key="ada")

    assert (bytes(row.blob), row.status, row.total_tokens) == (b"something else", "", None)


def test_a_row_saves_itself_only_over_what_it_read(alias: str, store: DjangoStore) -> None:
    """A row that was changed meanwhile is not written, and keeps the version that it was read with."""
    store.save("ada", STATE, expected=None)
    early, late = (Conversation.objects.using(alias).get(key="ada") for _ in range(2))

    early.blob = LARGE
    early.save()
    read = late.version
    with pytest.raises(StateConflictError):
        late.save()

    assert late.version == read
    assert Conversation.objects.using(alias).get(key="ada").blob == LARGE
    early.blob = STATE
    early.save(update_fields=["blob"])
    saved = Conversation.objects.using(alias).get(key="ada")
    assert (saved.blob, saved.version) == (STATE, early.version)


def test_a_row_that_saves_another_column_leaves_the_state_alone(alias: str, store: DjangoStore) -> None:
    """``update_fields`` without the blob changes no version, so that a running turn can be saved."""
    version = store.save("ada", STATE, expected=None)
    row = Conversation.objects.using(alias).get(key="ada")

    row.status = "seen"
    row.save(update_fields=["status"])

    assert store.save("ada", LARGE, expected=version) != version


# ----------------------------------------------------------------------------------------------- the store


@pytest.fixture
def _connections_of_threads() -> Iterator[None]:
    """Closes the connections that Django leaves to threads, also to those that have ended."""
    opened: list[Any] = []

    def note(connection: Any, **_: Any) -> None:
        connection.inc_thread_sharing()
        opened.append(connection)

    connection_created.connect(note)
    yield
    connection_created.disconnect(note)
    for connection in opened:
        connection.close()


@pytest.mark.usefixtures("_connections_of_threads")
def test_the_store_keeps_the_contract(alias: str) -> None:
    """The store does what every store must do, races included."""
    store_contract(lambda: DjangoStore(Conversation, using=alias))


def expiring(alias: str) -> Callable[[str], None]:
    """Make the row of a key older than 1,000 seconds."""

    def expire(key: str) -> None:
        late = timezone.now() - timedelta(seconds=1_000)
        assert Conversation.objects.using(alias).filter(key=key).update(updated_at=late) == 1

    return expire


@pytest.mark.usefixtures("_connections_of_threads")
def test_the_store_with_a_ttl_keeps_the_contract(alias: str) -> None:
    """A row that was not saved for so long is as if it were deleted."""
    store_contract(
        lambda: DjangoStore(Conversation, using=alias, ttl=1_000.0), lease_ttl=0.2, expire=expiring(alias)
    )


def test_an_old_row_goes_with_its_bytes_aside_when_it_is_deleted(alias: str, store: DjangoStore) -> None:
    """`delete` finds nothing, and leaves no bytes."""
    aside = f"ada.unreadable.{'0' * 24}"
    for key in ("ada", aside, "adam"):
        store.save(key, STATE, expected=None)
        expiring(alias)(key)

    assert DjangoStore(Conversation, using=alias, ttl=1_000.0).delete("ada") is False
    assert list(Conversation.objects.using(alias).values_list("key", flat=True)) == ["adam"]


@pytest.mark.usefixtures("_connections_of_threads")
@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_the_async_store_keeps_the_contract(alias: str) -> None:
    """The async store does what every store must do, races included."""
    store_contract(lambda: AsyncDjangoStore(Conversation, using=alias, ttl=1_000.0), expire=expiring(alias))


def test_a_store_belongs_to_the_connection_of_its_thread(alias: str, store: DjangoStore) -> None:
    """One store serves all threads: each call runs on the connection of its own thread."""
    versions = {key: in_thread(lambda key=key: store.save(key, STATE, expected=None)) for key in "abc"}

    assert {key: store.load(key).version for key in "abc"} == versions  # type: ignore[union-attr]


def test_a_save_is_part_of_the_callers_transaction(alias: str, store: DjangoStore) -> None:
    """What the caller rolls back is not saved, and a conflict does not spoil the caller's transaction."""
    version = store.save("ada", STATE, expected=None)

    with transaction.atomic(using=alias):
        with pytest.raises(StateConflictError):
            store.save("ada", LARGE, expected=None)
        with pytest.raises(StateConflictError):
            store.save("ada", LARGE, expected=version - 1)
        store.save("bea", STATE, expected=None)
        transaction.set_rollback(True, using=alias)

    assert store.load("bea") is None
    assert store.save("ada", LARGE, expected=version)


def test_no_transaction_outlives_a_call(alias: str, store: DjangoStore) -> None:
    """After each call of the store its connection is outside of any transaction."""
    version = store.save("ada", STATE, expected=None)
    calls: list[Callable[[], Any]] = [
        lambda: store.load("ada"),
        lambda: store.save("ada", LARGE, expected=version),
        lambda: store.list(),
        lambda: store.delete("ada"),
    ]

    for call in calls:
        call()

        assert not connections[alias].in_atomic_block
        assert connections[alias].get_autocommit()


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)
def test_a_lost_connection_is_made_again(alias: str, store: DjangoStore) -> None:
    """A call on a connection that the server closed says so; the next one connects anew and is served."""
    version = store.save("ada", STATE, expected=None)
    with connections[alias].cursor() as cursor:
        cursor.execute({"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT CONNECTION_ID()"}[alias])
        (own,) = cursor.fetchone()
    in_thread(lambda: kill(alias, own))

    with pytest.raises(StoreUnavailableError) as caught:
        store.save("ada", LARGE, expected=version)

    assert caught.value.__cause__ is not None
    assert store.save("ada", LARGE, expected=version)


def kill(alias: str, connection: int) -> None:
    """End another connection of the server's."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            {"postgres": "SELECT pg_terminate_backend(%s)", "mariadb": "KILL %s"}[alias], [connection]
        )


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_serialisation_failure_is_a_conflict(alias: str, store: DjangoStore) -> None:
    """Where PostgreSQL refuses a transaction because another one was first, so does the store."""
    version = store.save("ada", STATE, expected=None)

    def overtaken() -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        store.load("ada")
        in_thread(lambda: store.save("ada", LARGE, expected=version))
        store.save("ada", STATE, expected=version)

    with pytest.raises(StateConflictError), transaction.atomic(using=alias):
        overtaken()

    assert store.load("ada").blob == LARGE  # type: ignore[union-attr]


def test_no_turn_is_lost_in_a_race(alias: str, store: DjangoStore) -> None:
    """Four threads with five saves each, begun again when refused: twenty lines are there, each once."""
    lines = [f"line {n}\n" for n in range(20)]

    def add(line: str) -> None:
        for _ in range(1_000):
            stored = store.load("race")
            blob = (stored.blob if stored else b"") + line.encode()
            with suppress(StateConflictError, StoreUnavailableError):  # SQLite: the database is locked
                store.save("race", blob, expected=stored.version if stored else None)
                return
        raise AssertionError("never saved")

    def add_some(some: list[str]) -> None:
        for line in some:
            add(line)
        connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_some, [lines[n::4] for n in range(4)]))

    stored = store.load("race")
    assert stored is not None
    assert sorted(stored.blob.decode().splitlines(keepends=True)) == sorted(lines)


def test_deleting_compares_versions_too(alias: str, store: DjangoStore) -> None:
    """A delete with another version is a conflict; with the stored one, or none, it forgets."""
    version = store.save("ada", STATE, expected=None)

    with pytest.raises(StateConflictError):
        store.delete("ada", expected=version + 1)

    assert store.delete("ada", expected=version)
    assert not store.delete("ada", expected=version)
    assert not store.delete("ada")
    assert store.save("ada", STATE, expected=None) != version


KEYS = ["A", "a", "a ", "a%", "a_", "aa", "b", "ä", "\ud7ff", "\ue000", "😀", "😀x"]


@pytest.mark.parametrize("prefix", ["", "a", "a%", "\ud7ff", "😀", "nothing"])
def test_keys_are_listed_by_prefix_and_code_point(alias: str, store: DjangoStore, prefix: str) -> None:
    """Keys that differ by case, accent or a trailing space are different, and pages of two show each once."""
    for key in KEYS:
        store.save(key, STATE, expected=None)

    found: list[str] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = store.list(prefix, cursor=cursor, limit=2)
        found += [stored.key for stored in page.keys]
        cursor = page.cursor
        if cursor is None:
            break

    assert found == sorted(key for key in KEYS if key.startswith(prefix))


def test_the_async_store_is_the_same_store(alias: str, store: DjangoStore) -> None:
    """`AsyncDjangoStore` saves, loads, lists and deletes what `DjangoStore` does."""
    other = AsyncDjangoStore(Conversation, using=alias)

    async def run() -> list[Any]:
        version = await other.save("ada", STATE, expected=None)
        loaded = await other.load("ada")
        listed = await other.list("a")
        with pytest.raises(StateConflictError):
            await other.save("ada", STATE, expected=version + 1)
        deleted = await other.delete("ada", expected=version)
        await sync_to_async(connections.close_all)()  # the thread in which the store works has its own
        return [loaded, listed.keys[0].version == version, deleted]

    loaded, same, deleted = asyncio.run(run())

    assert loaded.blob == STATE
    assert abs(loaded.updated_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert (same, deleted) == (True, True)
    assert store.load("ada") is None


def test_no_two_keys_share_a_row(alias: str, store: DjangoStore) -> None:
    """Keys that are near each other by case, accents, width, spaces, normal form and length."""
    keys = near_keys()
    versions = {key: store.save(key, b"blob of " + key.encode(), expected=None) for key in keys}

    for key in keys:
        found = store.load(key)
        assert found is not None
        assert (found.blob, found.version) == (b"blob of " + key.encode(), versions[key]), ascii(key)
    page = store.list(limit=2 * len(keys))
    assert [row.key for row in page.keys] == sorted(key for key in keys if is_listed(key, ""))
    for key in keys[::3]:
        assert store.delete(key), ascii(key)
    assert [key for key in keys if store.load(key)] == [key for at, key in enumerate(keys) if at % 3]
