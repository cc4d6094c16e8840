"""The provider API "openai-responses": Responses.

Owns: all that is known of this API alone. Must never know: a turn, or another provider API.

Begin with `dialect.py`. `rules.py` has the order of items that the API requires; `reply.py` and `stream.py`
read replies. The backends are in `openai/` beside this folder.
"""
