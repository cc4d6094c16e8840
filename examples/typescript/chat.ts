// A program in TypeScript that talks to a server of goaitools-py. Its types are made from the server's own
// description:
//
//   npm ci && npm run types && npm run build && node chat.js http://127.0.0.1:8000
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
declare const setTimeout: (done: () => void, milliseconds: number) => void;

type Schemas = components["schemas"];

const url = process.argv[2] ?? "http://127.0.0.1:8000";
const pause = Number(process.argv[3] ?? 1); // seconds before the second try, if the server names none
const headers = { "x-user": "ada" }; // yours: a cookie, or a token
const chat = createClient<paths>({ baseUrl: url, headers });
const path = { name: "hall" };

type Tried<T> = { data?: T; error?: unknown; response: Response };

/**
 * Send a request until it is answered: again after a 429, a lost connection, or a proxy's page in HTML.
 * The same `turn_id` makes that safe.
 */
async function again<T>(send: () => Promise<Tried<T>>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    let wait: number | undefined;
    let title: string;
    try {
      const { data, error, response } = await send();
      if (data !== undefined) return data;
      const problem = isProblem(error) ? error : undefined;
      title = `${response.status} ${problem?.title ?? "no answer of the server"}`;
      const passes = problem ? problem.retryable : response.status === 429 || response.status >= 500;
      if (passes) wait = problem?.retry_after ?? pause * 2 ** (attempt - 1);
    } catch (lost) {
      // No answer, or a part of one: `fetch` and the reader of its body throw. So does JSON that is none.
      title = `no answer: ${lost}`;
      wait = pause * 2 ** (attempt - 1);
    }
    if (wait === undefined || attempt === 5) throw new Error(title);
    const milliseconds = wait * 1000;
    await new Promise<void>((done) => setTimeout(done, milliseconds));
  }
}

function isProblem(error: unknown): error is Schemas["ProblemDocument"] {
  return typeof error === "object" && error !== null && "retryable" in error;
}

/** Say something and wait for the result. The id makes a message that comes twice one turn. */
async function say(text: string, turn_id: string): Promise<Schemas["TurnResult"]> {
  return whole(
    await again(() => chat.POST("/conversations/{name}/turns", { params: { path }, body: { text, turn_id } })),
  );
}

/** Answer the calls that wait. */
async function answer(answers: Schemas["Answers"]["answers"]): Promise<Schemas["TurnResult"]> {
  return whole(await again(() => chat.POST("/conversations/{name}/answers", { params: { path }, body: { answers } })));
}

/** Come back: follow a turn that runs, or go on with one that a server left. False if there is none. */
async function comeBack(): Promise<boolean> {
  const { response } = await chat.POST("/conversations/{name}/turns/current", { params: { path }, body: {} });
  return response.status === 200;
}

function whole(data: Schemas["TurnResult"] | Schemas["StoppedTurn"] | { data: string }): Schemas["TurnResult"] {
  if (!("text" in data)) throw new Error("The turn was stopped.");
  return data;
}

/** Say something and give the text as it comes. If the stream breaks off, the rest comes in one piece. */
async function* stream(text: string, turn_id: string): AsyncGenerator<string> {
  let shown = "";
  try {
    for await (const piece of pieces(text, turn_id)) {
      shown += piece;
      yield piece;
    }
  } catch {
    const whole = (await say(text, turn_id)).text; // the same id: no model is asked twice for one answer
    yield whole.startsWith(shown) ? whole.slice(shown.length) : `\n${whole}`;
  }
}

async function* pieces(text: string, turn_id: string): AsyncGenerator<string> {
  const body = await again(async () => {
    const response = await fetch(`${url}/conversations/${path.name}/turns`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ text, turn_id } satisfies Schemas["TextMessage"]),
    });
    if (response.ok && response.body) return { data: response.body, response };
    return { error: await response.json().catch(() => undefined), response };
  });
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
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
