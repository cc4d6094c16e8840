"""Codecs with a key: states that pass through other hands.

Owns: keys, the signed and the encrypted suite, what a blob is bound to. Must never know: what is in a body.

`Signed` lets nobody change a state who has no key. `Encrypted` also lets nobody read it. Both tie it to a
*binding*, such as tenant, user and conversation, which is authenticated and not stored: who opens the blob
must name the same one, so that nobody's blob can be passed off as somebody else's.

::

    blob, suite 11   =  header 16 | tag 32 | body
        tag          =  HMAC-SHA-256(mac key, PAE(domain, header+, name, value, …, body))

    blob, suite 21   =  header 16 | salt 32 | commitment 32 | AES-256-GCM(inner)         tag 16 at its end
        inner        =  u32 length of the body | body | zeros, fewer than 256
                        without zeros, or up to a multiple of 256 for visible_to="client"
        okm 76       =  HKDF-SHA-256(key, salt, info = domain "/aes-256-gcm" | key id)
                        AES key 32 | nonce 12 | commitment 32, so each blob has a key of its own
        associated   =  PAE(domain, header+, salt, name, value, …)

    domain           =  "goaitools/state/v1"
    header+          =  header, and the dictionary's SHA-256 if one is used; key id and all
    name, value, …   =  the binding in UTF-8, sorted by name; nothing for UNBOUND
    PAE(p1, p2, …)   =  u64 count | (u64 length | piece)…   little-endian, as in PASETO
    key id           =  HKDF-SHA-256(key, no salt, info = domain "/kid"), 4 bytes, big-endian in the header
    mac key          =  HKDF-SHA-256(key, no salt, info = domain "/mac"), 32 bytes

The commitment makes a blob open under one key only; it is compared before anything is decrypted. Random
nonces under one AES-GCM key are safe for 2**32 blobs; a key for each blob has no such end. The salt is a
keyed hash of random bytes and the whole input, so that a machine whose random numbers repeat (a restored
snapshot) does not use one key for two contents; who reads need not know.

**Rotation** takes two deployments and no pause. First ``Keyring(old, new)`` everywhere: all can read the
new key, none writes it yet. Then ``Keyring(new, old)``: each turn moves its blob to the new key, and
`rewrap` those that see no turn. When none is left, ``Keyring(new)``: what the old key sealed is refused.
"""

from .encrypted import Encrypted
from .keys import Key, Keyring
from .signed import Signed

__all__ = ["Encrypted", "Key", "Keyring", "Signed"]
