"""Match texts with a query in any language, and put them in order, best first.

Owns: how a text is split into terms, how terms are weighed, and the order. Must never know: its place.

A text matches a query if it has one of its terms. These are the terms:

- A word of a language that writes spaces counts by its first five letters, in lower case and without
  accents. So most inflected forms of a word are found. The whole word counts once more.
- A word with a digit counts as a whole, and its digits count anywhere.
- An identifier (a phone number, a code, a date, an e-mail address) counts as one row of letters and digits,
  however a text divides it.
- Letters of Chinese, Japanese, Korean and of the languages of South East Asia count as pairs, and all letters
  between two other signs count once more.

The weights are from BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, sect. 3.2):
a rare term counts more, a term in a long text less. There is no list of stop words. The texts are searched as
they are: an index that serves one query costs more than the query.

The first place has a rule of its own: see `best_order`. Without it an identifier in a long text loses
against texts that share the other words of a query.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Final

__all__ = ["MOST_TERMS", "best_order", "counts_of", "prepared", "rarest", "scores", "terms_of"]

PREFIX: Final = 5
"""Letters of a word that count."""

MOST_TERMS: Final = 96
"""How many terms of a query count, from the first on."""

_K1: Final = 1.2
_B: Final = 0.75
_WHOLE: Final = 0.5
"""The part of its weight that a whole word has, beside that of its first letters."""

_LEAST_WHOLE: Final = 3
"""Letters or digits of the shortest word, number or identifier that may decide the first place."""

_LEAST_JOINED: Final = 5
"""Letters or digits of the shortest identifier that is searched across spaces and signs."""

_TAIL: Final = 7
"""A phone number comes with the code of its country or without it. Its last digits are in both forms."""

# Han, kana, bopomofo, Hangul; Thai, Lao, Tibetan, Burmese, Khmer. In the second class also the letters of
# India, because Python does not count their vowel signs as letters.
_UNSPACED: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f"
_HAN: Final = "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN: Final = re.compile(f"([{_UNSPACED}{_HAN}]+)")
_NO_LETTERS: Final = re.compile(f"[^\\w\u0900-\u0dff{_UNSPACED}]+|_+")
_NO_LETTERS_ASCII: Final = re.compile(r"[^a-z0-9]+")

_OTHER_DIGIT: Final = re.compile(r"[^\D0-9]")
_DIGITS: Final = re.compile(r"[0-9]+")

# Groups of digits with signs and spaces between them; or words with signs but no space between them.
_LETTER: Final = f"[^\\W_{_UNSPACED}{_HAN}]"
_IDENTIFIER: Final = re.compile(
    f"(?<!{_LETTER})[0-9](?:[ ().,/+-]{{0,3}}[0-9])++(?!{_LETTER})"
    f"|{_LETTER}++(?:[^\\w\\s]{{1,2}}{_LETTER}++|_{_LETTER}++)*+"
)

# Accents; the signs of Hebrew and Arabic that are mostly left out.
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+")


def _plain(text: str) -> str:
    """The text in lower case, without accents, and with the digits from 0 to 9."""
    text = text.casefold()
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text).replace("\u0131", "i")  # the dotless i of Turkish
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", text))
    return _OTHER_DIGIT.sub(lambda found: str(int(found[0])), text)


def prepared(text: str) -> str:
    """The text as it is searched: lower case, no accents, each word between two spaces."""
    text = _plain(text)
    if text.isascii():
        return f"  {_NO_LETTERS_ASCII.sub('  ', text)}  "
    text = _NO_LETTERS.sub("  ", _RUN.sub(r"  \1  ", text))
    return f"  {text}  "


def terms_of(query: str) -> list[str]:
    """The terms of a query, each once, in the form of a prepared text.

    A term that begins with "=" is searched in the texts without their spaces.
    """
    found: dict[str, None] = {}
    for identifier in _IDENTIFIER.findall(_plain(query)):
        row = "".join(filter(str.isalnum, identifier))
        if len(row) >= _LEAST_JOINED and (row != identifier or _DIGITS.search(row)):
            row = row.lstrip("0") if row.isdecimal() else row
            found[f"={row}"] = None
            if row.isdecimal() and len(row) > _TAIL:
                found[f"={row[-_TAIL:]}"] = None
    for word in prepared(query).split():
        if _RUN.fullmatch(word):
            if len(word) >= _LEAST_WHOLE:
                found[word] = None
            found.update(dict.fromkeys(word[at : at + 2] for at in range(max(1, len(word) - 1))))
            continue
        digits = _DIGITS.findall(word)
        if len(word) >= PREFIX and not digits:
            found[f" {word[:PREFIX]}"] = None
        found[f" {word} "] = None
        found.update(dict.fromkeys(row for row in digits if len(row) >= _LEAST_WHOLE))
    return list(found)[:MOST_TERMS]


def counts_of(query: str, texts: Sequence[str]) -> Mapping[str, list[int]]:
    """How often each prepared text has each term of the query. Terms that no text has are left out."""
    found: dict[str, list[int]] = {}
    joined: list[str] = []
    for term in terms_of(query):
        if term[0] == "=":
            joined = joined or [text.replace(" ", "") for text in texts]
            found[term] = [text.count(term[1:]) for text in joined]
        elif (begin := term[: PREFIX + 1]) in found:  # only a few texts have it
            found[term] = [
                text.count(term) if has else 0 for text, has in zip(texts, found[begin], strict=True)
            ]
        else:
            found[term] = [text.count(term) for text in texts]
    return {term: counts for term, counts in found.items() if any(counts)}


def scores(counts: Mapping[str, Sequence[int]], texts: Sequence[str]) -> list[float]:
    """Give the score of each prepared text; 0.0 without a term of the query. `counts`: see `counts_of`."""
    found = [0.0] * len(texts)
    usual = sum(map(len, texts)) / max(1, len(texts))
    norms = [_K1 * (1 - _B + _B * len(text) / usual) for text in texts]
    for term, each in counts.items():
        having = sum(map(bool, each))
        weight = log(1 + (len(texts) - having + 0.5) / (having + 0.5)) * (_K1 + 1)
        if _is_whole(term) and len(term) > PREFIX + 1 and term[0] == " " and not _DIGITS.search(term):
            weight *= _WHOLE
        for at, count in enumerate(each):
            if count:
                found[at] += weight * count / (count + norms[at])
    return found


def rarest(counts: Mapping[str, Sequence[int]]) -> str:
    """The rarest whole word, number or identifier, of equal ones the longest; "" without one."""
    whole = [(sum(map(bool, each)), -len(term), term) for term, each in counts.items() if _is_whole(term)]
    return min(whole)[2] if whole else ""


def best_order(values: Sequence[float], first: Collection[int] = ()) -> list[int]:
    """The places of the values above zero, highest value first; of equal values the last place first.

    first: The best of these places comes before all others. They are the texts with the `rarest` term.
    """
    order = sorted((at for at, value in enumerate(values) if value > 0), key=lambda at: (-values[at], -at))
    best = next((at for at in order if at in first), None)
    return order if best is None else [best, *[at for at in order if at != best]]


def _is_whole(term: str) -> bool:
    """Tell a whole word, a number or an identifier from a beginning of a word and from a pair."""
    return len(term.strip()) >= _LEAST_WHOLE and (term[0] != " " or term[-1] == " ")
