// A program in TypeScript that talks to a server of goaitools-py. Its types are made from the server's own
// description:
//
//   npm ci && npm run types && npm run build && node chat.js http://127.0.0.1:8000
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

type Schemas = components["schemas"];

const url = process.argv[2] ?? "http://127.0.0.1:8000";
const headers = { "x-user": "ada" }; // yours: a cookie, or a token
const chat = createClient<paths>({ baseUrl: url, headers });
const path = { name: "hall" };

/** Say something and wait for the result. The id makes a message that comes twice one turn. */
async function say(text: string, turn_id: string): Promise<Schemas["TurnResult"]> {
  const { data, error } = await chat.POST("/conversations/{name}/turns", {
    params: { path },
    body: { text, turn_id },
  });
  return whole(data, error);
}

/** Answer the calls that wait. */
async function answer(answers: Schemas["Answers"]["answers"]): Promise<Schemas["TurnResult"]> {
  const { data, error } = await chat.POST("/conversations/{name}/answers", { params: { path }, body: { answers } });
  return whole(data, error);
}

/** Come back: follow a turn that runs, or go on with one that a server left. False if there is none. */
async function comeBack(): Promise<boolean> {
  const { response } = await chat.POST("/conversations/{name}/turns/current", { params: { path }, body: {} });
  return response.status === 200;
}

function whole(
  data: Schemas["TurnResult"] | Schemas["StoppedTurn"] | { data: string } | undefined,
  error: Schemas["ProblemDocument"] | undefined,
): Schemas["TurnResult"] {
  if (error) throw new Error(`${error.status} ${error.title}`);
  if (!data || !("text" in data)) throw new Error("The turn was stopped.");
  return data;
}

/** Say something and give the text as it comes. */
async function* stream(text: string, turn_id: string): AsyncGenerator<string> {
  const response = await fetch(`${url}/conversations/${path.name}/turns`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify({ text, turn_id } satisfies Schemas["TextMessage"]),
  });
  if (!response.ok || !response.body) throw new Error(`${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (kept + value).split("\n\n");
    kept = frames.pop() ?? "";
    for (const frame of frames) {
      const members = Object.fromEntries(frame.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (members.event === "text") yield JSON.parse(members.data).text;
      if (members.event === "error") throw new Error(JSON.parse(members.data).title);
    }
  }
}

console.log(`went on: ${await comeBack()}`);

let said = "";
for await (const piece of stream("Hello?", "m1")) said += piece;
console.log(`streamed: ${said}`);

let result = await say("Fire!", "m2");
for (const call of result.pending) {
  // What turns text around, or is not seen, is shown as an escape: what a person approves is what runs.
  const shown = call.arguments.replace(/\p{C}/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
  console.log(`waits: ${call.name} ${shown}`);
  result = await answer({ [call.id]: { approve: true } });
}
console.log(`${result.status}: ${result.text}`);

const { data: messages = [] } = await chat.GET("/conversations/{name}/messages", { params: { path } });
console.log(`${messages.length} messages: ${messages.map((message) => message.role).join(", ")}`);

const { error } = await chat.GET("/conversations/{name}", { params: { path: { name: "nothing" } } });
console.log(`problem: ${error?.status} ${error?.type}`);
