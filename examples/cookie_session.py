"""A conversation in a cookie: the server stores nothing, and the browser cannot read or change the state.

`Encrypted(…, visible_to="client")` does not compress, because the length of compressed text tells something
about the text. It rounds the length up to 256 bytes. A browser takes 4 KB in a cookie; a compactor keeps the
state smaller. The provider is simulated.
Install: pip install 'goaitools-py[crypto]'
"""

from http.cookies import SimpleCookie

from goaitools_py import ByteLimit, Chat, Compactor, Encrypted, KeepRecentTurns, Key, Keyring, StateAuthError
from goaitools_py.states import state_from_text, state_to_text

key = Key.generate()  # in an application: Key.from_text(os.environ["CHAT_KEY"])
chat = Chat(
    "sim",
    codec=Encrypted(Keyring(key), visible_to="client"),
    compactor=Compactor(ByteLimit(2_500), KeepRecentTurns(2)),
)


def answer(cookies: str, session: str, text: str) -> tuple[str, str]:
    """Answer one request with a reply and a Set-Cookie header. `session` is the user who is logged in."""
    jar = SimpleCookie(cookies)
    state = state_from_text(jar["chat"].value) if "chat" in jar else None
    result = chat.chat_with_state(state, user=text, binding={"session": session})
    cookie = SimpleCookie({"chat": state_to_text(result.state)})
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
    try:
        answer(cookies, "mallory", "What is my name?")
    except StateAuthError:
        print("Mallory's session with Ada's cookie: refused")
    chat.close()


if __name__ == "__main__":
    main()
