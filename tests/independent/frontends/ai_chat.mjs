// The chat of the AI SDK without React: what `useChat` is made of.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// What a script needs of the `ai` that npm has installed in a folder.
export async function aiOf(folder) {
  const ai = await import(pathToFileURL(createRequire(`${folder}/package.json`).resolve("ai")));
  class Chat extends ai.AbstractChat {
    constructor({ messages = [], ...init }) {
      super({ ...init, state: new State(messages) });
    }
  }
  return { ...ai, Chat };
}

class State {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), structuredClone(message), ...this.messages.slice(index + 1)];
  };
  snapshot = (thing) => structuredClone(thing);
}
