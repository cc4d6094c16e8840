"""A conversation in a cookie: the server stores nothing, and the browser can neither read nor change it.

`Encrypted(…, visible_to="client")` does not compress, because length would leak what compresses well, and
the length is rounded up to 256 bytes. A browser takes 4 KB in a cookie: a compactor keeps the state below.
The provider is simulated.
"""

from http.cookies import SimpleCookie

from goaitools_py import (
    ByteLimit,
    Chat,
    Compactor,
    Encrypted,
    KeepRecentTurns,
    Key,
    Keyring,
    StateAuthError,
    state_from_text,
    state_to_text,
)

key = Key.generate()  # in an application: Key.from_text(os.environ["CHAT_KEY"])
chat = Chat(
    "sim",
    codec=Encrypted(Keyring(key), visible_to="client"),
    compactor=Compactor(ByteLimit(2_500), KeepRecentTurns(2)),
)


def answer(cookies: str, session: str, text: str) -> tuple[str, str]:
    """Answer one request: the reply, and the Set-Cookie header. `session` is whom the server logged in."""
    jar = SimpleCookie(cookies)
    state = state_from_text(jar["chat"].value) if "chat" in jar else None
    result = chat.chat_with_state(state, user=text, binding={"session": session})
    cookie = SimpleCookie({"chat": state_to_text(result.state)})
    cookie["chat"].update({"httponly": "1", "secure": "1", "samesite": "Lax"})
    return result.text, cookie["chat"].OutputString()


def main() -> None:
    """A browser, and somebody who took the browser's cookie."""
    print("(simulated: no language model is asked)")
    cookies = ""
    for text in ("My name is Ada.", "My team is Red.", "What is my name, and what is my team?"):
        reply, header = answer(cookies, "ada", text)
        cookies = header.partition(";")[0]
        print(f"{reply}\n  the cookie has {len(cookies)} bytes, and 'Ada' is in it: {'Ada' in cookies}")
    try:
        answer(cookies, "mallory", "What is my name?")
    except StateAuthError:
        print("Mallory's session with Ada's cookie: refused")
    chat.close()


if __name__ == "__main__":
    main()
