"""Counts tokens with the vocabulary of OpenAI's models.

Owns: the counter that uses the package tiktoken (the extra ``[tiktoken]``). Must never know: a state, a
request.
"""

from __future__ import annotations

from .media import MediaRates, media_tokens
from .messages import Message, Text

__all__ = ["TiktokenCounter"]

_FRAME = 4
"""Tokens for a message's role and delimiters, and again for each call."""


class TiktokenCounter:
    """A `TokenCounter` with the exact vocabulary of an OpenAI model.

    tiktoken downloads a vocabulary at its first use, unless ``TIKTOKEN_CACHE_DIR`` has it. So make the
    counter once, when your program starts. The count is still an estimate, because a prompt holds more than
    the text of messages. `Chat.count_tokens` asks the provider.

    Args:
        model: A name such as "gpt-4o". For a model that tiktoken does not know, "o200k_base" is used.

    Raises:
        ImportError: tiktoken is not installed.
        RuntimeError: The vocabulary is not there and could not be downloaded.
    """

    def __init__(self, model: str = "gpt-4o") -> None:
        try:
            import tiktoken
        except ImportError as exc:
            raise ImportError(
                "TiktokenCounter needs the package tiktoken: pip install 'goaitools-py[tiktoken]'"
            ) from exc
        try:
            try:
                name = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
            except KeyError:
                name = "o200k_base"
            self._encoding = tiktoken.get_encoding(name)
        except Exception as exc:
            raise RuntimeError(
                f"tiktoken could not load its vocabulary ({type(exc).__name__}), which it downloads once: "
                "allow the download, or set TIKTOKEN_CACHE_DIR to a directory with it, or use TokenEstimate"
            ) from exc
        self._model = model

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._model!r})"

    def count(self, message: Message, /) -> int:
        """The message's tokens, with the tokens that the provider adds for its role."""
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        texts += [f"{call.name}{call.arguments}" for call in message.tool_calls]
        words = sum(len(self._encoding.encode(text, disallowed_special=())) for text in texts)
        media = sum(media_tokens(part, MediaRates()) for part in message.parts if not isinstance(part, Text))
        return _FRAME * (1 + len(message.tool_calls)) + words + media
