/** Elements of a page. Everything is written as text: a name or a message can never become markup. */

const SVG_NAMESPACE = 'http://www.w3.org/2000/svg';
// Attributes that say what a field holds now; as attributes they would only say what it held at first.
const PROPERTIES = new Set(['value', 'checked', 'selected', 'indeterminate']);

/**
 * An element. `h('a', {href: '/topics', onclick: follow}, 'Topics')`
 * @param {string} tag
 * @param {?Object<string, *>} attributes functions are listeners; null, undefined and false are left out
 * @param {...*} children nodes, texts, numbers, or arrays of them; null and false are left out
 */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function build(element, attributes, children) {
  append(element, children);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    // An address that a message or a name could choose must not run a script.
    else if (name === 'href' && !/^[/#?]/.test(value)) throw new Error(`not an address of the console: ${value}`);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Make these the children of an element, and keep those that are already the same: what has the focus, is selected
 * or scrolled stays as it is. The listeners of what stays are the old ones: they must not hold what can change.
 */
export function patch(element, ...children) {
  const made = h('div', null, ...children).childNodes;
  const wanted = [...made];
  wanted.forEach((node, index) => {
    const present = element.childNodes[index];
    if (present === undefined) element.append(node);
    else if (!present.isEqualNode(node)) present.replaceWith(node);
  });
  while (element.childNodes.length > wanted.length) element.lastChild.remove();
}

/**
 * Make the children of an element those of some items, each of which has a key. Children of keys that stay are
 * updated where they are.
 * @template T
 * @param {Element} element
 * @param {T[]} items
 * @param {{key: (item: T) => string, create: (item: T) => Element, update: (child: Element, item: T) => void}} how
 */
export function keyed(element, items, { key, create, update }) {
  const present = new Map([...element.children].map((child) => [child.dataset.key, child]));
  let place = element.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = present.get(name);
    if (child === undefined) {
      child = create(item);
      child.dataset.key = name;
    } else {
      present.delete(name);
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else element.insertBefore(child, place);
  }
  for (const child of present.values()) child.remove();
}

/** The address of a page or a request: `path`/topics/${name}``; every value is encoded. */
export function path(parts, ...values) {
  return parts.reduce((text, part, index) => text + encodeURIComponent(values[index - 1]) + part);
}

/** The same address with other parameters; those that are empty are left out. */
export function withQuery(address, query) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== '' && each !== false) given.append(name, each);
    }
  }
  const text = given.toString();
  return text ? `${address}?${text}` : address;
}
