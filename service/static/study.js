/** One study: what it found, why that won, its charts and its trials. */

import { json } from "./api.js";
import { draw, places } from "./charts.js";
import { facts, fault, h, table } from "./dom.js";
import { exporter } from "./export.js";
import { claim, differing, metric, moment, number, spaced } from "./format.js";
import { trials } from "./trials.js";
import { explained } from "./why.js";

const SHOWN = [
  "response_ms.p50", "ttft_ms.p50", "tpot_ms.p50", "decode_tps.p50", "prefill_tps.p50", "load_ms", "peak_rss_mib",
  "kl_divergence", "top1_agreement",
];

/** The page of the study that `parts` names. */
export async function make({ parts: [id = ""], signal, vocabulary }) {
  const path = `/v1/studies/${encodeURIComponent(id)}`;
  const [study, { metrics, formats, no_charts: none }] = await Promise.all([json(path, { signal }), vocabulary]);
  const count = Object.values(study.trials).reduce((all, one) => all + one, 0);
  const why = h("section", { class: "why", "aria-labelledby": "why", "aria-busy": "true" }, h("h2", { id: "why" }, "Why it won"));
  const drawn = h("div", { class: "charts", "aria-busy": "true" }, h("p", { class: "quiet" }, "Drawing …"));
  return {
    title: study.result?.model.name ?? study.name,
    content: [
      head(study, count, formats),
      study.result && answer(study.result, metrics),
      why,
      h("section", { "aria-labelledby": "charts" }, h("h2", { id: "charts" }, "Charts"), drawn),
      trials(study, count, signal),
    ].filter(Boolean),
    shown: () => {
      explain(why, `${path}/explanation`, signal);
      if (none === null) show(drawn, `${path}/charts`, signal);
      else say(drawn, none);
    },
  };
}

async function explain(place, path, signal) {
  try {
    place.append(...explained(await json(path, { signal })));
  } catch (error) {
    if (!signal.aborted) place.append(fault(error));
  }
  place.removeAttribute("aria-busy");
}

function say(place, text) {
  place.replaceChildren(h("p", {}, text));
  place.removeAttribute("aria-busy");
}

async function show(place, path, signal) {
  try {
    const { charts } = await json(path, { signal });
    if (Object.keys(charts).length === 0) {
      say(place, "Nothing was measured that could be drawn.");
    } else {
      place.replaceChildren(...places(charts));
      await draw(charts, signal);
    }
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(fault(error));
  }
  place.removeAttribute("aria-busy");
}

function head(study, count, formats) {
  const { result, speedup, status } = study;
  const { big, text } = claim(status, speedup);
  const gained = speedup && status !== "no_gain";
  const ends = Object.entries(study.trials).map(([end, one]) => `${number(one)} ${spaced(end)}`).join(", ");
  return h("section", {},
    h("p", { class: "over" }, h("a", { href: "#/history" }, "History"), ` · ${study.id}`),
    h("h1", {}, result?.model.name ?? study.name),
    h("p", { class: "quiet" }, [study.workload, study.objective, study.quality, ...study.limits].join(" · ")),
    result?.best && h("p", { class: "claim", "data-status": status }, h("strong", {}, big), text,
      gained && h("small", {}, ` at ${(100 * speedup.confidence).toFixed(1)} %, ${speedup.pairs} pairs of fresh processes`)),
    facts([
      ["status", h("span", { class: "state", "data-state": status }, spaced(status))],
      ["trials", number(count), ends],
      result && ["rounds dropped", number(result.dropped_rounds), result.conditions === "loaded" ? "measured under load" : null],
      result && ["took", `${number(result.elapsed_s)} s`],
      ["last changed", moment(study.updated_at)],
      ["engine", Object.entries(study.engine_builds).map(([name, build]) => `${name} ${build}`).join(", ")],
    ].filter(Boolean)),
    study.profile && h("div", { class: "actions" }, exporter(study.profile, formats)));
}

/** The default beside the best and those that came next. */
function answer(result, metrics) {
  const next = result.runners_up.map((one, place) => [`${place + 2}.`, one]);
  const sides = [["default", result.baseline], ["best", result.best], ...next].filter(([, one]) => one);
  const lines = SHOWN.filter(name => sides.some(([, one]) => name in one.metrics)).map(name => {
    const base = name.split(".")[0];
    return [
      h("span", { title: metrics[base].description }, spaced(base.replace(/_(ms|tps|mib)$/, "").replace("rss", "memory"))),
      ...sides.map(([, one]) => (name in one.metrics ? metric(name, one.metrics[name]) : "-")),
    ];
  });
  const settings = sides.map(([name, one]) =>
    [name, h("code", {}, differing(one.config, name === "default" ? {} : result.baseline.config))]);
  return h("section", { class: "answer", "aria-labelledby": "answer" },
    h("h2", { id: "answer" }, "Answer"),
    result.best === null && h("p", {}, `No configuration that was tried keeps ${result.quality} and the limits.`),
    table("The default and the best", ["", ...sides.map(([name]) => ({ name, numeric: true }))],
      [["variant", ...sides.map(([, one]) => one.variant)], ...lines]),
    facts(settings, "stack"));
}
