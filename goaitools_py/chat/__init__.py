"""The faces: chats, handles, conversations."""
