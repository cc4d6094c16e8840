"""Counting with a real vocabulary, that of OpenAI's models.

Owns: the counter over the package tiktoken (the extra ``[tiktoken]``). Must never know: a state, a request.
"""

from __future__ import annotations

from .media import media_tokens
from .messages import Message, Text

__all__ = ["TiktokenCounter"]

_FRAME = 4
"""Tokens of a message's role and its marks; calls are measured by their names and arguments."""


class TiktokenCounter:
    """A `TokenCounter` with the exact vocabulary of an OpenAI model.

    tiktoken downloads a vocabulary when it is first used, unless ``TIKTOKEN_CACHE_DIR`` has it: make the
    counter once, when your program starts. Prompts hold more than words, so that a count is still an
    estimate; `Chat.count_tokens` asks the provider.

    Args:
        model: Such as "gpt-4o"; of a model that tiktoken does not know, "o200k_base" is taken.

    Raises:
        ImportError: tiktoken is not installed.
        RuntimeError: Its vocabulary is not there and could not be downloaded.
    """

    def __init__(self, model: str = "gpt-4o") -> None:
        try:
            import tiktoken
        except ImportError as exc:
            raise ImportError("TiktokenCounter needs tiktoken: install goaitools-py[tiktoken]") from exc
        try:
            try:
                name = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
            except KeyError:
                name = "o200k_base"
            self._encoding = tiktoken.get_encoding(name)
        except Exception as exc:
            raise RuntimeError(
                f"tiktoken could not load its vocabulary ({type(exc).__name__}): it downloads it once; allow "
                "that, or set TIKTOKEN_CACHE_DIR to a directory that has it, or use TokenEstimate"
            ) from exc
        self._model = model

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._model!r})"

    def count(self, message: Message, /) -> int:
        """Tokens of the message, its role's frame included."""
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        texts += [f"{call.name}{call.arguments}" for call in message.tool_calls]
        words = sum(len(self._encoding.encode(text, disallowed_special=())) for text in texts)
        media = sum(media_tokens(part, "openai") for part in message.parts if not isinstance(part, Text))
        return _FRAME * (1 + len(message.tool_calls)) + words + media
