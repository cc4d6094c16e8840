// The chat of the AI SDK, as a page uses it, against a server: what `useChat` does without React.
//
//   node chat.mjs FOLDER URL
//
// FOLDER: where npm has installed `ai`. URL: a server with one application for each scenario, and beside each
// `control/inside`, which answers once a tool runs, and `control/release`, which lets it end.
// The answer: for each scenario the messages that the page holds at the end.
import { aiOf } from "./ai_chat.mjs";

const [folder, url] = process.argv.slice(2);
const { Chat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } = await aiOf(folder);

const headers = { "x-user": "ada" };

function page(name, messages) {
  return new Chat({
    id: "hall",
    messages,
    transport: new DefaultChatTransport({ api: `${url}/${name}/aisdk`, headers }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
}

const ask = (name, path, how = {}) => fetch(`${url}/${name}/${path}`, { headers, ...how });
const stored = async (name) => (await ask(name, "aisdk/hall/messages")).json();
const control = (name, what) => ask(name, `control/${what}`, { method: "POST" });

async function settled(chat, done = () => true) {
  while (chat.status === "submitted" || chat.status === "streaming" || !done()) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function until(done) {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 5));
}

const holds = (messages, text) => JSON.stringify(messages).includes(JSON.stringify(text));
const calls = (chat) => chat.messages.flatMap((message) => message.parts).filter((part) => part.toolCallId);
const hasText = (chat, text) => () =>
  chat.messages.some((message) => message.parts.some((part) => part.type === "text" && part.text === text));

async function answered(name, approved, text) {
  const chat = page(name);
  await chat.sendMessage({ text: "Fire!" });
  const waits = calls(chat).filter((part) => part.state === "approval-requested");
  for (const part of waits) {
    await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason: approved ? undefined : "too loud" });
  }
  await settled(chat, hasText(chat, text));
  return chat;
}

