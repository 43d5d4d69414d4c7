/** The trials of a study as a table that is filtered and sorted. */

import { json } from "./api.js";
import { fault, h, select } from "./dom.js";
import { differing, metric, number, spaced } from "./format.js";

const PAGE = 1000;
const STEP = 100;
const FINE = new Set(["complete", "pruned", "infeasible", "running"]);

/** A section that loads the trials of a study when it is shown. */
export function trials(study, count, signal) {
  const place = h("div", {}, h("p", { class: "quiet" }, `${number(count)} trials`));
  load(study, count, signal).then(
    all => place.replaceChildren(...(all.length ? browser(study, all) : [h("p", { class: "quiet" }, "None was tried.")])),
    error => signal.aborted || place.replaceChildren(fault(error)));
  return h("section", { class: "trials", "aria-labelledby": "trials" }, h("h2", { id: "trials" }, "Trials"), place);
}

async function load(study, count, signal) {
  const offsets = Array.from({ length: Math.ceil(count / PAGE) }, (_, page) => page * PAGE);
  const pages = await Promise.all(offsets.map(offset =>
    json(`/v1/studies/${study.id}/trials?limit=${PAGE}&offset=${offset}`, { signal })));
  return pages.flatMap(page => page.trials);
}

function browser(study, all) {
  const wanted = { status: "", variant: "", words: "", sort: "number", falling: false, shown: STEP };
  const first = all[0].config;
  const place = h("div", {});
  const counted = h("p", { class: "quiet", role: "status" });
  const own = name => [...new Set(all.map(trial => trial[name]))].sort();

  function show() {
    const words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter(trial =>
      (!wanted.status || trial.status === wanted.status)
      && (!wanted.variant || trial.variant === wanted.variant)
      && words.every(word => text(trial, first).toLowerCase().includes(word)));
    found.sort((a, b) => (wanted.falling ? -1 : 1) * compare(a[wanted.sort], b[wanted.sort]));
    counted.textContent = found.length === all.length ? `${number(all.length)} trials` : `${number(found.length)} of ${number(all.length)} trials`;
    const rest = found.length - wanted.shown;
    place.replaceChildren(
      rows(study, found.slice(0, wanted.shown), first, wanted, by => {
        [wanted.falling, wanted.sort] = [wanted.sort === by && !wanted.falling, by];
        show();
        place.querySelector(`[data-by="${by}"]`).focus();
      }),
      ...(rest > 0 ? [h("button", { type: "button", onclick: () => { wanted.shown += STEP; show(); place.lastElementChild.focus(); } }, `Show ${number(Math.min(rest, STEP))} more`)] : []));
  }

  const change = name => event => { wanted[name] = event.target.value; wanted.shown = STEP; show(); };
  show();
  return [
    h("div", { class: "filters" },
      select("Status", "status", [["", "any"], ...own("status").map(status => [status, spaced(status)])], "", { onchange: change("status") }),
      select("Variant", "variant", [["", "any"], ...own("variant")], "", { onchange: change("variant") }),
      h("label", {}, h("span", {}, "Settings or reason"), h("input", { type: "search", placeholder: "n_threads=2", oninput: change("words") }))),
    counted, place,
  ];
}

function rows(study, found, first, { sort, falling }, by) {
  const head = (name, label, numeric) => h("th", {
    scope: "col", class: numeric && "number", "aria-sort": sort === name ? (falling ? "descending" : "ascending") : null,
  }, h("button", { type: "button", "data-by": name, onclick: () => by(name) }, label, sort === name ? (falling ? " ↓" : " ↑") : ""));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All trials, filtered" },
    h("table", {},
      h("thead", {}, h("tr", {}, head("number", "#", true), head("status", "status"), head("value", study.objective, true), head("variant", "variant"),
        h("th", { scope: "col" }, "differs from the first in"))),
      h("tbody", {}, found.map(trial => h("tr", {},
        h("td", { class: "number" }, trial.number),
        h("td", {}, h("span", { class: "state", "data-state": trial.status, "data-kind": FINE.has(trial.status) ? null : "lost" }, spaced(trial.status))),
        h("td", { class: "number" }, metric(study.objective, trial.value)),
        h("td", {}, trial.variant),
        h("td", {}, h("code", {}, differing(trial.config, first)), trial.reason && h("small", {}, trial.reason),
          trial.invalidated && h("small", { class: "fault" }, "declared wrong")))))));
}

const text = (trial, first) => `${trial.engine} ${trial.variant} ${differing(trial.config, first)} ${trial.reason ?? ""}`;

/** What is not known comes last, however it is sorted. */
function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}
