"""The simulator's Anthropic API: Messages, its signatures, and what its endpoint refuses."""
