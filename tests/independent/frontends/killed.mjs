// A page of a client whose server is killed in the middle of a reply, and comes back.
//
//   node killed.mjs KIND FOLDER URL CONTROL
//
// KIND: `ai` or `agui`. FOLDER: where npm has installed the client. URL: the server. CONTROL: `inside` answers
// once a tool runs that does not end, and `restart` kills the server, and answers once another one is there.
// The answer: the messages of the page that was open, those of one that is opened then, and what is stored.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

import { aiOf } from "./ai_chat.mjs";

const [kind, folder, url, control] = process.argv.slice(2);
console.warn = console.error = () => {};

// The client of AG-UI raises the end of its connection a second time, outside of its promise.
process.on("uncaughtException", (error) => {
  if (error.cause?.code === "UND_ERR_SOCKET") return;
  process.stderr.write(String(error.stack));
  process.exit(1);
});

const ask = (what) => fetch(`${control}/${what}`, { method: "POST" });
const stored = async () => (await fetch(`${url}/${kind === "ai" ? "aisdk" : "agui"}/hall/messages`)).json();

async function until(done) {
  while (!done()) await new Promise((resolve) => setTimeout(resolve, 5));
}

async function ofAI() {
  const { Chat, DefaultChatTransport } = await aiOf(folder);
  const page = (messages) => new Chat({ id: "hall", messages, transport: new DefaultChatTransport({ api: `${url}/aisdk` }) });
  const open = page([]);
  const sent = open.sendMessage({ text: "Look" });
  await ask("inside");
  await until(() => open.messages.at(-1).parts.some((part) => part.toolName === "look"));
  await ask("restart");
  await sent;
  const broke = open.status === "error";
  const later = page(await stored());
  await Promise.all([open.resumeStream(), later.resumeStream()]);
  return { broke, open: open.messages, later: later.messages, waiting: open.status === "ready" ? 0 : 1 };
}

async function ofAGUI() {
  const { HttpAgent } = await import(pathToFileURL(createRequire(`${folder}/package.json`).resolve("@ag-ui/client")));
  const page = () => new HttpAgent({ url: `${url}/agui`, threadId: "hall" });
  const open = page();
  open.addMessage({ id: "m1", role: "user", content: "Look" });
  const sent = open.runAgent().then(() => false, () => true);
  await ask("inside");
  await until(() => open.messages.some((one) => (one.toolCalls ?? []).some((call) => call.function.name === "look")));
  await ask("restart");
  const broke = await sent;
  const later = page();
  await Promise.all([open.runAgent(), later.runAgent()]);
  return { broke, open: open.messages, later: later.messages, waiting: open.pendingInterrupts.length };
}

const found = await (kind === "ai" ? ofAI : ofAGUI)();
process.stdout.write(JSON.stringify({ ...found, stored: await stored() }));
