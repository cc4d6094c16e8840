"""Checks that a dialect follows its protocol, for everyone who adds a provider API.

Owns: the order of the checks, and the text of their findings.
Must never know: a particular provider API, a test framework.

::

    def test_my_wire() -> None:
        dialect_contract(
            MyDialect(),
            DialectSamples(
                replies=(
                    SampleReply(body=b'{"message":…}', stream=b"data: …", text="Hello."),
                    SampleReply(body=b'{"message":…}', stream=b"data: …", calls=("get_score",)),
                ),
                errors=(
                    SampleError(status=400, body=b'{"error":…}', kind="rejected"),
                    SampleError(streamed=True, body=b"data: …", kind="interrupted"),
                ),
            ),
        )
"""

from __future__ import annotations

from collections.abc import Iterator

from ..backends.base import Dialect
from . import _contract_hostile, _contract_optional, _contract_replies, _contract_writing
from ._contract import DialectCase, DialectCheck, DialectSamples, SampleError, SampleReply, first_findings

__all__ = ["DialectSamples", "SampleError", "SampleReply", "dialect_contract"]

_CHECKS: tuple[DialectCheck, ...] = (
    *_contract_writing.CHECKS,
    *_contract_replies.CHECKS,
    *_contract_hostile.CHECKS,
    *_contract_optional.CHECKS,
)


def dialect_contract(dialect: Dialect, samples: DialectSamples) -> tuple[str, ...]:
    """Check a dialect against everything that the engine needs (`goaitools_py.backends.base`).

    Optional protocols (`goaitools_py.backends`) are checked if the dialect has them: `ChecksHistory`,
    `ViewsHistory`, `SplitsResults`, `TranslatesReplies`, `WritesOutput`. The others are only named.
    The check needs no test framework and no network, is deterministic, and takes a second or two.

    Args:
        dialect: The dialect, as a backend would hold it.
        samples: Replies and errors of the provider. More kinds of replies check more.

    Returns:
        The names of the optional protocols that the dialect has. The page docs/own_wire.md says what a
        conversation goes without if one is missing.

    Raises:
        AssertionError: The dialect or the samples are wrong. The text has a line for each finding: the rule
            of the protocol, then the violation. All checks run; each tells its first three findings.
    """
    case = DialectCase(dialect, samples)
    lines = list(_lacking(samples))
    if not lines:
        for check in _CHECKS:
            lines += (f"{check.wants}: {finding}" for finding in first_findings(check.run, case))
    if lines:
        wire = getattr(dialect, "wire", "?")
        raise AssertionError(
            f"{len(lines)} findings about the dialect of wire {wire!r}:" + "".join(f"\n- {x}" for x in lines)
        )
    return _contract_optional.optional_protocols(dialect)


def _lacking(samples: DialectSamples) -> Iterator[str]:
    """Name the missing samples. A check without samples would check nothing."""
    replies = samples.replies
    kinds = {
        "a reply with text as a body": any(reply.body and reply.text for reply in replies),
        "a reply with text as a stream": any(reply.stream and reply.text for reply in replies),
        "a reply with calls as a body": any(reply.body and reply.calls for reply in replies),
        "a reply with calls as a stream": any(reply.stream and reply.calls for reply in replies),
        "an error answer (status 400 or more)": any(error.status >= 400 for error in samples.errors),
        "a stream with an error event": any(error.streamed for error in samples.errors),
    }
    yield from (f"the samples must hold {kind}" for kind, is_there in kinds.items() if not is_there)
