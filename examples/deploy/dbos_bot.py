"""A turn as a step of a durable workflow: DBOS keeps which steps are done, the store keeps the turn.

A process may be killed anywhere. The next one runs the workflow again, and the turn goes on where it stopped.
Install: pip install 'goaitools-py[psycopg]' dbos
"""

import os

import psycopg
from dbos import DBOS, DBOSConfig, SetWorkflowID

from goaitools_py import Chat, ToolContext, tool
from goaitools_py.stores import PostgresStore

DATABASE = os.environ.get("APP_DATABASE", "postgresql://postgres@127.0.0.1:5432/app")
BANK = "CREATE TABLE IF NOT EXISTS charges (key text PRIMARY KEY, euros int)"


def charge_card(key: str, euros: int) -> None:
    """Your bank. It charges once for each key."""
    with psycopg.connect(DATABASE) as bank:
        bank.execute("INSERT INTO charges VALUES (%s, %s) ON CONFLICT DO NOTHING", (key, euros))


@tool(idempotent=True)
def charge(ctx: ToolContext, euros: int) -> str:
    """Charge the customer's card."""
    charge_card(ctx.idempotency_key, euros)
    return f"{euros} euros are paid"


chat = Chat(os.environ.get("GOAITOOLS_MODEL", "sim"), tools=[charge])
store = PostgresStore.open(DATABASE)


@DBOS.step(retries_allowed=True, max_attempts=10)
def turn(user: str, message_id: str, text: str) -> str:
    """One turn. If it was killed, the same id goes on with it; if it was done, it gives the stored reply."""
    conversation = chat.conversation(store, user, save="checkpoint", lease_ttl=5.0)
    return conversation.send(text, turn_id=message_id).text


@DBOS.step()
def deliver(user: str, text: str) -> None:
    """Your platform. A process that dies here may have sent the text: give the platform a key."""
    print(f"to {user}: {text}", flush=True)


@DBOS.workflow()
def answer(user: str, message_id: str, text: str) -> str:
    """All that a message leads to. Each step that is done is not run again."""
    reply = turn(user, message_id, text)
    deliver(user, reply)
    return reply


def receive(user: str, message_id: str, text: str) -> str:
    """A message of the platform. The same id is the same workflow, however often it comes."""
    with SetWorkflowID(f"{user}/{message_id}"):
        return DBOS.start_workflow(answer, user, message_id, text).get_result()


def launch() -> None:
    """Make the tables, and run the workflows of processes that died."""
    with psycopg.connect(DATABASE) as bank:
        bank.execute(BANK)
    store.make_tables()
    config: DBOSConfig = {"name": "bot", "system_database_url": DATABASE, "executor_id": "bot-1"}
    DBOS(config=config)
    DBOS.launch()


if __name__ == "__main__":
    launch()
    print(receive("ada", "m1", "charge 30"))
    DBOS.destroy()
