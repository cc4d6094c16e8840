"""Ranks texts by the words that a query shares with them, in any language.

Owns: how a text is split into terms, and how terms are weighed. Must never know: a state, or the origin of a
text.

A text matches a query if it has one of its terms. These are the terms:

- A word of a language that writes spaces counts by its first five letters, in lower case and without
  accents. So most inflected forms of a word are found.
- Letters of Chinese, Japanese, Korean and of the languages of South East Asia count as pairs.

The weights are from BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, sect. 3.2):
a rare term counts more, a term in a long text less. There is no list of stop words.

The texts are searched as they are: an index that serves one query costs more than the query.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from math import log
from typing import Final

__all__ = ["best_order", "prepared", "scores", "terms_of"]

PREFIX: Final = 5
"""Letters of a word that count."""

MOST_TERMS: Final = 64
"""How many terms of a query count, from the first on."""

_K1: Final = 1.2
_B: Final = 0.75

# Han, kana, bopomofo, Hangul; Thai, Lao, Tibetan, Burmese, Khmer. In the second class also the letters of
# India, because Python does not count their vowel signs as letters.
_UNSPACED: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f"
_HAN: Final = "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN: Final = re.compile(f"([{_UNSPACED}{_HAN}]+)")
_NO_LETTERS: Final = re.compile(f"[^\\w\u0900-\u0dff{_UNSPACED}]+|_+")
_NO_LETTERS_ASCII: Final = re.compile(r"[^a-z0-9]+")

# Accents; the signs of Hebrew and Arabic that are mostly left out.
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+")


def prepared(text: str) -> str:
    """The text as `scores` searches it: lower case, no accents, each word between two spaces."""
    text = text.casefold()
    if text.isascii():
        return f"  {_NO_LETTERS_ASCII.sub('  ', text)}  "
    text = unicodedata.normalize("NFKD", text).replace("\u0131", "i")  # the dotless i of Turkish
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", text))
    text = _NO_LETTERS.sub("  ", _RUN.sub(r"  \1  ", text))
    return f"  {text}  "


def terms_of(query: str) -> list[str]:
    """The terms of a query, each once, in the form of a prepared text."""
    found: dict[str, None] = {}
    for word in prepared(query).split():
        if _RUN.fullmatch(word):
            found.update(dict.fromkeys(word[at : at + 2] for at in range(max(1, len(word) - 1))))
        elif len(word) < PREFIX:
            found[f" {word} "] = None
        else:
            found[f" {word[:PREFIX]}"] = None
    return list(found)[:MOST_TERMS]


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """Give the score of each prepared text; 0.0 without a term of the query."""
    found = [0.0] * len(texts)
    lengths = [len(text) for text in texts]
    usual = sum(lengths) / max(1, len(texts))
    for term in terms_of(query):
        counts = [text.count(term) for text in texts]
        having = sum(map(bool, counts))
        if not having:
            continue
        weight = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for at, count in enumerate(counts):
            if count:
                norm = _K1 * (1 - _B + _B * lengths[at] / usual)
                found[at] += weight * count * (_K1 + 1) / (count + norm)
    return found


def best_order(values: Sequence[float]) -> list[int]:
    """The places of the values above zero, highest value first; of equal values the last place first."""
    return sorted((at for at, value in enumerate(values) if value > 0), key=lambda at: (-values[at], -at))
