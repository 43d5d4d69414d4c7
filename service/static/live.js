/** A search while it runs: its stages, the best so far, what was dropped and why, the time left. */

import { ApiError, events, json, request } from "./api.js";
import { facts, fault, h } from "./dom.js";
import { claim, clock, differing, metric, number, spaced, times } from "./format.js";

const RECENT = 12;
const NOTES = 50;
const RETRY_MS = 1000;

/** What shows a search until it has ended or `signal`; then `ended` is called. `known` is the vocabulary. */
export function watch(job, known, signal, ended) {
  const view = new View(job, known, signal);
  follow(view, job, signal).then(ended, error => {
    if (signal.aborted) return;
    view.stop();
    view.element.append(fault(error));
    ended();
  });
  return [view.element];
}

/** Take the events of a search until it has ended; where the connection breaks, go on after the last of them. */
async function follow(view, { id }, signal) {
  const path = `/v1/searches/${id}`;
  let last = "-1";
  for (;;) {
    try {
      const response = await request(`${path}/events`, { headers: { "Last-Event-ID": last }, signal });
      for await (const event of events(response, place => { last = place; })) {
        if (signal.aborted) return;
        view.take(event);
      }
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 0) throw error;
    }
    const job = await json(path, { signal });
    if (job.state !== "running") return view.end(job);
    await new Promise(resolve => setTimeout(resolve, RETRY_MS));
  }
}

