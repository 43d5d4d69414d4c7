/** Plotly's charts, in the page's colours and under its policy. */

import { h } from "./dom.js";

const TITLES = {
  history: "Trials in their order",
  front: "Pareto front",
  quality: "Speed and quality",
  importance: "Importance of the settings",
  slices: "Each setting by itself",
  threads: "Thread scaling",
  variants: "Variants",
};
const WIDE = new Set(["slices", "threads", "variants"]);
/** Two of these stand side by side. */
const SMALL = new Set(["history", "front", "quality"]);
let loading = null;

/** Load plotly once; rejects where it is not served. */
function plotly() {
  loading ??= load();
  return loading;
}

async function load() {
  // The policy refuses style attributes and style elements. What plotly sets as an attribute is set through the CSSOM,
  // which is allowed; the element that it brings for maps is not needed.
  const { setAttribute } = Element.prototype;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  document.head.appendChild = function (node) {
    return node instanceof HTMLStyleElement ? node : Node.prototype.appendChild.call(this, node);
  };
  try {
    await import("/plotly.js");
  } finally {
    delete document.head.appendChild;
  }
  return globalThis.Plotly;
}

/** Sections for charts by name, with their final heights, so that nothing moves when they are drawn. */
export function places(charts) {
  return Object.entries(charts).map(([name, { layout }]) => {
    const wide = WIDE.has(name);
    const place = h("div", {
      class: wide ? "chart wide" : "chart", id: `chart-${name}`, role: "img", "aria-label": layout.title?.text ?? TITLES[name],
      vars: { "--height": `${layout.height}px` },
    });
    return h("figure", { class: SMALL.has(name) ? null : "whole", "aria-labelledby": `title-${name}` },
      h("h3", { id: `title-${name}` }, layout.title?.text ?? TITLES[name]),
      wide ? h("div", { class: "chart-scroll", tabindex: "0", role: "region", "aria-label": `${TITLES[name]}, scrolls sideways` }, place) : place);
  });
}

/** Draw charts into their places, again whenever the colours change, until `signal`. */
export async function draw(charts, signal) {
  const library = await plotly();
  if (signal.aborted) return;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const all = Object.entries(charts);
  const drawn = () => Promise.all(all.map(([name, { data, layout }]) =>
    library.react(`chart-${name}`, data, dressed(layout), { responsive: true, displayModeBar: false })));
  signal.addEventListener("abort", () => {
    for (const [name] of all) {
      const place = document.getElementById(`chart-${name}`);
      if (place) library.purge(place);
    }
  });
  await drawn();
  dark.addEventListener("change", drawn, { signal });
}

function dressed(layout) {
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const [paper, ink, quiet, line] = ["--paper", "--ink", "--quiet", "--line"].map(style);
  const narrow = innerWidth < 640;
  const axes = {};
  for (const name of Object.keys(layout).filter(name => /^[xy]axis/.test(name))) {
    axes[name] = {
      ...layout[name], automargin: true, gridcolor: line, linecolor: line, zerolinecolor: line, fixedrange: true,
      tickfont: { size: 12, color: quiet }, title: { ...layout[name].title, font: { size: 12, color: quiet } },
    };
  }
  return {
    ...layout, ...axes, title: undefined, bargap: 0.4, paper_bgcolor: paper, plot_bgcolor: paper, dragmode: false,
    margin: { ...layout.margin, t: layout.annotations ? 40 : 16, l: narrow ? 48 : 64, r: 16, b: 48 },
    legend: { orientation: "h", y: -0.16, yanchor: "top", x: 0, font: { size: 12 } },
    hoverlabel: { bgcolor: paper, bordercolor: line, font: { color: ink, size: 12 }, align: "left" },
    font: { size: 13, color: ink, family: getComputedStyle(document.body).fontFamily },
    annotations: layout.annotations?.map(one => ({ ...one, font: { size: 13, color: ink } })),
  };
}
