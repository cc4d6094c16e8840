"""Stable. Codecs with a key: for states that other parties store or carry.

Owns: keys, the signed and the encrypted suite, and the owner of a blob. Must never know: the content of a
body. Begin with `signed.py`, the shorter suite; `state/codec.py` has the protocol of codecs.

With `Signed`, only the holder of a key can change a state. With `Encrypted`, only the holder of a key can
read or change it. Both tie a state to its owner: the *binding*, such as tenant, user and conversation. The
binding is authenticated but not stored. The reader must name the same binding. So a blob of one user is
refused when it is presented as the blob of another user.

::

    blob, suite 11   =  header 16 | tag 32 | [directory] | body | parts
        tag          =  HMAC-SHA-256(mac key, PAE(domain, header+, name, value, …, [directory], body))

    blob, suite 21   =  header 16 | salt 32 | commitment 32 | [directory] | AES-256-GCM(inner) | parts
                        tag 16 at the end of the encrypted bytes
        inner        =  u32 length of the body | body | zeros, fewer than 256
                        without zeros, or up to a multiple of 256 for visible_to="client"
        okm 76       =  HKDF-SHA-256(key, salt, info = domain "/aes-256-gcm" | key id)
                        AES key 32 | nonce 12 | commitment 32, so each blob has a key of its own
        associated   =  PAE(domain, header+, salt, name, value, …, [directory])

    part, suite 21   =  key id 4 | salt 32 | commitment 32 | AES-256-GCM(inner)
        inner, okm   =  as of a blob, with the salt and the key id of the part
        associated   =  PAE(domain "/part", kind, raw_len, entries, name, value, …)      numbers as u32

    domain           =  "goaitools/state/v1"
    header+          =  header, and the dictionary's SHA-256 if one is used; key id and all
    name, value, …   =  the binding in UTF-8, sorted by name; nothing for UNBOUND
    PAE(p1, p2, …)   =  u64 count | (u64 length | piece)…   little-endian, as in PASETO
    key id           =  HKDF-SHA-256(key, no salt, info = domain "/kid"), 4 bytes, big-endian in the header
    mac key          =  HKDF-SHA-256(key, no salt, info = domain "/mac"), 32 bytes

The commitment makes sure that a blob opens under one key only. It is compared before anything is decrypted.
Random nonces under one AES-GCM key are safe for 2**32 blobs; with a key for each blob this limit is gone.
The salt is a keyed hash of random bytes and the whole input. So a machine that repeats its random numbers,
such as a restored snapshot, does not use one key for two contents. A reader does not compute the salt.

**Rotation** takes two deployments and no pause. First deploy ``Keyring(old, new)`` everywhere: every worker
can read the new key, and no worker writes it yet. Then deploy ``Keyring(new, old)``: each turn seals its blob
with the new key, and `rewrap` does so for blobs that see no turn. When no blob of the old key is left, deploy
``Keyring(new)``: blobs of the old key are refused from then on.
"""

from ..state.codec import PLAIN, UNBOUND, BlobLimits, Codec, Plain
from ..state.whole_blobs import rewrap
from .encrypted import Encrypted
from .keys import Key, Keyring
from .signed import Signed

__all__ = [
    "PLAIN",
    "UNBOUND",
    "BlobLimits",
    "Codec",
    "Encrypted",
    "Key",
    "Keyring",
    "Plain",
    "Signed",
    "rewrap",
]
