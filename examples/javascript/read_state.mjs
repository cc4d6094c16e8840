// Reads a state of goaitools-py, format 1, without goaitools-py: one file, no packages.
//
//   node read_state.mjs STATE [--dictionary FILE] [--parts FOLDER] [--key HEX]… [--bind NAME=VALUE]…
//
// prints {"wire": …, "messages": […], "open": […], "waiting": […]}: the provider's own JSON, byte for byte.
// The page docs/state_format.md describes what happens here; the headings are its headings.
//
// Node 22.19, or 24.6 and newer: others have no zstd with a dictionary. The dictionary is
// goaitools_py/state/dictionary/dict1.zdict; keep a copy of it beside your backups. The folder has the parts of
// a head, which stand in the table goaitools_state_part: a file for each, named by its name in hexadecimal digits.
import { createDecipheriv, createHash, createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { constants, zstdDecompressSync } from "node:zlib";

const DOMAIN = Buffer.from("goaitools/state/v1");
const PLAIN = 0x00, SIGNED = 0x11, ENCRYPTED = 0x21;
const MOST = { blob: 8 << 20, decoded: 32 << 20, entries: 20_000, segments: 2048, meta: 512 << 10 };
const META = 0, SEALED = 1, HOT = 2, INBOX = 3, OPEN = 4, ARCHIVE = 64, MEDIA = 65;

export class StateError extends Error {
  constructor(name, text) {
    super(text);
    this.name = name;
  }
}

const corrupt = (text) => new StateError("StateCorruptError", text);
const newer = (text) => new StateError("StateVersionError", text);
const tooLarge = (text) => new StateError("StateTooLargeError", text);
const refused = (text) => new StateError("StateAuthError", text);
const sha256 = (...pieces) => createHash("sha256").update(Buffer.concat(pieces)).digest();
const same = (one, other) => one.length === other.length && timingSafeEqual(one, other);

// ---------------------------------------------------------------------------------------------- numbers

/** Unsigned LEB128 in its shortest form, below 2**32. */
class Numbers {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  next() {
    let number = 0;
    for (let shift = 0; shift <= 28; shift += 7) {
      if (this.at >= this.bytes.length) throw corrupt("a number is cut off");
      const byte = this.bytes[this.at++];
      number += (byte & 127) * 2 ** shift;
      if (byte > 127) continue;
      if ((byte === 0 && shift > 0) || number >= 2 ** 32) break;
      return number;
    }
    throw corrupt("a number is too long");
  }

  take(length) {
    if (this.at + length > this.bytes.length) throw corrupt("bytes are missing");
    return this.bytes.subarray(this.at, (this.at += length));
  }
}

const u32 = (number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(number);
  return bytes;
};

const u64 = (number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
};

// ---------------------------------------------------------------------------------------------- the seal

/** Pieces, each with its length in front, so that no two lists give the same bytes. */
const pae = (pieces) => Buffer.concat([u64(pieces.length), ...pieces.flatMap((one) => [u64(one.length), one])]);
const hkdf = (key, salt, info, length) => Buffer.from(hkdfSync("sha256", key, salt, info, length));
const keyId = (key) => hkdf(key, Buffer.alloc(0), Buffer.concat([DOMAIN, Buffer.from("/kid")]), 4);

/** The owner: names and values, sorted by the bytes of the names. Nothing for null. */
function bound(binding) {
  const pairs = Object.entries(binding ?? {}).map((pair) => pair.map((text) => Buffer.from(text)));
  return pairs.sort(([one], [other]) => Buffer.compare(one, other)).flat();
}

/** Decrypt: salt 32 | commitment 32 | ciphertext | tag 16. Gives what stands behind its length. */
function decrypted(sealed, key, id, associated) {
  const [salt, commitment] = [sealed.subarray(0, 32), sealed.subarray(32, 64)];
  const info = Buffer.concat([DOMAIN, Buffer.from("/aes-256-gcm"), id]);
  const derived = hkdf(key, salt, info, 76);
  if (!same(derived.subarray(44), commitment)) return null;
  const opener = createDecipheriv("aes-256-gcm", derived.subarray(0, 32), derived.subarray(32, 44));
  opener.setAAD(associated(salt));
  opener.setAuthTag(sealed.subarray(-16));
  let inner;
  try {
    inner = Buffer.concat([opener.update(sealed.subarray(64, -16)), opener.final()]);
  } catch {
    return null;
  }
  const length = inner.length < 4 ? Infinity : inner.readUInt32BE(0);
  const padding = inner.subarray(4 + length);
  if (inner.length < 4 + length || padding.length >= 256 || padding.some((byte) => byte !== 0)) {
    throw corrupt("the decrypted bytes do not have the length that they state");
  }
  return inner.subarray(4, 4 + length);
}

/** Verify the seal; gives the body, decrypted in suite 21. */
function opened(header, seal, directory, body, options) {
  const [suite, id] = [header[5], header.subarray(12, 16)];
  const whole = header[6] === 2 ? Buffer.concat([header, sha256(options.dictionary)]) : header;
  const listed = directory.length ? [directory] : [];
  if (suite === PLAIN) {
    if (!same(sha256(DOMAIN, whole, directory, body).subarray(0, 16), seal)) throw corrupt("its digest differs");
    return body;
  }
  for (const key of options.keys) {
    if (!keyId(key).equals(id)) continue;
    if (suite === SIGNED) {
      const mac = hkdf(key, Buffer.alloc(0), Buffer.concat([DOMAIN, Buffer.from("/mac")]), 32);
      const pieces = pae([DOMAIN, whole, ...bound(options.binding), ...listed, body]);
      if (same(createHmac("sha256", mac).update(pieces).digest(), seal)) return body;
    } else {
      const associated = (salt) => pae([DOMAIN, whole, salt, ...bound(options.binding), ...listed]);
      const found = body.length < 16 ? null : decrypted(Buffer.concat([seal, body]), key, id, associated);
      if (found) return found;
    }
  }
  throw refused("no key opens it for this owner");
}

// ------------------------------------------------------------------------------------ segments and parts

/** The raw bytes of a segment or part: themselves, or one zstd frame that states exactly their length. */
function inflated(stored, length, compression, dictionary) {
  if (stored.length === length) return stored;
  if (compression === 0 || stored.length > length) throw corrupt("stored bytes have a wrong length");
  checkFrame(stored, length);
  let raw;
  try {
    const given = { maxOutputLength: length, ...(compression === 2 ? { dictionary } : {}) };
    raw = zstdDecompressSync(stored, { ...given, params: { [constants.ZSTD_d_windowLogMax]: 23 } });
  } catch {
    throw corrupt("a zstd frame does not inflate");
  }
  if (raw.length !== length) throw corrupt("a zstd frame has another length than it states");
  return raw;
}

/** RFC 8878: the frame states the content's size and nothing else, and nothing stands behind its last block. */
function checkFrame(stored, length) {
  if (stored.length < 6 || stored.readUInt32LE(0) !== 0xfd2fb528) throw corrupt("not a zstd frame");
  const described = stored[4];
  const [sizeFlag, single] = [described >> 6, (described >> 5) & 1];
  if (described & 0b1111) throw corrupt("a frame has a checksum, a dictionary id or a reserved bit");
  if (!single && sizeFlag === 0) throw corrupt("a frame does not state its size");
  let at = 5 + (single ? 0 : 1);
  if (!single && 10 + (stored[5] >> 3) > 23) throw corrupt("a frame asks for a window beyond 8 MiB");
  const width = [1, 2, 4, 8][sizeFlag];
  if (at + width > stored.length) throw corrupt("the header of a frame is cut off");
  const size = width === 8 ? Number(stored.readBigUInt64LE(at)) : stored.readUIntLE(at, width);
  if (size + (width === 2 ? 256 : 0) !== length) throw corrupt("a frame states another size");
  at += width;
  for (let last = 0; !last; ) {
    if (at + 3 > stored.length) throw corrupt("a frame is cut off");
    const block = stored.readUIntLE(at, 3);
    last = block & 1;
    at += 3 + ((block >> 1) & 3 ? ((block >> 1) & 3) === 1 ? 1 : block >> 3 : block >> 3);
  }
  if (at !== stored.length) throw corrupt("a frame does not end with its segment");
}

/** The directory: what each part is, and the digest of its stored bytes. */
function directoryOf(reader) {
  const parts = [];
  const count = reader.next();
  if (!count) throw newer("a directory without parts");
  if (count * 37 > reader.bytes.length) throw corrupt("the directory is cut off");
  while (parts.length < count) {
    const [kind, place, stored, raw, entries] = [0, 0, 0, 0, 0].map(() => reader.next());
    parts.push({ kind, place, stored, raw, entries, digest: reader.take(32) });
  }
  return parts;
}

/** The raw bytes of a part. In suite 21 each part is encrypted by itself. */
function partBytes(part, header, options) {
  if (!same(sha256(part.bytes), part.digest)) throw corrupt("a part is damaged");
  let packed = part.bytes;
  if (header[5] === ENCRYPTED) {
    const numbers = [part.kind, part.raw, part.entries].map(u32);
    const domain = Buffer.concat([DOMAIN, Buffer.from("/part")]);
    const id = packed.subarray(0, 4);
    const found = options.keys
      .filter((key) => keyId(key).equals(id))
      .map((key) => decrypted(packed.subarray(4), key, id, () => pae([domain, ...numbers, ...bound(options.binding)])))
      .find(Boolean);
    if (!found) throw refused("no key opens a part");
    packed = found;
  }
  return inflated(packed, part.raw, header[6], options.dictionary);
}

function segmentsOf(body, compression, decoded, dictionary) {
  const [segments, reader] = [[], new Numbers(body)];
  let [entries, total, before] = [0, 0, -1];
  while (reader.at < body.length) {
    const [kind, stored, raw, count] = [0, 0, 0, 0].map(() => reader.next());
    if (kind > OPEN && kind < 32) throw newer(`a segment of kind ${kind}`);
    if (kind > 63) throw corrupt(`a segment of kind ${kind}`);
    const again = kind === before && (kind === SEALED || kind >= 32);
    if ((before < 0) !== (kind === META) || (kind <= before && !again)) throw corrupt("segments out of order");
    if (stored < 1 || stored > raw || (kind === META && count)) throw corrupt("a wrong head of a segment");
    if (kind === META && raw > MOST.meta) throw tooLarge("max_meta_bytes");
    [entries, total, before] = [entries + count, total + raw, kind];
    if (entries > MOST.entries || segments.length >= MOST.segments) throw tooLarge("max_entries");
    if (total > MOST.decoded) throw tooLarge("max_decoded_bytes");
    segments.push({ kind, length: raw, entries: count, stored: reader.take(stored) });
  }
  if (!segments.length) throw corrupt("there are no meta data");
  if (decoded !== null && total !== decoded) throw corrupt("the header states another length");
  for (const one of segments) one.raw = inflated(one.stored, one.length, compression, dictionary);
  return segments;
}

// ------------------------------------------------------------------------------------------------- lines

/** The entries of a segment as one text "entry,\nentry", and the line behind them. Media are put back. */
function linesOf(segment, media) {
  const cut = segment.raw.lastIndexOf(10);
  if (cut < 0) throw corrupt("a segment has no last line");
  const [entries, line] = [segment.raw.subarray(0, cut), segment.raw.subarray(cut + 1)];
  return { entries: whole(entries, media), line: whole(line, media), count: segment.entries };
}

/** Put media in the place of references: FF | SHA-256, 43 characters of base64url | FF. */
function whole(bytes, media) {
  const pieces = [];
  let from = 0;
  for (let at; (at = bytes.indexOf(0xff, from)) >= 0; from = at + 45) {
    const found = media.get(bytes.subarray(at + 1, at + 44).toString("latin1"));
    if (!found || bytes[at + 44] !== 0xff) throw new StateError("StateInvalidError", "a medium is missing");
    pieces.push(bytes.subarray(from, at), Buffer.from(found().toString("base64")));
  }
  return Buffer.concat([...pieces, bytes.subarray(from)]);
}

// ----------------------------------------------------------------------------------------------- a state

/**
 * Read a state. `options`: `dictionary` (bytes), `keys` (a list of bytes), `binding` (an object, or null for
 * none), `part` (a function from a digest in hexadecimal digits to the stored bytes of a part that a store keeps).
 */
export function readState(blob, { dictionary = Buffer.alloc(0), keys = [], binding = null, part } = {}) {
  const options = { dictionary, keys, binding };
  const magic = Buffer.from("f5474153", "hex");
  if (blob.length > MOST.blob) throw tooLarge("max_blob_bytes");
  if (!blob.length || !blob.subarray(0, 4).equals(magic.subarray(0, blob.length))) {
    throw new StateError("StateFormatError", "this is not a state");
  }
  if (blob.length < 16) throw corrupt("the header is cut off");
  const header = blob.subarray(0, 16);
  const [version, suite, compression, flags] = header.subarray(4, 8);
  if (version === 0) throw corrupt("there was no version 0");
  if (version !== 1) throw newer(`version ${version}`);
  if (![PLAIN, SIGNED, ENCRYPTED].includes(suite)) throw newer(`suite ${suite}`);
  if ((suite === PLAIN) !== !keys.length) throw refused("a state with a seal needs a key, another takes none");
  if (compression > 2) throw newer(`compression ${compression}`);
  if (flags > 1) throw newer(`flags ${flags}`);
  if (suite === PLAIN && header.readUInt32BE(12)) throw corrupt("it names a key");
  const decoded = header.readUInt32BE(8);
  if (suite === ENCRYPTED ? decoded : decoded > MOST.decoded) {
    throw suite === ENCRYPTED ? corrupt("it states its length") : tooLarge("max_decoded_bytes");
  }
  const sealed = new Numbers(blob, 16);
  const seal = sealed.take({ [PLAIN]: 16, [SIGNED]: 32, [ENCRYPTED]: 64 }[suite]);
  const start = sealed.at;
  const parts = flags ? directoryOf(sealed) : [];
  const directory = blob.subarray(start, sealed.at);
  const inline = parts.filter((one) => one.place === 0).reduce((sum, one) => sum + one.stored, 0);
  if (sealed.at + inline > blob.length) throw corrupt("parts are missing");
  const end = blob.length - inline;
  const body = opened(header, seal, directory, blob.subarray(sealed.at, end), options);
  for (const { kind, place } of parts) {
    const known = [SEALED, ARCHIVE, MEDIA].includes(kind) || (kind >= 96 && kind <= 127);
    if (!known || place > 1) throw newer(`a part of kind ${kind} at place ${place}`);
  }
  const segments = segmentsOf(body, compression, suite === ENCRYPTED ? null : decoded, dictionary);

  const stored = new Numbers(blob, end);
  for (const one of parts) {
    one.bytes = one.place === 0 ? stored.take(one.stored) : part?.(one.digest.toString("hex"));
    if (!one.bytes && one.kind === SEALED) throw new StateError("StatePartMissingError", "a part is elsewhere");
    one.read = () => partBytes(one, header, options);
  }
  const meta = JSON.parse(segments[0].raw);
  const pictures = parts.filter((one) => one.kind === MEDIA);
  const media = new Map((meta.media ?? []).map(([digest], at) => [digest, pictures[at]?.read]));

  const history = [
    ...parts.filter((one) => one.kind === SEALED).map((one) => ({ ...one, raw: one.read() })),
    ...segments.filter((one) => one.kind === SEALED || one.kind === HOT),
  ].map((one) => linesOf(one, media));
  const of = (kind) => segments.filter((one) => one.kind === kind).map((one) => linesOf(one, media))[0];
  return {
    meta,
    wire: meta.wire,
    messages: entriesIn(history), // closed turns, oldest first
    turns: JSON.parse(`[${history.map((one) => one.line).filter((line) => line.length).join(",")}]`),
    open: entriesIn([of(OPEN)]), // the unfinished turn
    journal: of(OPEN) ? JSON.parse(of(OPEN).line) : null,
    waiting: entriesIn([of(INBOX)]), // messages that no model has seen
    segments: segments.map(({ kind, entries, raw }) => ({ kind, entries, raw })),
    parts: parts.map(({ kind, entries, bytes, read }) => ({ kind, entries, raw: bytes && read() })),
  };
}

/** Each entry as the text that was stored. An entry has no line break, so ",\n" stands between two. */
function entriesIn(lines) {
  return lines.flatMap((one) => {
    const found = one && one.count ? one.entries.toString().split(",\n") : [];
    if (one && found.length !== one.count) throw corrupt("a segment has another number of entries");
    return found;
  });
}

/** One JSON text. The entries are put in as they were stored: parsing would change large numbers. */
export function asJSON({ wire, messages, open, waiting }) {
  const list = (entries) => `[${entries.join(",\n")}]`;
  const named = { messages, open, waiting };
  const members = Object.entries(named).map(([name, entries]) => `${JSON.stringify(name)}: ${list(entries)}`);
  return `{"wire": ${JSON.stringify(wire)}, ${members.join(", ")}}`;
}

function main([path, ...rest]) {
  const options = { keys: [], binding: null };
  for (let at = 0; at < rest.length; at += 2) {
    const [name, value] = [rest[at], rest[at + 1] ?? ""];
    if (name === "--dictionary") options.dictionary = readFileSync(value);
    else if (name === "--parts") {
      options.part = (digest) => (existsSync(join(value, digest)) ? readFileSync(join(value, digest)) : undefined);
    }
    else if (name === "--key") options.keys.push(Buffer.from(value, "hex"));
    else if (name === "--bind") {
      const cut = value.indexOf("=");
      options.binding = { ...options.binding, [value.slice(0, cut)]: value.slice(cut + 1) };
    } else throw new Error(`unknown option ${name}; the first lines of this file have all of them`);
  }
  console.log(asJSON(readState(readFileSync(path), options)));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) main(process.argv.slice(2));
