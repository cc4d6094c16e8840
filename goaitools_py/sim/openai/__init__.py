"""The simulator's OpenAI APIs: Chat Completions and Responses, and their refusals."""
