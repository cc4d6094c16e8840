"""Options by name mean the same to a type checker as at run time: read by ``mypy --strict``, never run.

An ignored error that is none any more fails as well.
"""

from __future__ import annotations

from typing import Any, Unpack

from goaitools_py import (
    UNSET,
    AsyncChat,
    Chat,
    ChatOptions,
    ChatResult,
    Conversation,
    Image,
    Limits,
    Message,
    ModelSettings,
    Text,
    user,
)
from goaitools_py.chat.facade import State
from goaitools_py.chat.fields import ChatFields

PICTURE = Image.from_url("https://example.org/map.png")


def good(chat: Chat, thread: Conversation, messages: list[Message], names: dict[str, str]) -> None:
    Chat("sim", system="Be brief.", timeout=None, limits=Limits(max_tool_calls=3), tools=[len])
    chat.chat(user=["Look.", PICTURE], settings=ModelSettings(temperature=0.2), timeout=3)
    chat.chat_with_state(None, user=PICTURE, messages=messages, metadata=names, turn_id="m-1")
    chat.start(None, user="Hello.", on_event=print, on_bad_state="raise", deps=object())
    chat.resume(b"", {}, limits=Limits(max_iterations=3), on_limit="raise")
    chat.run_turns(None, ["Hello."], timeout=UNSET, conversation_id=None)
    chat.count_tokens(None, user="Hello.", context="Noon.")
    thread.send(PICTURE, turn_id="m-1")
    thread.start(["Look.", PICTURE, Text("Where?")], tool_errors="raise")
    thread.resume(timeout=5.0)


def unknown(chat: Chat, thread: Conversation) -> None:
    Chat("sim", usr="Hello.")  # type: ignore[call-arg]
    chat.chat(usr="Hello.")  # type: ignore[call-overload]
    chat.chat_with_state(None, user="Hello.", stream=True)  # type: ignore[call-overload]
    chat.start(None, prompt="Hello.")  # type: ignore[call-overload]
    chat.resume(b"", message="Hello.")  # type: ignore[call-overload]
    chat.run_turns(None, ["Hello."], temperature=0.5)  # type: ignore[call-overload]
    chat.count_tokens(None, usr="Hello.")  # type: ignore[call-arg]
    thread.send("Hello.", tool=[])  # type: ignore[call-overload]
    thread.start("Hello.", tool=[])  # type: ignore[call-overload]
    thread.resume(tool=[])  # type: ignore[call-overload]


def of_another_type(chat: Chat, thread: Conversation) -> None:
    Chat("sim", timeout="3")  # type: ignore[arg-type]
    chat.chat(user=5)  # type: ignore[call-overload]
    chat.chat_with_state(None, user="Hello.", timeout="3")  # type: ignore[call-overload]
    chat.start(None, messages=user("Hello."))  # type: ignore[call-overload]
    chat.resume(b"", on_limit="ask")  # type: ignore[call-overload]
    chat.run_turns(None, ["Hello."], metadata={"turn": 1})  # type: ignore[dict-item]
    chat.count_tokens(None, limits=Limits(max_iterations=1.5))  # type: ignore[arg-type]
    thread.send(5)  # type: ignore[call-overload]
    thread.send("Hello.", tool_threads="yes")  # type: ignore[call-overload]
    thread.start("Hello.", on_event="print")  # type: ignore[call-overload]
    thread.resume(settings={"temperature": 0.5})  # type: ignore[call-overload]


def of_one_turn_only(chat: Chat) -> None:
    """A chat's default is none of them, and `run_turns` says itself what the user says."""
    Chat("sim", user="Hello.")  # type: ignore[call-arg]
    Chat("sim", messages=[])  # type: ignore[call-arg]
    Chat("sim", turn_id="m-1")  # type: ignore[call-arg]
    Chat("sim", conversation_id="ada")  # type: ignore[call-arg]
    Chat("sim", metadata={})  # type: ignore[call-arg]
    Chat("sim", min_revision=1)  # type: ignore[call-arg]
    chat.run_turns(None, ["Hello."], user="Hello.")  # type: ignore[call-overload]


async def awaited(chat: AsyncChat) -> None:
    AsyncChat("sim", timeout="3")  # type: ignore[arg-type]
    thread = chat.conversation(None, "ada")  # type: ignore[arg-type]
    await chat.chat(usr="Hello.")  # type: ignore[call-overload]
    await chat.chat_with_state(None, user="Hello.", timeout="3")  # type: ignore[call-overload]
    chat.start(None, prompt="Hello.")  # type: ignore[call-overload]
    await chat.resume(b"", message="Hello.")  # type: ignore[call-overload]
    await chat.run_turns(None, ["Hello."], usr="Hello.")  # type: ignore[call-overload]
    await chat.count_tokens(None, usr="Hello.")  # type: ignore[call-arg]
    await thread.send("Hello.", tool=[])  # type: ignore[call-overload]
    thread.start(5)  # type: ignore[call-overload]
    await thread.resume(tool=[])  # type: ignore[call-overload]


# ----------------------------------------------------------------------------- code around a chat goes on


class Loose(Chat):
    """A chat of somebody who does not name the options."""

    def chat_with_state(
        self, state: State, options: ChatOptions | None = None, /, **fields: Any
    ) -> ChatResult:
        return super().chat_with_state(state, options, **fields)


class Exact(Chat):
    """A chat of somebody who does."""

    def chat(self, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]) -> ChatResult:
        fields["timeout"] = 5.0
        return super().chat(options, **fields)


def wrapped(chat: Chat, thread: Conversation, given: dict[str, Any]) -> None:
    Chat("sim", **given)
    chat.chat_with_state(None, **given)
    chat.chat_with_state(None, user="Hello.", **given)
    chat.run_turns(None, ["Hello."], **given)
    thread.send("Hello.", **given)
