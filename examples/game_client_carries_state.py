"""A game client carries the state: it can read it, and sends it back with each message.

With `Signed` a client cannot change the state. `binding` names its owner. `min_revision` refuses an old
state: that number is all that the server keeps of a player. The provider is simulated.
Install: pip install goaitools-py
"""

from dataclasses import dataclass, field

from goaitools_py import Chat, StateAuthError, event
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.states import inspect_state, read_history

CODEC = Signed(Keyring(Key.generate()))


@dataclass
class Server:
    """One of many servers. Each can go on with each player."""

    chat: Chat
    revisions: dict[str, int] = field(default_factory=dict)

    def talk(self, player: str, state: bytes | None, text: str) -> tuple[str, bytes]:
        """One message of a player, with the state that the client carried."""
        newest = self.revisions.get(player)
        mine = {"player": player}
        reply, state = self.chat.chat_with_state(state, user=text, binding=mine, min_revision=newest)
        return reply, self._kept(player, state)

    def happened(self, player: str, state: bytes, what: str) -> bytes:
        """Append an event of the game. No model is asked."""
        return self._kept(player, self.chat.append_to_state(state, event(what), binding={"player": player}))

    def _kept(self, player: str, state: bytes) -> bytes:
        self.revisions[player] = inspect_state(state, codec=CODEC, binding={"player": player}).revision
        return state


def main() -> None:
    """Play as Ada; then try a changed, a stolen and an old state."""
    print("(simulated: no language model is asked)")
    with Chat("sim", system="You are a game guide.", codec=CODEC) as chat:
        server = Server(chat)
        _, old = server.talk("ada", None, "My name is Ada.")
        state = server.happened("ada", old, "Ada reached Harrogate Theatre: +50 points")
        reply, state = server.talk("ada", state, "What is my name, and my score?")
        print(reply)
        history = read_history(state, codec=CODEC, binding={"player": "ada"})
        print(f"the client reads {len(history.all_messages())} messages in {len(state)} bytes")
        forged = state[:-1] + bytes([state[-1] ^ 1])
        for what, player, blob in (("changed", "ada", forged), ("Ada's", "bob", state), ("old", "ada", old)):
            try:
                server.talk(player, blob, "Hello?")
            except StateAuthError:
                print(f"a state that is {what}, from {player}: refused")


if __name__ == "__main__":
    main()
