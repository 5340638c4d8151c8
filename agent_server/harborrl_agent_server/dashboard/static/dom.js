// Elements from values. Text is always set as text, so nothing that a policy writes can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** Sets an element's text only if it differs: a text that stays can stay selected. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

const followed = new WeakMap();

/**
 * Makes the children of `parent` follow `items`: a child is made once for each key, updated in place and moved only
 * when its place has changed, so that focus and selection survive.
 */
export function follow(parent, items, key, create, update) {
  if (!followed.has(parent)) followed.set(parent, new Map());
  const known = followed.get(parent);
  const wanted = new Set(items.map(key));
  for (const [name, child] of known) {
    if (wanted.has(name)) continue;
    child.remove();
    known.delete(name);
  }
  let at = parent.firstElementChild;
  for (const item of items) {
    let child = known.get(key(item));
    if (!child) known.set(key(item), (child = create(item)));
    update(child, item);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}

const SHAPES = {
  graded: [["circle", { cx: 8, cy: 8, r: 6.5 }], ["path", { d: "M5 8.2l2.2 2.2L11.2 6" }]],
  limit: [["path", { d: "M4 2.5h8M4 13.5h8M5 2.5c0 3 6 3.5 6 5.5s-6 2.5-6 5.5M11 2.5c0 3-6 3.5-6 5.5s6 2.5 6 5.5" }]],
  fault: [["path", { d: "M8 2L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.4" }]],
  aborted: [["circle", { cx: 8, cy: 8, r: 6.5 }], ["path", { d: "M3.6 12.4l8.8-8.8" }]],
  infra: [["rect", { x: 2, y: 2, width: 12, height: 12, rx: 2 }], ["path", { d: "M5.5 5.5l5 5M10.5 5.5l-5 5" }]],
  ok: [["circle", { cx: 8, cy: 8, r: 5, fill: "currentColor" }]],
  waiting: [["circle", { cx: 8, cy: 8, r: 5.5, "stroke-dasharray": "3 2.6" }]],
};

export function icon(name) {
  const parts = (SHAPES[name] ?? SHAPES.ok).map(([tag, attributes]) => s(tag, attributes));
  return s(
    "svg",
    {
      class: "icon", viewBox: "0 0 16 16", fill: "none", stroke: "currentColor", "stroke-width": 1.6,
      "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true",
    },
    parts,
  );
}
