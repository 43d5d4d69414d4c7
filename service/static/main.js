/** The frame: which page is shown, and the token where one is needed. */

import { asking, json, keepToken } from "./api.js";
import { fault, h } from "./dom.js";
import { learn } from "./format.js";
import * as home from "./home.js";

/** A page with its parts, asked for at once: one after the other would be a wait each. */
const whole = async (...names) => (await Promise.all(names.map(name => import(`./${name}.js`))))[0];

/** The first page is at hand; the others come when they are opened. */
const PAGES = {
  "": async () => home,
  history: () => whole("history"),
  study: () => whole("study", "charts", "trials", "why"),
  search: () => whole("search", "live"),
  chat: () => whole("chat", "answers", "beside", "typing"),
};
const place = document.getElementById("page");
const vocabulary = json("/v1/vocabulary").then(found => (learn(found), found));
vocabulary.catch(() => {});
let leaving = new AbortController();

async function open() {
  leaving.abort();
  const { signal } = (leaving = new AbortController());
  const [, name = "", ...rest] = location.hash.split("/");
  const first = !place.hasChildNodes();
  mark(name);
  place.setAttribute("aria-busy", "true");
  let made;
  try {
    const page = await (PAGES[name] ?? PAGES[""])();
    made = await page.make({ parts: rest.map(decodeURIComponent), signal, vocabulary });
  } catch (error) {
    if (signal.aborted) return;
    made = { title: "Not to be had", content: [h("h1", {}, "Not to be had"), fault(error)] };
  }
  if (signal.aborted) return;
  document.title = `${made.title} · cputune`;
  document.body.dataset.page = name;
  place.replaceChildren(...made.content);
  place.removeAttribute("aria-busy");
  if (!first) {
    scrollTo(0, 0);
    place.focus({ preventScroll: true });
  }
  made.shown?.();
  requestAnimationFrame(() => performance.mark(`shown:${name}`));
}

function mark(name) {
  for (const link of document.querySelectorAll("nav a")) {
    const own = link.hash.split("/")[1];
    if (own === name || (name === "study" && own === "history")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Ask for the token; one dialog, however many requests wait for it. */
let entering = null;
asking.token = wasRefused => {
  entering ??= new Promise(resolve => {
    const dialog = document.getElementById("token");
    const form = dialog.querySelector("form");
    dialog.querySelector(".fault").textContent = wasRefused ? "That is not the token of this service." : "";
    form.token.value = "";
    form.addEventListener("submit", () => {
      keepToken(form.token.value);
      entering = null;
      resolve();
    }, { once: true });
    // Without the token there is nothing to see: closed by Escape, it opens again.
    dialog.onclose = () => entering && dialog.showModal();
    dialog.showModal();
  });
  return entering;
};

document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault();
  place.focus();
});
addEventListener("hashchange", open);
open();
