"""What `logger.exception(err)` writes holds no word of a server's answer, of a message, or of a key."""

from __future__ import annotations

import asyncio
import io
import logging
import pickle
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from goaitools_py import CheckpointError, CompactionError, GoAIToolsError, StoreError, TurnError, tool
from goaitools_py.backends import BackendError
from goaitools_py.base import rawjson
from goaitools_py.compaction import Compactor, MessageLimit, Summarize
from goaitools_py.sim import Fault, Reply
from goaitools_py.stores import AsyncCallableStore, CallableStore, SQLAlchemyStore
from goaitools_py.testing import ScriptedBackend

from ._reading import ANTHROPIC, LEAD

KEY = "sk-canary-key"
SAID = "canary-message"
WORDS = ("canary", "sk-canary")
BODY = f"Incorrect API key {KEY}; your message was {SAID}; canary-body"

STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)


class DriverError(Exception):
    """Stands for what a database driver raises: its text holds a statement's parameters."""

    sqlstate = "53100"


def printed(error: BaseException) -> str:
    """What a handler writes for ``logger.exception(err)``, without the lines of this program's code."""
    stream = io.StringIO()
    log = logging.getLogger("test_printed_chains")
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    log.propagate = False
    try:
        try:
            raise error
        except GoAIToolsError as err:
            log.exception(err)
    finally:
        log.removeHandler(handler)
    return "\n".join(line for line in stream.getvalue().split("\n") if not line.startswith("    "))


def chain(error: BaseException) -> Iterator[BaseException]:
    """The links that a chain has, those that Python does not print included."""
    links: list[BaseException | None] = [error]
    seen: set[int] = set()
    while links:
        link = links.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            links += (link.__cause__, link.__context__)


def assert_silent(error: BaseException) -> None:
    """No word of what was said or answered in anything that shows an error."""
    shown = {
        "log": printed(error),
        "formatted": "\n".join(
            line
            for line in "".join(traceback.format_exception(error)).split("\n")
            if not line.startswith("    ")
        ),
        **{f"{type(link).__name__}'s {name}": text for link in chain(error) for name, text in texts(link)},
    }
    leaks = {name for name, text in shown.items() if any(word in text for word in WORDS)}
    assert not leaks, f"{sorted(leaks)}: {[shown[name][:600] for name in leaks]}"


def texts(link: BaseException) -> Iterator[tuple[str, str]]:
    yield "text", str(link)
    yield "repr", repr(link)
    yield "args", repr(link.args)
    yield "notes", repr(getattr(link, "__notes__", ()))


def assert_of_provider(error: Any, wire: str) -> None:
    """The SDK's exception is at hand, is no link of the chain, and is not pickled; the cause is ours."""
    assert error.sdk_error is not None
    assert all(link is not error.sdk_error for link in chain(error))
    assert not any(isinstance(link, (openai.OpenAIError, anthropic.AnthropicError)) for link in chain(error))
    assert type(error.__cause__).__module__.startswith("goaitools_py")
    assert getattr(error.__cause__, "body", b"") == b""
    assert getattr(error.__cause__, "sdk_error", None) is None
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.state) == (type(error), str(error), error.state)
    assert copy.sdk_error is None
    assert b"canary-body" not in pickle.dumps(error)


@pytest.fixture
def asked(face: Any, sim: Any, run: Any) -> Any:
    """Asks a simulator that fails in one way; the error."""

    def ask(*faults: Any) -> Any:
        sim.push(*faults)
        chat = face.chat(sim.backend(is_async=face.is_async, api_key=KEY))
        with pytest.raises(TurnError) as caught:
            run(chat, user=SAID)
        return caught.value

    return ask


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_answer_is_not_printed(asked: Any, wire: str, status: int) -> None:
    """Whatever the status: the body quotes the message and the key."""
    error = asked(Fault.error(status, BODY))

    assert_silent(error)
    assert_of_provider(error, wire)
    assert str(status) in str(error.__cause__)
    assert "canary-body" in str(error.sdk_error)


