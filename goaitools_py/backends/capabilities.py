"""What is known of models by their names, in one dated table.

Owns: facts about models, each with its source. Must never know: a wire, a request.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from ..values import Value

__all__ = ["AS_OF", "Capabilities", "capabilities"]

AS_OF: Final = "2026-11"


class Capabilities(Value, frozen=True, kw_only=True):
    """What a model can take. Unknown is None, and the caller's own value always wins.

    Attributes:
        context_window: Tokens of input that fit, None if not known.
        default_output_tokens: The output limit to ask for where a wire demands one. This one does not.
    """

    context_window: int | None = None
    default_output_tokens: int = 8_192


# The first pattern that fits wins; a provider's prefix ("openai/") and "ft:" are cut off before.
# Sources: the model pages at platform.openai.com/docs/models, in the reading of OpenAI's own client
# (github.com/openai/codex, codex-rs/core/src/openai_model_info.rs).
_TABLE: Final = (
    ("gpt-3.5-turbo*", Capabilities(context_window=16_385)),
    ("gpt-4.1*", Capabilities(context_window=1_047_576)),
    ("gpt-4o*", Capabilities(context_window=128_000)),
    # 400,000 in all, of which 128,000 are kept free for the answer; the chat variants hold 128,000.
    ("gpt-5-chat*", Capabilities(context_window=128_000)),
    ("gpt-5.1-chat*", Capabilities(context_window=128_000)),
    ("gpt-5", Capabilities(context_window=272_000)),
    ("gpt-5-*", Capabilities(context_window=272_000)),
    ("gpt-5.1*", Capabilities(context_window=272_000)),
    ("o3", Capabilities(context_window=200_000)),
    ("o3-*", Capabilities(context_window=200_000)),
    ("o4-mini*", Capabilities(context_window=200_000)),
)
_UNKNOWN: Final = Capabilities()


def capabilities(model: str) -> Capabilities:
    """Look a model up by name; an unknown one gets the conservative answer."""
    name = model.rpartition("/")[2].removeprefix("ft:").lower()
    for pattern, known in _TABLE:
        if fnmatchcase(name, pattern):
            return known
    return _UNKNOWN
