/** Numbers and times in words. */

const known = { metrics: {} };

/** Take the registry of metrics that the service knows. */
export function learn(vocabulary) {
  known.metrics = vocabulary.metrics;
}

/** "1.9x" */
export const times = ratio => `${ratio >= 10 ? ratio.toFixed(0) : ratio >= 3 ? ratio.toFixed(1) : ratio.toFixed(2)}x`;

/** "1.64-2.00" */
const range = (low, high) => `${low.toFixed(2)}-${high.toFixed(2)}`;

/** A metric with its unit: always the same one, so that columns can be compared. */
export function metric(name, value) {
  if (value === null || value === undefined) return "-";
  const { unit = "", digits = 1 } = known.metrics[name.split(".")[0]] ?? {};
  return `${number(value, unit === "ms" && value >= 100 ? 0 : digits)}${unit && " "}${unit}`;
}

/** "882 ms", "6.07 ms", "12.3 s" */
export function milliseconds(value, digits = 1) {
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${number(value, value >= 100 ? 0 : digits)} ms`;
}

/** A number with thousands apart. */
export function number(value, digits = 0) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** "23.0 GiB" or "512 MiB" */
export function bytes(value) {
  const gib = value / 2 ** 30;
  return gib >= 1 ? `${gib.toFixed(1)} GiB` : `${(value / 2 ** 20).toFixed(0)} MiB`;
}

/** "30 Nov 2026, 20:15", in the reader's own time */
export function moment(text) {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** "1:05" */
export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** A setting's value as one word. */
export function word(value) {
  if (typeof value === "boolean") return value ? "on" : "off";
  return String(value);
}

/** "n_threads=2 flash_attn=on": the settings that are not as in `base`. */
export function differing(settings, base = {}, same = "as the default") {
  const changed = Object.entries(settings).filter(([name, value]) => base[name] !== value);
  return changed.map(([name, value]) => `${name}=${word(value)}`).join(" ") || same;
}

/** "no_gain" -> "no gain" */
export const spaced = name => name.replaceAll("_", " ");

/** What a profile's speed-up says: the claim, its interval, and what to think of it. */
export function claim(status, speedup) {
  if (!speedup || status === "no_gain") return { big: "1x", text: "the default is the best that was found" };
  return { big: times(speedup.ratio), text: `faster than the default (${range(speedup.low, speedup.high)})` };
}
