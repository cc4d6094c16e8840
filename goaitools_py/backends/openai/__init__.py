"""The two wires of OpenAI: Chat Completions and Responses.

Owns: their dialects, and the edge over the SDK. Must never know: a turn, or the other provider.
"""
