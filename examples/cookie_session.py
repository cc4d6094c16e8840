"""A conversation in a cookie: the server stores nothing, and the browser cannot read or change the state.

`Encrypted(…, visible_to="client")` does not compress, because the length of compressed text tells something
about the text. Browsers keep 4,096 bytes of a cookie. Chromium drops a longer one silently. So it is
measured before a model is asked. The provider is simulated.
Install: pip install 'goaitools-py[crypto]'
"""

from http.cookies import SimpleCookie

from goaitools_py import Chat, Compactor, KeepRecentTurns, StateAuthError, user
from goaitools_py.compaction import ByteLimit
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.states import state_from_text, state_to_text

FITS, ROOM = 4_096, 3_196  # bytes, with and without a reply; with a model also max_output_tokens=150
key = Key.generate()  # in an application: Key.from_text(os.environ["CHAT_KEY"])
sealed, short = Encrypted(Keyring(key), visible_to="client"), Compactor(ByteLimit(1_200), KeepRecentTurns(1))
chat = Chat("sim", codec=sealed, compactor=short)


def with_room(state: bytes | None, text: str, owner: dict[str, str]) -> bytes | None:
    """The state, or what is left of it if the message and a reply need the room. No model is asked."""
    shorter = state and chat.compact_state(state, binding=owner).state
    for kept in (state, shorter, None):
        found = len("chat=" + state_to_text(chat.append_to_state(kept, user(text), binding=owner)))
        if found <= ROOM:
            return kept
    raise ValueError(f"the message needs {found:,} bytes, and {ROOM:,} fit: shorten it, or use a store")


def answer(cookies: str, session: str, text: str) -> tuple[str, str]:
    """Answer one request with a reply and a Set-Cookie header. `session` is the user who is logged in."""
    jar, owner = SimpleCookie(cookies), {"session": session}
    state = with_room(state_from_text(jar["chat"].value) if "chat" in jar else None, text, owner)
    result = chat.chat_with_state(state, user=text, binding=owner)
    cookie = SimpleCookie({"chat": state_to_text(result.state)})
    if len("chat=" + cookie["chat"].coded_value) > FITS:  # the browser would not say it
        return f"{result.text}\n(I cannot remember this answer: it is too long.)", ""
    cookie["chat"].update({"httponly": "1", "secure": "1", "samesite": "Lax"})
    return result.text, cookie["chat"].OutputString()


def main() -> None:
    """Be Ada's browser, then Mallory, who has stolen Ada's cookie."""
    print("(simulated: no language model is asked)")
    cookies = ""
    for text in ("My name is Ada.", "My team is Red.", "What is my name, and what is my team?"):
        reply, header = answer(cookies, "ada", text)
        cookies = header.partition(";")[0]
        print(f"{reply}\n  the cookie has {len(cookies)} bytes, and 'Ada' is in it: {'Ada' in cookies}")
    for who, text in (("ada", "Tell me everything. " * 200), ("mallory", "What is my name?")):
        try:
            answer(cookies, who, text)
        except (ValueError, StateAuthError) as error:
            print(f"{who}: refused, {error if who == 'ada' else 'with the cookie of Ada'}")
    chat.close()


if __name__ == "__main__":
    main()
