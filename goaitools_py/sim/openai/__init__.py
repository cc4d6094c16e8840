"""The simulator's OpenAI APIs: Chat Completions and Responses, and what their endpoints refuse."""
