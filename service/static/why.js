/** Why a configuration won, in a table and two lists. */

import { h, table } from "./dom.js";
import { spaced, times, word } from "./format.js";

/** What tells an explanation, as a list of elements. */
export function explained(why) {
  if (!why.settings.length && !why.next.length && !why.lost.length) return [h("p", { class: "quiet" }, "Too little was measured to say.")];
  return [
    ...(why.settings.length > 0 ? [
      table("What each setting is worth around the best", ["setting of the best", { name: "matters", numeric: true }, "instead"],
        why.settings.map(one => [
          h("code", {}, `${one.setting}=${word(one.best)}`),
          one.importance === null ? "-" : `${(100 * one.importance).toFixed(0)} %`,
          others(one, why.rivals),
        ])),
      h("p", { class: "over" }, `Ratios of ${why.metric}, 95 % intervals from the search's short rounds. Matters: the share of what all settings explain.`),
    ] : []),
    list("What would help next", why.next.map(one => one.text)),
    list("What was lost", why.lost.map(lost)),
  ].filter(Boolean);
}

function others({ setting, alternatives, not_measured: unknown }, rivals) {
  const lines = alternatives.map(one => [word(one.value), ratio(one) + (one.reason ? `, ${one.reason}` : "")]);
  const best = setting === "variant" ? new Map([...rivals].reverse().map(rival => [rival.variant, rival])) : new Map();
  for (const name of unknown.filter(name => best.has(name))) lines.push([name, atItsBest(best.get(name))]);
  const rest = unknown.filter(name => !best.has(name)).map(word);
  if (rest.length) lines.push([null, `not measured next to it: ${rest.join(", ")}`]);
  if (!lines.length) return h("small", {}, "no other value was tried");
  return lines.map(([name, text]) => h("div", {}, name !== null && [h("code", {}, name), " "], h("small", { class: "inline" }, text)));
}

function ratio({ verdict, ratio: estimate, low, high }) {
  if (verdict === "noise") return `within the noise (${low.toFixed(2)}-${high.toFixed(2)})`;
  if (verdict === "worse") return `${times(estimate)} slower (${low.toFixed(2)}-${high.toFixed(2)})`;
  return `${times(1 / estimate)} faster (${(1 / high).toFixed(2)}-${(1 / low).toFixed(2)})`;
}

function atItsBest({ speed, reason }) {
  const compared = speed > 1 ? `${times(speed)} faster` : `${times(1 / speed)} slower`;
  return `${compared} at its best${reason ? `, ${reason}` : ""}`;
}

function lost({ status, reason, count, blamed }) {
  const shared = Object.entries(blamed).map(([name, value]) => `${name}=${word(value)}`).join(" ");
  return `${count} ${spaced(status)}${reason ? `: ${reason}` : ""}${shared ? `; only they had ${shared}` : ""}`;
}

function list(title, lines) {
  return lines.length > 0 && h("div", {}, h("h3", {}, title), h("ul", { class: "notes" }, lines.map(line => h("li", {}, line))));
}
