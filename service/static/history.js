/** History: the searches of this store by question, with their trend and what changed between them. */

import { json } from "./api.js";
import { h, select, svg, table } from "./dom.js";
import { metric, moment, number, spaced, times } from "./format.js";

const SHOWN = 8;
const MOST = 100;

/** The page; `parts` names the model that is chosen. */
export async function make({ parts: [model = ""], signal, vocabulary }) {
  const [{ studies }, { models }] = await Promise.all([
    json(`/v1/history?limit=${MOST}${model && `&model=${encodeURIComponent(model)}`}`, { signal }),
    json("/v1/registered-models", { signal }),
    vocabulary,
  ]);
  const questions = Map.groupBy(studies, row => row.question);
  return {
    title: "History",
    content: [
      h("section", {},
        h("h1", {}, "History"),
        studies.length === MOST && h("p", { class: "quiet" }, `The last ${MOST} searches; `, h("code", {}, "cputune history --limit N"), " lists more."),
        studies.length === 0 && h("p", { class: "quiet" }, "No search has been run here yet. ", h("a", { href: "#/search" }, "Start one")),
        models.length > 1 && h("div", { class: "filters" },
          select("Model", "model", [["", "all models"], ...models], model, {
            onchange: event => { location.hash = event.target.value ? `#/history/${encodeURIComponent(event.target.value)}` : "#/history"; },
          }))),
      ...[...questions.values()].map(question),
    ],
  };
}

function question(rows) {
  const [first] = rows;
  const asked = [first.workload, first.objective, first.quality, ...first.limits].join(" · ");
  const title = `${first.model}, ${first.workload}`;
  const listing = h("div", { class: "searches" }, listed(title, rows.slice(0, SHOWN)));
  const rest = rows.length - SHOWN;
  const more = rest > 0 && h("button", {
    type: "button",
    onclick: () => { listing.replaceChildren(listed(title, rows)); more.remove(); listing.firstElementChild.focus(); },
  }, `Show ${rest} earlier`);
  return h("section", { class: "question", "aria-label": title },
    h("header", {},
      h("div", {}, h("h2", {}, first.model), h("p", { class: "quiet" }, asked, machine(first))),
      trend(rows)),
    listing, more);
}

function machine({ machine: { label, fingerprint } }) {
  return ` · on ${label || fingerprint.slice(0, 8)}`;
}

function listed(title, rows) {
  return table(`Searches: ${title}`,
    ["when", "status", { name: "best", numeric: true }, { name: "speed-up", numeric: true }, { name: "trials", numeric: true }, "since the one before"],
    rows.map(row => [
      h("a", { href: `#/study/${row.study}` }, moment(row.updated_at)),
      h("span", { class: "state", "data-state": row.status }, spaced(row.status)),
      metric(row.objective, row.value),
      row.speedup && row.status !== "no_gain" ? times(row.speedup.ratio) : "-",
      number(row.trials),
      changes(row.changes),
    ]));
}

function changes(told) {
  if (told.length === 0) return "-";
  if (told.length <= 2) return h("small", {}, told.join("; "));
  return h("details", {},
    h("summary", {}, `${told.length} changes`),
    h("ul", { class: "notes" }, told.map(one => h("li", {}, h("small", {}, one)))));
}

/** The objective over time as a line, the oldest first, and by how much it changed. */
function trend(rows) {
  const values = rows.map(row => row.value).filter(value => value !== null).reverse();
  if (values.length < 2) return null;
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const points = values.map((value, place) => [100 * place / (values.length - 1), 30 - 28 * (value - low) / span]);
  const [before, now] = [values[0], values.at(-1)];
  const percent = 100 * (now / before - 1);
  const told = `${metric(rows[0].objective, before)} → ${metric(rows[0].objective, now)} (${percent >= 0 ? "+" : ""}${percent.toFixed(0)} %)`;
  return h("p", { class: "trend" },
    svg("svg", { viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img", "aria-label": `Trend of ${values.length} searches` },
      svg("polyline", { points: points.map(point => point.join(",")).join(" ") })),
    told);
}
