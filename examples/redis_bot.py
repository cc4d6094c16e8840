"""A bot on Redis: a message that is delivered to two workers at once is answered once.

`GOAITOOLS_STORE` names a Redis server (redis://…) or a SQLite file. The default is Redis on this machine or,
without one, a store in memory. The model is simulated.
Install: pip install 'goaitools-py[redis]'
"""

import os
from concurrent.futures import ThreadPoolExecutor

import redis

from goaitools_py import Chat, Conversation, GoAIToolsError, ToolContext, event, tool
from goaitools_py.stores import MemoryStore, RedisStore, SQLiteStore, Store


@tool
def get_score(ctx: ToolContext[dict[str, int]], team: str) -> int:
    """Current score of one team."""
    return ctx.deps[team]


def open_store() -> Store:
    """Open the named store, or the one that this machine has."""
    named = os.environ.get("GOAITOOLS_STORE", "redis://127.0.0.1:6379/0")
    if not named.startswith("redis"):
        return SQLiteStore(named)
    client = redis.Redis.from_url(named)
    try:
        client.ping()
    except redis.ConnectionError:
        print("(no Redis here: a store in memory, which forgets everything)")
        return MemoryStore()
    return RedisStore(client, ttl=3600, prefix="bot")  # forgotten an hour after the last message


def webhook(conversation: Conversation, message_id: str, text: str) -> str:
    """Answer one delivery. The platform delivers again, to any worker, until it gets a 2xx."""
    try:
        result = conversation.send(text, turn_id=message_id, deps={"Team Red": 30})
        return f"200 {'(again) ' if result.duplicate else ''}{result.text}"
    except GoAIToolsError as error:  # 503: it comes again. A refused message would come for ever
        return f"{503 if error.retryable else 200} {type(error).__name__}"


def main() -> None:
    """Two workers get the same deliveries of one player."""
    print("(simulated: no language model is asked)")
    with Chat("sim", system="You are a game guide.", tools=[get_score]) as chat:
        ada = chat.conversation(open_store(), f"player-{os.urandom(4).hex()}", save="checkpoint")
        print(webhook(ada, "m1", "My name is Ada."))
        ada.append(event("Ada reached Harrogate Theatre: +50 points"))
        with ThreadPoolExecutor(2) as workers:  # as two processes would, on two machines
            said = workers.map(webhook, [ada] * 2, ["m2"] * 2, ["What is the score of Team Red?"] * 2)
            print(*sorted(said), sep="\n")
        print(webhook(ada, "m3", "What is my name?"), f"({len(ada.history().turns)} turns)")


if __name__ == "__main__":
    main()