@pytest.mark.parametrize(
    "body",
    [
        rawjson.dumps({"error": {"message": BODY, "type": BODY, "code": BODY}}),
        rawjson.dumps({"detail": BODY}),
        f"<html>{BODY}</html>".encode(),
        f'{{"{BODY}": '.encode(),
        rawjson.dumps({"choices": BODY, "output": BODY, "content": BODY, "status": BODY}),
        rawjson.dumps(
            {"choices": [{"message": {BODY: 1, "tool_calls": BODY}}], "output": [BODY], "content": [BODY]}
        ),
    ],
    ids=["error", "detail", "page", "broken", "odd", "odder"],
)
def test_a_good_status_with_a_bad_body_is_not_printed(asked: Any, body: bytes) -> None:
    """Readers name what is wrong by its shape."""
    error = asked(Reply.raw(body))

    assert_silent(error)
    assert type(error.__cause__).__module__.startswith("goaitools_py")


@pytest.mark.parametrize("fault", ["reset", "hang_up", "error_event"])
def test_a_reply_that_breaks_off_is_not_printed(face: Any, sim: Any, fault: str) -> None:
    """Neither what had come nor how the transport words its end."""
    spoil = getattr(Fault, fault)
    reply = Reply.text("canary-reply and more of it")
    sim.push(spoil(after=LEAD[sim.wire] + 2, reply=reply))
    chat = face.chat(sim.backend(is_async=face.is_async, api_key=KEY))

    with pytest.raises(TurnError) as caught:
        chat.start(None, user=SAID).result()

    assert_silent(caught.value)


def test_bytes_that_are_no_http_are_not_printed(face: Any, wire: str, run: Any) -> None:
    """An HTTP library quotes the line that it cannot read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(f"HTTP/1.1 {BODY}\r\n{BODY}\r\n\r\n".encode())

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        chat = face.chat(face.backend(wire=wire, base_url=base_url, api_key=KEY, max_retries=0))

        with pytest.raises(TurnError) as caught:
            run(chat, user=SAID)
        server.join(60)

    assert_silent(caught.value)
    assert_of_provider(caught.value, wire)


def test_a_tools_failure_that_the_model_is_told_prints_nothing(
    face: Any, sim: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not on the console either, whichever thread the tool ran in."""

    @tool
    def fail() -> str:
        """Fail."""
        raise LookupError("canary-tool")

    sim.push(Reply.calls(("fail", "{}")))

    result = face.on(sim, tools=[fail], tool_threads=True).chat(user="Do it.")

    assert result.status == "complete"
    assert "canary" not in "".join(capfd.readouterr())


# ------------------------------------------------------------------------------------ the siblings


def test_a_summariser_that_is_refused_is_not_printed(face: Any, sim: Any) -> None:
    """`compact_state` raises an error of its own; the SDK's is at hand."""
    chat = face.on(sim)
    state = chat.run_turns(None, ["One.", "Two.", "Three."]).state
    sim.push(Fault.error(400, BODY))

    with pytest.raises(CompactionError) as caught:
        chat.compact_state(state, Compactor(MessageLimit(1), Summarize(keep_turns=1)))

    sdk = anthropic if sim.wire == ANTHROPIC else openai
    assert_silent(caught.value)
    assert isinstance(caught.value.sdk_error, sdk.APIStatusError)


def test_a_strategy_that_asks_by_itself_is_not_printed(face: Any) -> None:
    """An exception of another library out of a strategy stands at `sdk_error` only."""
    chat = face.chat(ScriptedBackend("Yes.", "Yes."))
    state = chat.run_turns(None, ["One.", "Two."]).state

    def ask_elsewhere(_: Any) -> Any:
        raise DriverError(BODY)

    with pytest.raises(CompactionError) as caught:
        chat.compact_state(state, Compactor(MessageLimit(1), ask_elsewhere))

    assert_silent(caught.value)
    assert type(caught.value.sdk_error) is DriverError


