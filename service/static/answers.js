/** One answer of the generator: its stream, its text as it comes, its figures. */

import { ApiError, events, request } from "./api.js";
import { facts, h } from "./dom.js";
import { milliseconds, number } from "./format.js";
import { Typewriter } from "./typing.js";

const REFRESH_MS = 200;

/**
 * Ask for an answer; `heard` is called with each piece of text. Resolves to the last event's `timings` and `usage`.
 *
 * Throws ApiError, also for a stream that ends with an error, and AbortError.
 */
async function ask(body, signal, heard) {
  const response = await request("/v1/chat/completions", {
    body: { ...body, stream: true, stream_options: { include_usage: true } }, signal,
  });
  let end = null;
  for await (const event of events(response)) {
    if (event === "[DONE]") break;
    if (event.error) throw new ApiError(500, event.error);
    const piece = event.choices[0]?.delta?.content;
    if (piece) heard(piece);
    if (event.usage) end = { timings: event.timings, usage: event.usage };
  }
  if (end === null) throw new ApiError(0, { message: "The answer broke off: the service closed the connection." });
  return end;
}

/** An answer on the page: `element` holds it, `say` fills it. */
export class Answer {
  /** `grown` is called after each change of its height. */
  constructor(name, grown) {
    this.grown = grown;
    this.text = "";
    this.words = h("p", { class: "words" });
    this.figures = h("div", { class: "figures" }, figures({}));
    this.fault = h("p", { class: "fault", role: "alert" });
    this.element = h("article", { class: "message", "data-role": "assistant", "aria-label": name },
      h("p", { class: "over" }, name), this.words, this.fault, this.figures);
  }

  /** Show the stream of one request. Resolves to its end, or to null where it was stopped or failed: `fault` says why. */
  async say(body, signal) {
    this.element.setAttribute("aria-busy", "true");
    const began = performance.now();
    const live = { first: null, last: 0, pieces: 0, told: 0 };
    const typewriter = new Typewriter(this.words, () => {
      if (performance.now() - live.told > REFRESH_MS) {
        live.told = performance.now();
        this.tell(measured(live, began));
      }
      this.grown();
    });
    let end = null;
    try {
      end = await ask(body, signal, piece => {
        live.last = performance.now();
        live.first ??= live.last;
        live.pieces += 1;
        this.text += piece;
        typewriter.push(piece);
      });
    } catch (error) {
      this.fault.textContent = signal.aborted ? "" : error.message;
      this.failed = !signal.aborted;
    }
    await typewriter.finish();
    this.tell(end ? known(end, performance.now() - began) : { ...measured(live, began), stopped: signal.aborted });
    this.element.removeAttribute("aria-busy");
    this.grown();
    return end;
  }

  tell(values) {
    this.figures.replaceChildren(figures(values));
  }
}

/** What can be seen from here, while it runs. */
function measured({ first, last, pieces }, began) {
  if (first === null) return {};
  return { ttft: first - began, rate: pieces > 1 ? 1000 * (pieces - 1) / (last - first) : null, tokens: pieces };
}

/** What the service measured. */
function known({ timings, usage }, took) {
  return {
    ttft: timings.ttft_ms, rate: timings.tokens_per_second, tokens: usage.completion_tokens, took,
    cached: timings.cached_tokens, prompt: usage.prompt_tokens, profile: timings.profile,
  };
}

function figures({ ttft, rate, tokens, took, cached, prompt, profile, stopped }) {
  return facts([
    ["first token", ttft === undefined ? "-" : milliseconds(ttft)],
    ["tokens/s", rate ? rate.toFixed(1) : "-"],
    ["tokens", tokens === undefined ? "-" : number(tokens), stopped && "stopped"],
    took !== undefined && ["took", milliseconds(took)],
    cached !== undefined && ["cached", `${number(cached)} of ${number(prompt)}`],
    profile !== undefined && ["profile", profile ?? "default"],
  ].filter(Boolean), "facts small");
}
