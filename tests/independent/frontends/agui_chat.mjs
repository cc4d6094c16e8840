// The agent of AG-UI, as a page uses it, against a running server.
//
//   node agui_chat.mjs FOLDER URL
//
// FOLDER: where npm has installed `@ag-ui/client`. URL: a server with one application for each scenario, and
// beside each `control/inside`, which answers once a tool runs, and `control/release`, which lets it end.
// The answer: for each scenario the messages that the page holds at the end.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { HttpAgent, buildResumeArray } = await import(pathToFileURL(require.resolve("@ag-ui/client")));

let warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(" "));
console.error = () => {};

const headers = { "x-user": "ada" };
let count = 0;

const page = (name) => new HttpAgent({ url: `${url}/${name}/agui`, threadId: "hall", headers });
const ask = (name, path, how = {}) => fetch(`${url}/${name}/${path}`, { headers, ...how });
const stored = async (name) => (await ask(name, "agui/hall/messages")).json();
const control = (name, what) => ask(name, `control/${what}`, { method: "POST" });

function say(agent, text, id = `m${(count += 1)}`) {
  agent.addMessage({ id, role: "user", content: text });
  return agent.runAgent();
}

function answer(agent, payload) {
  const given = agent.pendingInterrupts.map((one) => [one.id, { status: "resolved", payload }]);
  return agent.runAgent({ resume: buildResumeArray(agent.pendingInterrupts, Object.fromEntries(given)) });
}

async function answered(name, payload) {
  const agent = page(name);
  await say(agent, "Fire!");
  await answer(agent, payload);
  return agent;
}

const scenarios = {
  async text(name) {
    const agent = page(name);
    await say(agent, "Hello?");
    await say(agent, "More");
    return agent;
  },
  async tools(name) {
    await control(name, "release");
    const agent = page(name);
    await say(agent, "Look");
    return agent;
  },
  approve: (name) => answered(name, { approved: true }),
  changed: (name) => answered(name, { approved: true, arguments: { at: "z" } }),
  deny: (name) => answered(name, { approved: false, reason: "too loud" }),
  async hand_off(name) {
    await control(name, "release");
    return answered(name, { approved: true });
  },
  async hand_off_after_a_reload(name) {
    await control(name, "release");
    await say(page(name), "Fire!");
    const agent = page(name);
    await agent.runAgent();
    const names = agent.messages.flatMap((one) => one.toolCalls ?? []).map((call) => call.function.name);
    if (names.join() !== "look,gunner,fire,fire") throw new Error(`the page shows ${names}`);
    await answer(agent, { approved: true });
    return agent;
  },
  async parallel(name) {
    await control(name, "release");
    return answered(name, { approved: true });
  },
  async client_tool(name) {
    const agent = page(name);
    await say(agent, "Hi");
    const [call] = agent.messages.at(-1).toolCalls;
    agent.addMessage({ id: "own", role: "tool", toolCallId: call.id, content: "Ada" });
    await agent.runAgent();
    return agent;
  },
  async approve_while_the_provider_fails(name) {
    const agent = await answered(name, { approved: true });
    await answer(agent, { approved: true }); // the user asks for it once more
    return agent;
  },
  async stop(name) {
    const agent = page(name);
    const sent = say(agent, "Look");
    await control(name, "inside");
    await ask(name, "agui/hall/stream", { method: "DELETE" });
    await sent;
    await say(agent, "Something else");
    return agent;
  },
  async reload(name) {
    const first = page(name);
    const sent = say(first, "Look");
    await control(name, "inside");
    const second = page(name); // it holds nothing
    const resumed = second.runAgent();
    await until(() => second.messages.some((one) => one.toolCalls));
    await control(name, "release");
    await Promise.all([sent, resumed]);
    // The page that was loaded later may have a message that came meanwhile.
    const pages = [first, second].map((one) => JSON.stringify(one.messages.filter((message) => message.content !== "Late.")));
    if (pages[0] !== pages[1]) throw new Error(`pages differ: ${pages}`);
    return second;
  },
  async reload_before_the_approval(name) {
    await say(page(name), "Fire!");
    const agent = page(name);
    await agent.runAgent();
    await answer(agent, { approved: true });
    return agent;
  },
  async cut(name) {
    const agent = page(name);
    const sent = say(agent, "Look");
    await control(name, "inside");
    await until(() => agent.messages.some((one) => one.toolCalls));
    agent.abortRun(); // the connection only
    await sent;
    const resumed = agent.runAgent();
    await control(name, "release");
    await resumed;
    return agent;
  },
  async double(name) {
    await control(name, "release");
    const body = { threadId: "hall", runId: "r1", messages: [{ id: "m1", role: "user", content: "Look" }] };
    const how = { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } };
    const texts = await Promise.all([1, 2].map(async () => (await fetch(`${url}/${name}/agui`, how)).text()));
    if (texts[0] !== texts[1]) throw new Error("the two answers differ");
    const agent = page(name);
    await say(agent, "Look", "m1");
    return agent;
  },
  async edit(name) {
    const agent = page(name);
    await say(agent, "One?");
    await say(agent, "Two?");
    await edited(agent, 1, "Zwei?");
    await edited(agent, 1, "Deux?");
    return agent;
  },
  async steer(name) {
    const agent = page(name);
    const first = say(agent, "Look");
    await control(name, "inside");
    await until(() => agent.messages.some((one) => one.toolCalls));
    await agent.detachActiveRun(); // one run at a time writes into an agent
    const second = say(agent, "And the window?");
    await until(async () => JSON.stringify(await stored(name)).includes("And the window?"));
    await control(name, "release");
    await Promise.all([first, second]);
    return agent;
  },
  async edit_after_a_reload(name) {
    await say(page(name), "One?");
    const agent = page(name);
    await agent.runAgent();
    await edited(agent, 0, "Eins?");
    return agent;
  },
};

// A page edits a message: the transcript ends with it, under the same id.
async function edited(agent, number, text) {
  const own = agent.messages.filter((one) => one.role === "user")[number];
  agent.setMessages(agent.messages.slice(0, agent.messages.indexOf(own)));
  await say(agent, text, own.id);
}

async function until(done) {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 5));
}

// A message that comes at the end of the first turn gets a turn of its own in the same run.
for (const name of ["tools", "approve", "changed", "deny", "parallel", "approve_while_the_provider_fails", "stop",
  "reload", "cut", "double", "reload_before_the_approval", "client_tool"]) scenarios[`late_${name}`] = scenarios[name];

const found = {};
for (const [name, scenario] of Object.entries(scenarios)) {
  warnings = [];
  try {
    const agent = await scenario(name);
    found[name] = { messages: agent.messages, waiting: agent.pendingInterrupts.length, stored: await stored(name), warnings };
  } catch (error) {
    found[name] = { failed: String(error.stack ?? error) };
  }
}
process.stdout.write(JSON.stringify(found));
