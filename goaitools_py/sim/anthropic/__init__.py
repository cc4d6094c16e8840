"""The simulator's Anthropic API: Messages, its signatures, and its refusals."""
