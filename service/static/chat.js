/** Chat with what the service runs. */

import { json } from "./api.js";
import { Answer } from "./answers.js";
import { beside, swap } from "./beside.js";
import { h, select } from "./dom.js";
import { claim } from "./format.js";
import { Follower } from "./typing.js";

const RETRY_MS = 1000;

/** What was said stays until the tab is reloaded; its last entry is the model's. */
const talk = { messages: [], shown: [] };

/** The page. */
export async function make({ signal }) {
  const [{ generator, no_generator: reason }, { best }] = await Promise.all([
    json("/v1/overview", { signal }), json("/v1/best-profiles", { signal }),
  ]);
  if (generator === null) return closed(reason, signal);
  return new Chat(generator, best, signal).page();
}

/** No chat: why, or that it is about to begin. */
function closed(reason, signal) {
  const text = reason === null ? "The generator is being started …" : `No generator runs here: ${reason}.`;
  return {
    title: "Chat",
    content: [h("section", {}, h("h1", {}, "Chat"), h("p", { role: "status" }, text))],
    shown: () => {
      if (reason !== null) return;
      const later = setTimeout(() => dispatchEvent(new Event("hashchange")), RETRY_MS);
      signal.addEventListener("abort", () => clearTimeout(later));
    },
  };
}

class Chat {
  constructor(generator, best, signal) {
    this.generator = generator;
    this.running = generator.profile ?? "default";
    this.profiles = best.filter(one => one.model === generator.model && (!one.is_made_up || one.config.engine === generator.engine));
    this.leaving = signal;
    this.stopping = null;
    this.log = h("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Conversation" }, talk.shown);
    this.hint = h("p", { class: "quiet" }, "Under each answer stand the time to the first token, the tokens per second, and what the cache saved.");
    if (!talk.shown.length) this.log.append(this.hint);
    this.latest = h("button", { type: "button", class: "latest", hidden: true, onclick: () => this.newest() }, "↓ Latest");
    this.follower = new Follower(this.log, follows => { this.latest.hidden = follows; });
    this.status = h("p", { class: "over", role: "status" });
    this.words = h("textarea", { rows: "1", placeholder: "Say something", "aria-label": "Message", onkeydown: event => this.key(event) });
    this.send = h("button", { class: "main" }, "Send");
    this.compare = h("button", { type: "button", onclick: () => this.both() }, "Compare with default");
    this.anew = h("button", { type: "button", onclick: () => this.clear() }, "New");
    this.profile = select("Profile", "profile", this.choices(), this.running, { onchange: event => this.swap(event.target.value) });
    signal.addEventListener("abort", () => this.stopping?.abort());
    addEventListener("keydown", event => event.key === "Escape" && !event.isComposing && this.stopping?.abort(), { signal });
    this.settle();
  }

  choices() {
    const all = [["default", "the engine's defaults"], ...this.profiles.map(one =>
      [one.id, `${one.id}: ${one.workload.name}, ${one.quality}${one.id === this.generator.best ? ", best" : ""}`])];
    return all.some(([id]) => id === this.running) ? all : [...all, [this.running, this.running]];
  }

  page() {
    const form = h("form", { class: "composer", onsubmit: event => { event.preventDefault(); this.submit(); } },
      this.words, h("div", { class: "actions" }, this.send, this.compare, this.anew));
    return {
      title: "Chat",
      content: [
        h("header", { class: "talk" },
          h("div", {}, h("h1", {}, this.generator.model), this.status), this.profile),
        h("div", { class: "stage" }, this.log, this.latest),
        form,
      ],
      shown: () => { this.follower.jump(); this.words.focus({ preventScroll: true }); },
    };
  }

  /** Show whether something runs. */
  settle(said) {
    const busy = this.stopping !== null;
    this.send.textContent = busy ? "Stop" : "Send";
    this.compare.disabled = busy || this.generator.best === null;
    this.compare.title = this.generator.best ? "" : "no profile is published for this model yet";
    this.anew.disabled = busy;
    this.profile.querySelector("select").disabled = busy;
    this.status.textContent = said ?? `${this.generator.engine} ${this.generator.variant}, profile ${this.running}`;
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    // While an answer comes, Enter neither sends again nor stops it.
    if (this.stopping === null) this.submit();
  }

  submit() {
    if (this.stopping) this.stopping.abort();
    else this.say();
  }

  /** What was typed, shown as said; empty where there is nothing. */
  take() {
    const text = this.words.value.trim();
    if (text) {
      this.words.value = "";
      this.show(h("article", { class: "message", "data-role": "user", "aria-label": "You" }, h("p", { class: "words" }, text)));
    }
    return text;
  }

  show(element) {
    talk.shown.push(element);
    this.hint.remove();
    this.log.append(element);
    this.follower.jump();
  }

  /** Follow again; the button that asked for it goes away. */
  newest() {
    this.follower.jump();
    this.log.focus({ preventScroll: true });
  }

  /** Do one thing at a time: `work` gets the signal that stops it. */
  async alone(work) {
    if (this.stopping) return;
    this.stopping = new AbortController();
    this.settle("…");
    let failed;
    try {
      await work(this.stopping.signal);
    } catch (error) {
      if (error.name !== "AbortError") failed = error.message;
    }
    this.stopping = null;
    this.settle(failed);
  }

  async say() {
    if (!this.words.value.trim()) return;
    await this.alone(async signal => {
      const text = this.take();
      talk.messages.push({ role: "user", content: text });
      const answer = new Answer(this.generator.model, () => this.follower.grown());
      this.show(answer.element);
      this.settle("The answer comes; Escape stops it");
      await answer.say({ messages: talk.messages, context_overflow: "drop_old_turns" }, signal);
      if (answer.text) talk.messages.push({ role: "assistant", content: answer.text });
      else this.giveBack(text);
    });
  }

  /** What was not answered was not said. */
  giveBack(text) {
    talk.messages.pop();
    if (!this.words.value) this.words.value = text;
  }

  async both() {
    if (!this.words.value.trim()) {
      this.words.focus();
      this.status.textContent = "Write what both should answer first";
      return;
    }
    await this.alone(async signal => {
      const both = beside(this.take(), {
        best: this.generator.best, measured: this.measured(), back: this.running, grown: () => this.follower.grown(), said: text => this.settle(text),
      });
      this.show(both.element);
      await both.run(signal);
    });
  }

  /** What the search found of the best profile. */
  measured() {
    const found = this.profiles.find(one => one.id === this.generator.best);
    if (!found) return "";
    const { big, text } = claim(found.status, found.speedup);
    return `Measured, in pairs of fresh processes: ${big}, ${text}.`;
  }

  async swap(profile) {
    await this.alone(async () => {
      this.settle(`Loading ${profile} …`);
      try {
        const { engine, variant } = await swap(profile);
        Object.assign(this.generator, { engine, variant });
        this.running = profile;
      } finally {
        this.profile.querySelector("select").value = this.running;
      }
    });
  }

  clear() {
    talk.messages.length = talk.shown.length = 0;
    this.log.replaceChildren(this.hint);
    this.words.focus();
  }
}
