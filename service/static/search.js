/** Search: start one, watch it, cancel it. What runs is found again after a reload. */

import { json } from "./api.js";
import { fault, h, select } from "./dom.js";
import { watch } from "./live.js";

/** The page. */
export async function make({ signal, vocabulary }) {
  const [{ searches }, { models }, known] = await Promise.all([
    json("/v1/searches", { signal }), json("/v1/registered-models", { signal }), vocabulary,
  ]);
  const place = h("div", { class: "live" });
  const form = asked(models, known, async body => {
    const job = await json("/v1/searches", { body, signal });
    follow(job);
  });

  function follow(job) {
    const running = job.state === "running";
    form.lock(running);
    form.element.hidden = running;
    place.replaceChildren(...watch(job, known, signal, () => {
      form.lock(false);
      form.element.hidden = false;
    }));
  }

  // The last one stays until the next begins. A daemon's comparisons stand here too, and are none.
  const last = searches.find(job => job.command[1] === "search");
  if (last) follow(last);
  return {
    title: "Search",
    content: [
      h("section", {}, h("h1", {}, "Search"),
        h("p", { class: "quiet" }, "Finds the engine settings and the quantization that answer fastest on this machine, at measured quality. It takes all CPUs while it runs."),
        form.element),
      place,
    ],
  };
}

/** The form of a search; `start` is given what is asked for. */
function asked(models, { workloads, quality_levels: levels, engines, metrics }, start) {
  const failed = h("p", { class: "fault whole", role: "alert" });
  const button = h("button", { class: "main" }, "Start the search");
  const element = h("form", { class: "form", onsubmit: submit },
    select("Model", "model", models.length ? models : [["", "the demo model"]], models[0] ?? ""),
    select("Workload", "workload", workloads.map(one => [one.name, `${one.name}: ${one.prompt_tokens} + ${one.output_tokens} tokens`
      + (one.streams > 1 ? `, ${one.streams} at a time` : "")]), "chat"),
    select("Quality", "quality", levels, levels[0]),
    select("Make best", "objective", [["", "the workload's own"], ...Object.entries(metrics)
      .filter(([name]) => ["response_ms", "ttft_ms", "decode_tps", "tpot_ms", "peak_rss_mib"].includes(name))
      .map(([name, one]) => [name, one.description.replace(/:.*/, "")])], ""),
    select("Engines", "engines", [["", "all that are installed"], ...engines], ""),
    h("label", {}, h("span", {}, "Budget"),
      h("input", { name: "budget", value: "5m", required: true, pattern: "\\d+(\\.\\d+)?\\s*[smh]?", title: "such as 60s, 5m, 1h", spellcheck: "false" })),
    h("label", {}, h("span", {}, "Limits, with commas between"),
      h("input", { name: "limits", placeholder: "peak_rss_mib<=500", spellcheck: "false" })),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "fresh" }), h("span", {}, "Start anew")),
    failed,
    h("div", { class: "whole" }, button));

  async function submit(event) {
    event.preventDefault();
    if (button.disabled) return;
    const fields = Object.fromEntries(new FormData(element));
    lock(true);
    failed.textContent = "";
    try {
      await start({
        model: fields.model || null,
        workload: fields.workload,
        quality: fields.quality,
        objective: fields.objective || null,
        engines: fields.engines ? [fields.engines] : null,
        budget: fields.budget.replaceAll(" ", ""),
        limits: fields.limits.split(",").map(one => one.trim()).filter(Boolean),
        fresh: fields.fresh !== undefined,
      });
    } catch (error) {
      lock(false);
      failed.textContent = error.message;
    }
  }

  function lock(running) {
    button.disabled = running;
    button.textContent = running ? "A search runs" : "Start the search";
  }

  return { element, lock };
}
