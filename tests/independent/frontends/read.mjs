// The client of the AI SDK, as a test sees it: it reads streams of server-sent events with the package's own
// parser and schema, and builds messages with its own reader.
//
//   node read.mjs FOLDER < request.json
//
// FOLDER: where npm has installed `ai`. The request: {conversations: [[{sse, goes_on}]], histories: [[message]]}.
// The answer: for each conversation its messages after each stream, what went wrong, and the same without each
// chunk in turn; for each history why the client refuses it, or null.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const entry = createRequire(`${process.argv[2]}/package.json`).resolve("ai");
const { parseJsonEventStream, readUIMessageStream, safeValidateUIMessages, uiMessageChunkSchema } = await import(
  pathToFileURL(entry)
);

async function chunksOf(sse) {
  const stream = new Response(sse).body;
  const chunks = [];
  for await (const one of parseJsonEventStream({ stream, schema: uiMessageChunkSchema })) {
    chunks.push(one.success ? { chunk: one.value } : { refused: String(one.error.message ?? one.error) });
  }
  return chunks;
}

async function built(streams) {
  const messages = [];
  const stages = [];
  const errors = [];
  for (const { chunks, goes_on } of streams) {
    const stream = new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
    const message = goes_on ? messages.pop() : undefined;
    let last = message;
    try {
      for await (const found of readUIMessageStream({
        message: message && structuredClone(message),
        stream,
        onError: (error) => errors.push(String(error.message ?? error)),
      })) {
        last = found;
      }
    } catch (error) {
      errors.push(String(error.message ?? error));
    }
    if (last !== undefined) messages.push(last);
    stages.push([...messages]);
  }
  return { stages, errors };
}

async function conversation(streams) {
  const read = [];
  const refused = [];
  for (const { sse, goes_on } of streams) {
    const found = await chunksOf(sse);
    refused.push(...found.flatMap((one) => (one.refused === undefined ? [] : [one.refused])));
    read.push({ goes_on, chunks: found.flatMap((one) => (one.chunk === undefined ? [] : [one.chunk])) });
  }
  const without = [];
  for (const [at, { chunks }] of read.entries()) {
    for (const [index, chunk] of chunks.entries()) {
      const fewer = read.map((one, other) =>
        other === at ? { ...one, chunks: chunks.filter((_, place) => place !== index) } : one,
      );
      without.push({ type: chunk.type, transient: chunk.transient === true, ...(await built(fewer)) });
    }
  }
  return { ...(await built(read)), refused, without };
}

async function refusal(messages) {
  if (messages.length === 0) return null;
  const found = await safeValidateUIMessages({ messages });
  return found.success ? null : String(found.error.message ?? found.error);
}

let text = "";
for await (const piece of process.stdin) text += piece;
const { conversations = [], histories = [] } = JSON.parse(text);
const answer = { conversations: [], histories: [] };
for (const one of conversations) answer.conversations.push(await conversation(one));
for (const one of histories) answer.histories.push(await refusal(one));
process.stdout.write(JSON.stringify(answer));
