"""Webhooks: what was not answered is delivered again, at any time, and must not be answered twice.

`turn_id` is the platform's id of the message. The same id again is the same turn: finished, it gives its
reply once more and asks no model; unfinished, it goes on. The platform and the provider are simulated.
"""

from goaitools_py import Chat, TurnConflictError, TurnError
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.sim import Fault, SimServer
from goaitools_py.stores import SQLiteStore


def webhook(chat: Chat, store: SQLiteStore, message_id: str, text: str) -> tuple[int, str]:
    """Answer one delivery with an HTTP status; the platform repeats what gets no 2xx or 4xx."""
    try:
        return 200, chat.conversation(store, "ada").send(text, turn_id=message_id).text
    except TurnConflictError:
        return 409, "another message has this id"
    except TurnError:  # nothing is lost: the message is in the store, with its id
        return 503, "later, please"


def main() -> None:
    """Deliver messages as platforms do: again, while the provider is down, and out of order."""
    print("(simulated: no language model is asked)")
    with SimServer() as sim, SQLiteStore(":memory:") as store:
        backend = OpenAIChatBackend("sim-game-master", base_url=sim.base_url, api_key="sim", max_retries=0)
        with Chat(backend) as chat:

            def deliver(message_id: str, text: str) -> None:
                before = len(sim.requests)
                status, said = webhook(chat, store, message_id, text)
                print(f"{message_id} -> {status} {said} ({len(sim.requests) - before} model calls)")

            deliver("m1", "My name is Ada.")
            deliver("m1", "My name is Ada.")  # our answer was lost on the way
            sim.push(Fault.server_error(503))
            deliver("m2", "My team is Team Red.")  # is kept, unanswered
            deliver("m3", "What is my name, and what is my team?")  # overtakes the second try of m2
            deliver("m2", "My team is Team Red.")
            deliver("m2", "My team is Team Blue.")
            history = chat.conversation(store, "ada").history()

    said = [message.text for message in history.all_messages() if message.role == "user"]
    print("In the state:", *said)


if __name__ == "__main__":
    main()
