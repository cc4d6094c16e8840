// Reads many states with the example: a JSON list on standard input, and what was found on standard output.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , example, dictionaryFile] = process.argv;
const { asJSON, readState } = await import(pathToFileURL(example).href);
const dictionary = readFileSync(dictionaryFile);
const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");
const described = ({ kind, entries, raw }) => [kind, entries, raw.length, digest(raw)];

const found = JSON.parse(readFileSync(0, "utf8")).map(({ blob, keys, binding }) => {
  try {
    const options = { dictionary, binding, keys: keys.map((key) => Buffer.from(key, "hex")) };
    const state = readState(Buffer.from(blob, "base64"), options);
    const { messages, open, waiting, turns } = state;
    const lists = { messages, open, waiting, turns: turns.length, json: asJSON(state) };
    return { ...lists, segments: state.segments.map(described), parts: state.parts.map(described) };
  } catch (error) {
    return { error: error.name };
  }
});
process.stdout.write(JSON.stringify(found));