def test_a_checkpoint_that_fails_in_its_driver_is_not_printed(face: Any) -> None:
    """Its parameters are the blob, with all that was said."""
    chat = face.chat(ScriptedBackend("Yes."))

    def keep(_: bytes) -> None:
        raise DriverError(BODY)

    with pytest.raises(CheckpointError) as caught:
        chat.chat(user=SAID, on_checkpoint=keep)

    assert_silent(caught.value)
    assert type(caught.value.sdk_error) is DriverError
    assert "53100" in str(caught.value.__cause__)


def test_a_store_that_fails_in_its_driver_is_not_printed(face: Any) -> None:
    """The statement's parameters are the key and the blob. The class, the code and the place are shown."""

    def load(key: str) -> None:
        return None

    def save(key: str, blob: bytes, expected: int | None) -> int:
        raise DriverError(f"{BODY} {blob!r}")

    async def load_async(key: str) -> None:
        return None

    async def save_async(key: str, blob: bytes, expected: int | None) -> int:
        return save(key, blob, expected)

    store: Any = AsyncCallableStore(load_async, save_async) if face.is_async else CallableStore(load, save)
    conversation = face.chat(ScriptedBackend("Yes.")).inner.conversation(store, "k")

    def send() -> None:
        answer = conversation.send(SAID)
        if face.is_async:
            face.run(answer)

    with pytest.raises(GoAIToolsError) as caught:
        send()
    error: Any = caught.value

    assert_printable(error)
    assert_printable(error.__cause__)
    assert type(error.__cause__.sdk_error) is DriverError
    assert "DriverError (sqlstate 53100)" in str(error.__cause__.__cause__)
    assert __file__ in str(error.__cause__.__cause__)


def assert_printable(error: BaseException) -> None:
    """As `assert_silent`, for links that Python prints."""
    assert "canary" not in printed(error)


def test_sqlalchemys_parameters_are_not_printed() -> None:
    """SQLAlchemy's text names the statement and its parameters, the store's error class and code."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.StaticPool)
    store = SQLAlchemyStore(engine)
    store.save("k", b"fine", expected=None)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("ALTER TABLE goaitools_state RENAME COLUMN blob TO other"))

    with pytest.raises(StoreError) as caught:
        store.save("canary-key", SAID.encode(), expected=None)
    engine.dispose()

    assert_printable(caught.value)
    assert isinstance(caught.value.sdk_error, sqlalchemy.exc.StatementError)
    assert "sqlalchemy.exc.OperationalError of sqlite3.OperationalError" in str(caught.value.__cause__)


def test_a_backend_of_ones_own_is_not_printed_either(face: Any) -> None:
    """It may chain what its library raised, or let that out as it is."""

    class Chained(ScriptedBackend):
        def send(self, request: Any) -> Any:
            raise BackendError("no answer") from DriverError(BODY)

        async def asend(self, request: Any) -> Any:
            return self.send(request)

    class Raw(ScriptedBackend):
        def send(self, request: Any) -> Any:
            raise DriverError(BODY)

        async def asend(self, request: Any) -> Any:
            return self.send(request)

    for backend in (Chained("Yes."), Raw("Yes.")):
        with pytest.raises(TurnError) as caught:
            face.chat(backend).chat(user=SAID)

        assert_silent(caught.value)
        assert type(caught.value.sdk_error) is DriverError


def test_the_errors_of_a_group_of_tasks_are_silent(sim: Any) -> None:
    """An error that is raised while another one is handled shows that one, and neither shows a body."""
    from goaitools_py import AsyncChat

    async def main() -> BaseException:
        chat = AsyncChat(sim.backend(is_async=True, api_key=KEY))
        sim.push(Fault.error(400, BODY), Fault.error(500, BODY))
        try:
            await chat.chat(user=SAID)
        except TurnError:
            try:
                await chat.chat(user=SAID)
            except GoAIToolsError as second:
                return second
        finally:
            await chat.aclose()
        raise AssertionError("neither failed")

    assert_silent(asyncio.run(main()))
