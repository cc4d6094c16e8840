"""Webhooks: a platform delivers a message again until it gets an answer. The bot must answer it once.

`turn_id` is the platform's id of the message. The same id is the same turn. A finished turn gives its reply
again and asks no model. An unfinished turn goes on. The platform and the provider are simulated.
Install: pip install goaitools-py
"""

from goaitools_py import Chat, TurnConflictError, TurnError
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.sim import Fault, SimServer
from goaitools_py.stores import SQLiteStore


def webhook(chat: Chat, store: SQLiteStore, message_id: str, text: str) -> tuple[int, str]:
    """Answer one delivery with an HTTP status. The platform delivers again until it gets 2xx or 4xx."""
    try:
        return 200, chat.conversation(store, "ada").send(text, turn_id=message_id).text
    except TurnConflictError:
        return 409, "another message has this id"
    except TurnError as error:  # 503: it comes again. A refused message would come for ever
        return (503, "later, please") if error.retryable else (200, "That did not work.")


def main() -> None:
    """Deliver messages as platforms do: twice, while the provider is down, and in the wrong order."""
    print("(simulated: no language model is asked)")
    with SimServer() as sim, SQLiteStore(":memory:") as store:
        backend = OpenAIChatBackend("sim-game-master", base_url=sim.base_url, api_key="sim", max_retries=0)
        with Chat(backend) as chat:

            def deliver(message_id: str, text: str) -> None:
                before = len(sim.requests)
                status, said = webhook(chat, store, message_id, text)
                print(f"{message_id} -> {status} {said} ({len(sim.requests) - before} model calls)")

            deliver("m1", "My name is Ada.")
            deliver("m1", "My name is Ada.")  # the platform did not get our answer
            sim.push(Fault.server_error(503))
            deliver("m2", "My team is Team Red.")  # is kept without an answer
            deliver("m3", "What is my name, and what is my team?")  # comes before the second delivery of m2
            deliver("m2", "My team is Team Red.")
            deliver("m2", "My team is Team Blue.")
            history = chat.conversation(store, "ada").history()

    said = [message.text for message in history.all_messages() if message.role == "user"]
    print("In the state:", *said)


if __name__ == "__main__":
    main()