class View {
  constructor(job, { workloads }, signal) {
    this.job = job;
    this.objective = option(job, "--objective") ?? workloads.find(one => one.name === option(job, "--workload"))?.objective ?? "";
    this.first = null;
    this.left = null;
    this.counts = {};
    this.dropped = {};
    this.isStopped = false;
    this.heading = h("h2", {}, "Searching …");
    this.stages = h("ol", { class: "stages", "aria-label": "Stages" });
    this.best = h("p", { class: "best" }, "-");
    this.bestOf = h("p", { class: "quiet" }, "best so far");
    this.bestSettings = h("code", {});
    this.time = h("p", { class: "number", role: "timer" }, "");
    this.bar = h("progress", { max: "1", value: "0", "aria-label": "Budget used" });
    this.button = h("button", { type: "button", onclick: () => this.cancel(signal) }, "Cancel");
    this.figures = h("div", {});
    this.recent = h("tbody", {});
    this.notes = h("ul", { class: "notes" });
    this.outcome = h("div", { role: "status" });
    this.element = h("section", { "aria-label": "The search" },
      h("div", { class: "now" }, h("div", {}, this.heading, h("p", {}, h("code", {}, job.command.join(" ")))), this.button),
      this.stages, this.outcome,
      h("div", { class: "now" }, h("div", {}, this.best, this.bestOf, this.bestSettings), this.time),
      this.bar, this.figures,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latest trials" },
        h("table", { class: "recent" },
          h("thead", {}, h("tr", {}, ["#", "status", "value", "variant", "differs from the first in"].map((name, place) =>
            h("th", { scope: "col", class: [0, 2].includes(place) && "number" }, name)))),
          this.recent)),
      h("details", { open: true }, h("summary", {}, "Notes"), this.notes));
    const ticking = setInterval(() => this.tick(), 1000);
    signal.addEventListener("abort", () => clearInterval(ticking));
    this.stop = () => clearInterval(ticking);
    this.budget = seconds(option(job, "--budget"));
  }

  /** Show one event. */
  take(event) {
    ({
      stage: () => this.stage(event.message),
      note: () => this.note(event.message),
      trial: () => this.trial(event),
      quality: () => this.note(`quality of ${event.message}`),
      pair: () => this.pair(event),
      stopped: () => { this.isStopped = true; this.heading.textContent = "Waiting while a chat is answered"; },
      continued: () => { this.isStopped = false; this.heading.textContent = "Searching …"; },
    })[event.event]?.();
    if (typeof event.left_s === "number") this.left = event.left_s;
    this.show();
  }

  stage(name) {
    for (const stage of this.stages.children) stage.removeAttribute("aria-current");
    this.stages.append(h("li", { "aria-current": "step" }, name));
  }

  note(text) {
    this.notes.prepend(h("li", {}, text));
    if (this.notes.children.length > NOTES) this.notes.lastChild.remove();
  }

  trial(event) {
    this.first ??= event.config.settings;
    this.counts[event.status] = (this.counts[event.status] ?? 0) + 1;
    this.dropped = event.dropped ?? {};
    this.recent.prepend(h("tr", {},
      h("td", { class: "number" }, event.number),
      h("td", {}, h("span", { class: "state", "data-state": event.status, "data-kind": event.value === null ? "lost" : null }, spaced(event.status))),
      h("td", { class: "number" }, metric(this.objective, event.value)),
      h("td", {}, event.config.variant),
      h("td", {}, h("code", {}, differing(event.config.settings, this.first)), event.reason && h("small", {}, event.reason))));
    if (this.recent.children.length > RECENT) this.recent.lastChild.remove();
    if (event.best) {
      this.best.textContent = metric(this.objective, event.best.value);
      this.bestSettings.textContent = `${event.best.config.variant} ${differing(event.best.config.settings, this.first)}`;
    }
  }

  pair({ pair, median }) {
    this.best.textContent = times(median);
    this.bestOf.textContent = `the speed of the default so far, the median of ${pair} ${pair === 1 ? "pair" : "pairs"} of fresh processes`;
  }

  show() {
    const ends = Object.entries(this.counts).map(([status, count]) => `${number(count)} ${spaced(status)}`).join(", ");
    const causes = Object.entries(this.dropped).map(([cause, count]) => `${number(count)} ${cause}`).join(", ");
    const rounds = Object.values(this.dropped).reduce((all, one) => all + one, 0);
    this.figures.replaceChildren(facts([
      ["trials", number(Object.values(this.counts).reduce((all, one) => all + one, 0)), ends || null],
      ["rounds dropped", number(rounds), causes || "none was disturbed"],
    ]));
    this.tick(0);
  }

  tick(passed = 1) {
    if (this.left === null) return;
    if (!this.isStopped) this.left = Math.max(0, this.left - passed);
    this.time.textContent = this.left > 0 ? `${clock(this.left)} left` : "ending …";
    if (this.budget) this.bar.value = Math.min(1, 1 - this.left / this.budget);
  }

  async cancel(signal) {
    this.button.disabled = true;
    this.button.textContent = "Cancelling …";
    try {
      await json(`/v1/searches/${this.job.id}`, { method: "DELETE", signal });
    } catch (error) {
      if (!signal.aborted) this.outcome.replaceChildren(fault(error));
    }
  }

  /** Show how it ended. */
  end(job) {
    this.stop();
    this.button.remove();
    this.bar.remove();
    this.time.textContent = "";
    for (const stage of this.stages.children) stage.removeAttribute("aria-current");
    this.heading.textContent = { done: "Done", failed: "Failed", cancelled: "Cancelled: what was finished is kept" }[job.state];
    if (job.error) this.outcome.replaceChildren(h("p", { class: "fault" }, job.error));
    if (job.result) this.tell(job.result);
  }

  tell(result) {
    const { status, speedup, best, study } = result;
    const { big, text } = claim(status, speedup);
    if (best) {
      this.best.textContent = big;
      this.bestOf.textContent = text;
      this.bestSettings.textContent = `${best.variant} ${differing(best.config, result.baseline.config)}`;
    } else {
      this.best.textContent = spaced(status);
      this.bestOf.textContent = `no configuration that was tried keeps ${result.quality} and the limits`;
    }
    this.outcome.replaceChildren(h("p", {}, h("a", { class: "button", href: `#/study/${study}` }, "See the study")));
  }
}

/** What a search was asked for by an option; undefined where it was not given. */
function option({ command }, name) {
  return command.includes(name) ? command[command.indexOf(name) + 1] : undefined;
}

/** "90s", "5m" or "1h" in seconds. */
function seconds(text) {
  const [, count, unit] = /^([\d.]+)([smh]?)$/.exec(text ?? "") ?? [];
  return count ? Number(count) * { s: 1, m: 60, h: 3600, "": 1 }[unit] : null;
}

