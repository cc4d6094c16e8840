"""A state as a field of a Django model, in one file: the conversation lives in the ticket's own row.

The update names the version that was read: of two answers at once the second is refused, the first kept.
Install: pip install 'goaitools-py[django]'
"""

import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()

from django.db import connection, models  # noqa: E402 - after the settings

from goaitools_py import Chat, TurnError, event  # noqa: E402
from goaitools_py.integrations.django import StateField  # noqa: E402
from goaitools_py.states import inspect_state  # noqa: E402


class Ticket(models.Model):
    subject = models.CharField(max_length=200)
    state = StateField(null=True)
    version = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "desk"


def save(ticket: Ticket, state: bytes) -> bool:
    """Write the state, unless another worker was faster."""
    as_read = Ticket.objects.filter(pk=ticket.pk, version=ticket.version)
    return bool(as_read.update(state=state, version=ticket.version + 1))


def answer(chat: Chat, ticket: Ticket, text: str) -> str:
    """Run a turn on a ticket, outside of any transaction."""
    try:
        reply, state = chat.chat_with_state(ticket.state, user=text)
    except TurnError as error:
        save(ticket, error.state)
        raise
    return reply if save(ticket, state) else "(another request was faster; say it again)"


def main() -> None:
    print("(simulated: no language model is asked)")
    with connection.schema_editor() as editor:  # in a project: makemigrations, migrate
        editor.create_model(Ticket)
    pk = Ticket.objects.create(subject="A lost key").pk
    with Chat("sim", system="You are a help desk.") as chat:
        print(answer(chat, Ticket.objects.get(pk=pk), "My name is Ada."))
        late = Ticket.objects.get(pk=pk)
        save(late, chat.append_to_state(late.state, event("The key was found: +1 points")))
        print(answer(chat, late, "Hello?"))
        print(answer(chat, Ticket.objects.get(pk=pk), "What is my name, and my score?"))
    print(state := Ticket.objects.get(pk=pk).state, inspect_state(state).status, sep=": ")


if __name__ == "__main__":
    main()
