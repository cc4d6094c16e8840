"""Facts about real traffic on OpenAI's Chat Completions; what they say is in `_facts`."""

from __future__ import annotations

from typing import ClassVar

from goaitools_py import StreamInterruptedError

from ._facts import RecordedTraffic
from ._wire_chat import CHAT


class TestRecordedOpenAIChat(RecordedTraffic):
    """237 recordings of OpenAI, Azure and nineteen other servers that speak this wire.

    Two links of 7cb1f98a7c14a716 are none: they hold the answer of another thread, in the same words.
    """

    wire = CHAT
    plain_links = 343
    links = 403
    exchanges = 674
    floors: ClassVar = {"exact": 1.0, "same-calls": 0.95, "ids": 0.95, "text": 0.95}
    broken: ClassVar = {"fe4011af7c0051ca": StreamInterruptedError}
