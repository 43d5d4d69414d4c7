/** Elements made of data. Text is only ever set as text: nothing here can become markup. */

/**
 * An element with properties and children; null, undefined and false children are left out.
 *
 * `class`, `aria-*`, `data-*` and other attributes by their names, `onclick` and the like as listeners, true and false
 * as present and absent, `vars` as custom properties of CSS.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  append(element, children);
  return element;
}

/** As `h`, for the elements of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
  else if (name === "value") element.value = value;
  else element.setAttribute(name, value === true ? "" : value);
}

function append(element, children) {
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
}

/** A table: `columns` are names, or `{name, numeric}`; `rows` are lists of cells. */
export function table(caption, columns, rows) {
  const heads = columns.map(column => (typeof column === "string" ? { name: column } : column));
  const cell = (content, place) => h("td", { class: heads[place].numeric && "number" }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map(({ name, numeric }) => h("th", { scope: "col", class: numeric && "number" }, name)))),
      h("tbody", {}, rows.map(row => h("tr", {}, row.map(cell))))));
}

/** A list of terms with what they are; pairs whose second part is null are left out. */
export function facts(pairs, kind = "facts") {
  return h("dl", { class: kind },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)))));
}

/** A select with its label; `choices` are values, or pairs of value and text. */
export function select(label, name, choices, chosen, properties = {}) {
  const options = choices.map(choice => (Array.isArray(choice) ? choice : [choice, choice]));
  return h("label", {}, h("span", {}, label),
    h("select", { name, ...properties },
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
}

/** What a failed request says, as a paragraph that is read out. */
export function fault(error) {
  return h("p", { class: "fault", role: "alert" }, error.message);
}
