"""A URL is shown without what may be secret in it, also if it is not a correct URL."""

from __future__ import annotations

import random

import pytest

from goaitools_py.base.display import HIDDEN, is_clear, shown_address, shown_host

SECRET = "S3cr3t"


@pytest.mark.parametrize(
    ("url", "address", "host"),
    [
        ("redis://h:6379/0", "redis://h:6379/0", "h:6379"),
        ("redis://:S3cr3t@h:6379/0", "redis://h:6379/0", "h:6379"),
        ("postgresql+psycopg://app:S3cr3t@db/app?x=S3cr3t", "postgresql+psycopg://db/app", "db"),
        ("postgresql:///app?host=/run&password=S3cr3t", "postgresql:///app", ""),
        ("postgresql://u:S3cr3t@a:1,b:2/app", "postgresql://a:1,b:2/app", "a:1,b:2"),
        ("https://u:S3cr3t@[::1]:80/mcp#S3cr3t", "https://[::1]:80/mcp", "[::1]:80"),
        ("unix:///run/redis.sock?password=S3cr3t", "unix:///run/redis.sock", ""),
        ("https://chat.example.org/mcp/x", "https://chat.example.org/mcp/x", "chat.example.org"),
        ("redis://:S3cr3t", f"redis://{HIDDEN}", ""),
        ("redis://u:S3cr3t?x@h/0", f"redis://{HIDDEN}", ""),
        ("redis://h/0?password=a@S3cr3t", f"redis://{HIDDEN}", ""),
        ("S3cr3t", HIDDEN, ""),
    ],
)
def test_what_is_shown_of_a_url(url: str, address: str, host: str) -> None:
    assert (shown_address(url), shown_host(url)) == (address, host)


def test_no_part_of_a_password_is_shown() -> None:
    """Whatever stands in it, percent-encoded or not."""
    seed = 20261125
    print("seed", seed)
    r = random.Random(seed)
    for _ in range(5_000):
        pieces = [SECRET, *r.choices("/?#@:%&= []\\,;é\n", k=r.randrange(4)), SECRET]
        password = "".join(pieces)
        end = r.choice(["h", "h:1", "[::1]:1", "h/0", "h:1/db?x=1", "h/0#f", ""])
        url = f"redis://{r.choice(['', 'u'])}:{password}@{end}"
        assert SECRET not in shown_address(url), url
        assert SECRET not in shown_host(url), url


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("postgresql://u:p%2Fw@h:5432/db?x=1", True),
        ("postgresql:///db", True),
        ("postgresql://%2Frun%2Fpostgres/db", True),
        ("postgresql://a:1,b:2/db", True),
        ("postgresql://u@h:/db", True),
        ("postgresql://u:p/w@h/db", False),
        ("postgresql://u:p?w@h/db", False),
        ("postgresql://u:p#w@h/db", False),
        ("postgresql://u:p@w@h/db", False),
        ("postgresql://h:w/db", False),
    ],
)
def test_which_urls_all_readers_take_alike(url: str, clear: bool) -> None:
    assert is_clear(url) is clear
