"""The simulator's OpenAI APIs: Chat Completions and Responses, and their refusals.

Begin with `chat_api.py` or `responses_api.py`. The files `…_rules.py` refuse requests.
"""
