/** Side by side: the default and the best answer the same prompt, one after the other. */

import { json } from "./api.js";
import { Answer } from "./answers.js";
import { h } from "./dom.js";
import { milliseconds, times } from "./format.js";

const TOKENS = 160;

/** Run another profile: an id, "default", or null for the best. Resolves to what runs then. */
export const swap = (profile, options) => json("/v1/generator/profile", { body: { profile }, ...options });

/**
 * Both answers in one element; `run` asks for them, and leaves `back` running whatever happens.
 *
 * `said` is called with what goes on. `measured` is what was found of the best when it was searched.
 */
export function beside(prompt, { best, measured, back, grown, said }) {
  const sides = [["default", "default"], [best, `best (${best})`]].map(([profile, name]) => ({ profile, answer: new Answer(name, grown) }));
  const verdict = h("div", { class: "verdict", role: "status" });
  const element = h("div", { class: "beside" }, sides.map(side => side.answer.element), verdict);

  async function run(signal) {
    const ends = [];
    let running = back;
    // A page that is closed meanwhile must not leave the service with the other one.
    const leave = () => {
      if (running !== back) swap(back, { keepalive: true });
      running = back;
    };
    addEventListener("pagehide", leave);
    try {
      for (const { profile, answer } of sides) {
        said(`Loading ${profile} …`);
        // What is being loaded can't be called back: a stop counts when it runs.
        await swap(profile);
        running = profile;
        if (signal.aborted) return;
        said(`${profile} answers …`);
        // At temperature 0, so that they say the same where quantization allows it.
        ends.push(await answer.say({ messages: [{ role: "user", content: prompt }], max_tokens: TOKENS, temperature: 0 }, signal));
        if (signal.aborted || answer.failed) return;
      }
      verdict.append(
        h("p", {}, told(...ends.map(end => end.timings))),
        h("small", {}, `One answer each is an impression. ${measured}`));
      grown();
    } finally {
      removeEventListener("pagehide", leave);
      if (running !== back) {
        said(`Loading ${back} …`);
        await swap(back);
      }
    }
  }

  return { element, run };
}

function told(before, after) {
  if (!before.tokens_per_second || !after.tokens_per_second) return "The answers are too short to be compared.";
  const ratio = after.tokens_per_second / before.tokens_per_second;
  const first = `first token ${milliseconds(after.ttft_ms)} instead of ${milliseconds(before.ttft_ms)}`;
  return `The best writes at ${times(ratio)} the speed: ${after.tokens_per_second.toFixed(1)} tokens/s instead of `
    + `${before.tokens_per_second.toFixed(1)}, ${first}.`;
}
