"""Stable. Prices of models, and what turns cost: a door to `types.usage`."""

from .types.usage import Bill, Charge, Prices, Usage, genai_price

__all__ = ["Bill", "Charge", "Prices", "Usage", "genai_price"]
