/** Home: this machine at a glance, and the best that is known for it. */

import { json } from "./api.js";
import { facts, h } from "./dom.js";
import { exporter } from "./export.js";
import { bytes, claim, differing, metric, milliseconds, moment, number, spaced } from "./format.js";

/** The page. */
export async function make({ signal, vocabulary }) {
  const [found, { best }, { formats }] = await Promise.all([
    json("/v1/overview", { signal }), json("/v1/best-profiles", { signal }), vocabulary,
  ]);
  return {
    title: "This machine",
    content: [
      machine(found.machine, best),
      found.search && h("p", { role: "status" }, "A search runs: ", h("a", { href: "#/search" }, "watch it")),
      found.daemon && watched(found.daemon),
      h("section", { "aria-labelledby": "best" },
        h("h2", { id: "best" }, "Best profiles"),
        best.length ? best.map(profile => card(profile, formats)) : nothing()),
    ].filter(Boolean),
  };
}

/** What the daemon runs, decided last and may still measure today. */
function watched({ running, last, degraded, configuration_problem: problem, spent_minutes: spent, daily_minutes: daily,
  on_trial: onTrial, machine_slower_sets: slower }) {
  return h("section", { "aria-labelledby": "daemon" },
    h("h2", { id: "daemon" }, "Daemon"),
    facts([
      ["runs", running ?? "the engine's defaults", onTrial ? "just promoted: its latencies are watched" : null],
      ["decided last", spaced(last.action), last.reason],
      ["waits for", last.waits_for],
      ["measured today", `${number(spent)} min`, `of ${number(daily)}`],
      slower > 0 && ["the machine", "slower as a whole", `in ${slower} ${slower === 1 ? "check" : "checks in a row"}`],
    ].filter(Boolean)),
    [degraded, problem].filter(Boolean).map(wrong => h("p", { class: "fault", role: "alert" }, wrong)));
}

function machine(seen, best) {
  const about = [seen.hostname, seen.arch, seen.is_virtual && "virtual machine"].filter(Boolean).join(" · ");
  const ceiling = best.find(profile => profile.ceiling)?.ceiling;
  const hints = seen.advice.filter(one => one.severity !== "info");
  return h("section", {},
    h("p", { class: "over" }, "This machine"),
    h("h1", {}, seen.model_name || seen.arch),
    h("p", { class: "quiet" }, about),
    facts([
      ["CPUs to use", number(seen.effective.cpu_count), cpus(seen)],
      ["Memory to use", bytes(seen.effective.memory_bytes), `of ${bytes(seen.memory.total_bytes)}`],
      ["Instructions", ...instructions(seen.inference_isa)],
      ceiling && ["Memory's ceiling", `${ceiling.bandwidth_gbps.toFixed(1)} GB/s`,
        `decode reaches ${(100 * ceiling.reached).toFixed(0)} % of what it allows`],
    ].filter(Boolean), "glance"),
    hints.length > 0 && h("details", { class: "hints" },
      h("summary", {}, hints.length === 1 ? "A hint about this machine, now" : `${hints.length} hints about this machine, now`),
      h("ul", {}, hints.map(one => h("li", {}, one.message, one.fix && h("small", {}, one.fix))))));
}

function cpus({ effective, logical_cpus: all, physical_cores: cores }) {
  if (effective.limited_by !== "none") return `of ${all}: limited by ${spaced(effective.limited_by)}`;
  return cores && cores !== all ? `all of them, ${cores} cores` : "all that the machine has";
}

/** The widest vector unit, and what else speeds up quantized inference. */
function instructions(isa) {
  const pretty = name => name.toUpperCase().replace("AVX512F", "AVX-512").replace("AVX512_", "").replaceAll("_", " ");
  const { vector, int8_dot: dot, bf16, fp16, matrix } = isa;
  const more = [dot, matrix, bf16, fp16].filter(Boolean).map(pretty);
  return [vector ? pretty(vector) : "none known", more.join(", ") || null];
}

function card(profile, formats) {
  const { big, text } = claim(profile.status, profile.speedup);
  const { workload } = profile;
  const name = profile.objective;
  const title = `${profile.model}, ${workload.name}`;
  return h("article", { class: "profile", "aria-label": title },
    h("p", { class: "claim", "data-status": profile.status }, h("strong", {}, big), text),
    h("div", {},
      h("h3", {}, profile.model),
      h("p", { class: "quiet" },
        `${workload.name}: ${number(workload.prompt_tokens)} + ${number(workload.output_tokens)} tokens`
        + (workload.streams > 1 ? `, ${workload.streams} at a time` : "")
        + ` · ${profile.quality}` + profile.limits.map(limit => ` · ${limit}`).join("")),
      facts([
        [spaced(name.replace("_ms", "").replace("_tps", "")), metric(name, profile.value), before(profile)],
        name !== "ttft_ms" && ["first token", known(profile, "ttft_ms.p50", milliseconds)],
        name !== "decode_tps" && ["decode", known(profile, "decode_tps.p50", value => `${value.toFixed(1)} tokens/s`)],
        ["quality", ...agreement(profile)],
        ["measured", conditions(profile), `${spaced(profile.status)}, ${moment(profile.created_at)}`],
      ].filter(Boolean)),
      h("p", { class: "settings" }, h("code", {}, `${profile.config.engine} ${profile.config.variant} ${differing(profile.changes)}`)),
      profile.is_made_up && h("p", { class: "quiet" }, "The simulated engine's made-up numbers: they say nothing about your model."),
      profile.invalidated && h("p", { class: "fault" }, `Not to be trusted: ${profile.invalidated}`),
      h("div", { class: "actions" },
        exporter(profile.id, formats),
        profile.study && h("a", { href: `#/study/${profile.study}` }, "Why it won"))));
}

function before({ objective, default_value: value, status }) {
  return value === null || status === "no_gain" ? null : `default ${metric(objective, value)}`;
}

function known(profile, name, form) {
  return name in profile.metrics ? form(profile.metrics[name]) : null;
}

function agreement({ top1_agreement: top1, kl_divergence: divergence }) {
  return top1 === null ? ["as your file"] : [`${(100 * top1).toFixed(1)} % the same`, `KL ${divergence.toFixed(4)}`];
}

function conditions({ conditions: under }) {
  return { quiet: "quiet machine", loaded: "under load", background: "quiet and beside a neighbour" }[under];
}

function nothing() {
  return h("div", { class: "empty" },
    h("p", {}, "Nothing has been measured on this machine yet."),
    h("p", {}, h("a", { class: "button", href: "#/search" }, "Start a search")),
    h("p", { class: "quiet" }, h("code", {}, "cputune models add FILE"), " adds your own model."));
}
