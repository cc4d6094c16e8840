"""OpenAI, for both of its provider APIs: Chat Completions and Responses.

Owns: the connection through the SDK, and the rules that both APIs share. Must never know: a turn, or another
provider.

Begin with `backends.py`. The two dialects are in `openai_chat/` and `openai_responses/` beside this folder.
"""