const scenarios = {
  async text(name) {
    const chat = page(name);
    await chat.sendMessage({ text: "Hello?" });
    await chat.sendMessage({ text: "More" });
    return chat;
  },
  async tools(name) {
    await control(name, "release");
    const chat = page(name);
    await chat.sendMessage({ text: "Look" });
    return chat;
  },
  approve: (name) => answered(name, true, "Hit."),
  parallel: async (name) => {
    await control(name, "release");
    return answered(name, true, "Both.");
  },
  deny: (name) => answered(name, false, "As you wish."),
  async hand_off(name) {
    await control(name, "release");
    return answered(name, true, "Hit.");
  },
  async hand_off_after_a_reload(name) {
    await control(name, "release");
    await page(name).sendMessage({ text: "Fire!" });
    const chat = page(name, await stored(name));
    for (const part of calls(chat).filter((part) => part.state === "approval-requested")) {
      await chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
    }
    await settled(chat, hasText(chat, "Hit."));
    return chat;
  },
  async approve_while_the_provider_fails(name) {
    const chat = page(name);
    await chat.sendMessage({ text: "Fire!" });
    await chat.addToolApprovalResponse({ id: calls(chat)[0].approval.id, approved: true });
    await settled(chat, () => chat.status === "error");
    await chat.sendMessage(); // the user asks for it once more
    return chat;
  },
  async stop(name) {
    const chat = page(name);
    const sent = chat.sendMessage({ text: "Look" });
    await control(name, "inside");
    await ask(name, "aisdk/hall/stream", { method: "DELETE" });
    await sent;
    await chat.sendMessage({ text: "Something else" });
    return chat;
  },
  async reload(name) {
    const first = page(name);
    const sent = first.sendMessage({ text: "Look" });
    await control(name, "inside");
    const second = page(name, await stored(name));
    const resumed = second.resumeStream();
    await settled(second, () => second.status !== "ready" || calls(second).length > 0);
    await control(name, "release");
    await Promise.all([sent, resumed]);
    if (JSON.stringify(first.lastMessage) !== JSON.stringify(second.lastMessage)) throw new Error(`pages differ: ${JSON.stringify([first.lastMessage, second.lastMessage])}`);
    return second;
  },
  async cut(name) {
    const chat = page(name);
    const sent = chat.sendMessage({ text: "Look" });
    await control(name, "inside");
    await chat.stop(); // the connection only
    await sent;
    const resumed = chat.resumeStream();
    await settled({ get status() { return chat.status === "streaming" ? "ready" : "streaming"; } });
    await control(name, "release");
    await resumed;
    return chat;
  },
  async double(name) {
    await control(name, "release");
    const message = { id: "m1", role: "user", parts: [{ type: "text", text: "Look" }] };
    const body = JSON.stringify({ id: "hall", messages: [message], trigger: "submit-message" });
    const post = { method: "POST", body, headers: { ...headers, "content-type": "application/json" } };
    const texts = await Promise.all(
      [1, 2].map(async () => (await fetch(`${url}/${name}/aisdk`, post)).text()),
    );
    if (texts[0] !== texts[1]) throw new Error("the two answers differ");
    const chat = page(name, [message]);
    await chat.sendMessage();
    return chat;
  },
  async reload_before_the_approval(name) {
    await page(name).sendMessage({ text: "Fire!" });
    const chat = page(name, await stored(name));
    await chat.addToolApprovalResponse({ id: calls(chat)[0].approval.id, approved: true });
    await settled(chat, hasText(chat, "Hit."));
    return chat;
  },
  async client_tool(name) {
    const chat = page(name);
    await chat.sendMessage({ text: "Hi" });
    const [call] = calls(chat);
    await chat.addToolOutput({ tool: call.toolName, toolCallId: call.toolCallId, output: "Ada" });
    await chat.sendMessage();
    return chat;
  },
  async regenerate(name) {
    const chat = page(name);
    await chat.sendMessage({ text: "Hello?" });
    await chat.regenerate();
    await chat.regenerate({ messageId: chat.lastMessage.id });
    return chat;
  },
  async edit(name) {
    const chat = page(name);
    for (const text of ["One?", "Two?", "Three?"]) await chat.sendMessage({ text });
    const { id } = chat.messages[2];
    await chat.sendMessage({ text: "Zwei?", messageId: id });
    await chat.sendMessage({ text: "Deux?", messageId: id });
    return chat;
  },
  async edit_after_a_reload(name) {
    const first = page(name);
    for (const text of ["One?", "Two?"]) await first.sendMessage({ text });
    const chat = page(name, await stored(name));
    const { id } = chat.messages[0];
    await chat.sendMessage({ text: "Eins?", messageId: id });
    await chat.sendMessage({ text: "Un?", messageId: id });
    return chat;
  },
  async steer(name) {
    const chat = page(name);
    const first = chat.sendMessage({ text: "Look" });
    await control(name, "inside");
    const second = chat.sendMessage({ text: "And the window?" });
    await until(async () => holds(await stored(name), "And the window?"));
    await control(name, "release");
    await Promise.all([first, second]);
    return chat;
  },
  async steer_after_a_reload(name) {
    const first = page(name).sendMessage({ text: "Look" });
    await control(name, "inside");
    const chat = page(name, await stored(name));
    const resumed = chat.resumeStream();
    await settled(chat, () => calls(chat).length > 0 || chat.status !== "ready");
    const second = chat.sendMessage({ text: "And the window?" });
    await until(async () => holds(await stored(name), "And the window?"));
    await control(name, "release");
    await Promise.all([first, resumed, second]);
    return chat;
  },
  async edit_in_place_of_an_approval(name) {
    const chat = page(name);
    await chat.sendMessage({ text: "Fire!" });
    await chat.sendMessage({ text: "Do not fire.", messageId: chat.messages[0].id });
    return chat;
  },
};

// A message that comes at the end of the first turn gets a turn of its own in the same stream.
for (const name of ["tools", "approve", "deny", "parallel", "approve_while_the_provider_fails", "stop", "reload", "cut",
  "double", "reload_before_the_approval", "client_tool"]) scenarios[`late_${name}`] = scenarios[name];

const found = {};
for (const [name, scenario] of Object.entries(scenarios)) {
  try {
    const chat = await scenario(name);
    found[name] = { messages: chat.messages, status: chat.status, stored: await stored(name) };
  } catch (error) {
    found[name] = { failed: String(error.stack ?? error) };
  }
}
process.stdout.write(JSON.stringify(found));
