"""Stable. How many tokens text takes: a door to `types.tokens`."""

from .types.tokens import *  # noqa: F403
from .types.tokens import __all__ as __all__
