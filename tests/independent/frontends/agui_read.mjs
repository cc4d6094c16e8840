// The client of AG-UI, as a test sees it: its own agent reads streams of server-sent events, checks the order of
// the events, and builds messages.
//
//   node agui_read.mjs FOLDER < request.json
//
// FOLDER: where npm has installed `@ag-ui/client`. The request: {conversations: [[{sse, said?, resume?, is_new?}]]}, where
// `said` is the user's message, `resume` the answers that the request had, and `is_new` true for a page that was
// loaded again and holds nothing.
// The answer: for each conversation the messages after each stream, what went wrong, the interrupts that wait,
// the events that the client's schema refuses, and the same without each event in turn.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/package.json`);
const { HttpAgent } = await import(pathToFileURL(require.resolve("@ag-ui/client")));
const { EventSchemas } = await import(pathToFileURL(require.resolve("@ag-ui/core/schemas")));

let errors = [];
console.warn = (...words) => errors.push(words.map(String).join(" "));
console.error = () => {};

function framesOf(sse) {
  return sse.split("\n\n").filter((frame) => frame !== "");
}

function eventOf(frame) {
  return JSON.parse(frame.slice(frame.indexOf("data: ") + 6));
}

async function built(streams) {
  errors = [];
  let sse = "";
  const headers = { "content-type": "text/event-stream" };
  const agent = new HttpAgent({
    url: "http://127.0.0.1/",
    threadId: "hall",
    fetch: async () => new Response(sse, { headers }),
  });
  const stages = [];
  for (const stream of streams) {
    sse = stream.frames.map((frame) => `${frame}\n\n`).join("");
    if (stream.is_new) agent.setMessages([]);
    if (stream.said) agent.addMessage(stream.said);
    try {
      await agent.runAgent({ runId: "r1", resume: stream.resume });
    } catch (error) {
      errors.push(String(error.message ?? error));
    }
    stages.push({
      messages: structuredClone(agent.messages),
      waiting: agent.pendingInterrupts.map((one) => one.toolCallId),
    });
  }
  return { stages, errors };
}

async function conversation(streams) {
  const read = streams.map((one) => ({ ...one, frames: framesOf(one.sse) }));
  const refused = read
    .flatMap((one) => one.frames.map(eventOf))
    .map((event) => EventSchemas.safeParse(event))
    .flatMap((found) => (found.success ? [] : [String(found.error.message)]));
  const without = [];
  for (const [at, { frames }] of read.entries()) {
    for (const [index, frame] of frames.entries()) {
      const fewer = read.map((one, other) =>
        other === at ? { ...one, frames: frames.filter((_, place) => place !== index) } : one,
      );
      without.push({ type: eventOf(frame).type, ...(await built(fewer)) });
    }
  }
  return { ...(await built(read)), refused, without };
}

let text = "";
for await (const piece of process.stdin) text += piece;
const { conversations } = JSON.parse(text);
const answer = [];
for (const one of conversations) answer.push(await conversation(one));
process.stdout.write(JSON.stringify(answer));
