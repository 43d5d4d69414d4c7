/** Buttons that copy a profile in the form that another program takes. */

import { text } from "./api.js";
import { h } from "./dom.js";

/** What opens to one button a format; the text is shown, and copied where the browser allows it. */
export function exporter(profile, formats) {
  const shown = h("pre", { tabindex: "0", hidden: true, "aria-label": "Exported profile" });
  const said = h("p", { class: "quiet", role: "status" });
  const buttons = formats.map(format =>
    h("button", { type: "button", "aria-pressed": "false", onclick: event => give(format, event.currentTarget) }, format));

  async function give(format, button) {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    try {
      const made = await text(`/v1/profiles/${encodeURIComponent(profile)}?format=${encodeURIComponent(format)}`);
      shown.textContent = made;
      shown.hidden = false;
      said.textContent = await copied(made) ? `Copied for ${format}.` : "Select and copy it: this browser does not let a page do it.";
    } catch (error) {
      shown.hidden = true;
      said.textContent = error.message;
    }
  }

  return h("details", { class: "export" },
    h("summary", {}, "Export"),
    h("div", { class: "buttons", role: "group", "aria-label": "Copy as" }, buttons), said, shown);
}

async function copied(made) {
  try {
    await navigator.clipboard.writeText(made);
    return true;
  } catch {
    return false;
  }
}
