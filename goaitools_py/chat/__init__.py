"""The classes that users call: chats, handles of turns, conversations.

Owns: their methods, and the way from options to the plan of a turn. Must never know: a certain store or
provider.

Begin with `async_chat.py`, and `facade.py`, the base of both chats. `tests/make_sync.py` makes `chat.py`,
`conversation.py` and `sync_turn.py` from the async files. `kept/` keeps a conversation in a store.
"""
