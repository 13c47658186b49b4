/** Bytes of messages: as text, as indented JSON, or in hexadecimal. */

import { h, patch, path, withQuery } from './dom.js';
import { bytes, oneLine, visible } from './format.js';

const HEX_BYTES_MAX = 16 * 1024; // that are shown; more would be slow, and no reader sees them
const ROW_BYTES = 16;

/** @typedef {{size: number, text?: string, base64?: string, is_cut?: boolean, decoded?: Object}} Content as the API has it */

/** The bytes of a content, as far as they were sent. */
export function contentBytes(content) {
  if (content.text !== undefined) return new TextEncoder().encode(content.text);
  return Uint8Array.from(atob(content.base64), (each) => each.charCodeAt(0));
}

/** A content on one line, for lists. */
export function preview(content, charactersMax) {
  if (content === null) return h('span', { class: 'absent' }, 'null');
  if (content.decoded?.text !== undefined) return oneLine(content.decoded.text, charactersMax);
  if (content.text !== undefined) return oneLine(content.text, charactersMax);
  const shown = contentBytes(content).slice(0, 24);
  return h('span', { class: 'absent' }, `${hexOf(shown)}${content.size > shown.length ? ' …' : ''}`);
}

/** A content in full, with a switch between the views that it has. */
export function contentView(content, label) {
  if (content === null) return h('p', { class: 'absent' }, 'null');
  const isText = content.text !== undefined;
  const json = isText && !content.is_cut ? indentJson(content.text) : null;
  const { decoded } = content;
  const views = [
    decoded?.text === undefined ? null : ['Decoded', () => h('pre', { tabindex: 0, 'aria-label': `${label} decoded` }, visible(indentJson(decoded.text) ?? decoded.text))],
    json === null ? null : ['JSON', () => h('pre', { tabindex: 0, 'aria-label': `${label} as JSON` }, visible(json))],
    isText ? ['Text', () => h('pre', { tabindex: 0, 'aria-label': `${label} as text` }, visible(content.text))] : null,
    ['Hex', () => h('pre', { tabindex: 0, 'aria-label': `${label} in hexadecimal` }, hexRows(contentBytes(content)))],
  ].filter(Boolean);
  const shown = h('div', null);
  const buttons = views.map(([name, make]) => h('button', { type: 'button', 'aria-pressed': 'false', onclick: () => choose(name, make) }, name));

  function choose(name, make) {
    for (const each of buttons) each.setAttribute('aria-pressed', String(each.textContent === name));
    patch(shown, make());
  }

  choose(...views[0]);
  const cut = content.is_cut ? `Only the beginning is shown; it has ${bytes(content.size)}.` : null;
  return h(
    'div',
    { class: 'content' },
    decoded ? ofSchema(decoded) : null,
    h('div', { class: 'views', role: 'group', 'aria-label': `How the ${label.toLowerCase()} is shown` }, buttons),
    shown,
    cut ? h('p', { class: 'hint' }, cut) : null,
  );
}

/** Which schema a content was written with, and why it is not shown decoded. */
function ofSchema({ subject, version, schema_id: id, type, text, reason, is_cut: isCut }) {
  const address = withQuery(path`/schemas/${subject}`, { version: String(version) });
  return [
    h('p', { class: 'schema' }, `${type}: `, h('a', { href: address }, `${visible(subject)} version ${version}`), `, schema id ${id}`),
    text === undefined ? h('p', { class: 'hint' }, `It is not decoded: ${visible(reason)}.`) : null,
    isCut ? h('p', { class: 'hint' }, 'Only the beginning is shown decoded.') : null,
  ];
}

/** JSON with line breaks and indents, or null if it is none. Numbers stay as they are written: 2^63 is not rounded. */
export function indentJson(text) {
  try {
    if (typeof JSON.parse(text) !== 'object') return null;
  } catch {
    return null;
  }
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  return tokens.map((token, index) => {
    const isEmpty = index > 0 && '{['.includes(tokens[index - 1]);
    switch (token) {
      case '{':
      case '[':
        depth += 1;
        return '}]'.includes(tokens[index + 1]) ? token : token + line();
      case '}':
      case ']':
        depth -= 1;
        return isEmpty ? token : line() + token;
      case ',':
        return token + line();
      case ':':
        return ': ';
      default:
        return token;
    }
  }).join('');
}

function hexRows(content) {
  const rows = [];
  for (let at = 0; at < Math.min(content.length, HEX_BYTES_MAX); at += ROW_BYTES) {
    const row = content.slice(at, at + ROW_BYTES);
    const text = [...row].map((each) => (each >= 0x20 && each < 0x7f ? String.fromCharCode(each) : '.')).join('');
    rows.push(`${at.toString(16).padStart(8, '0')}  ${hexOf(row).padEnd(ROW_BYTES * 3)} ${text}`);
  }
  if (content.length > HEX_BYTES_MAX) rows.push(`… ${bytes(content.length - HEX_BYTES_MAX)} more`);
  return rows.join('\n');
}

function hexOf(content) {
  return [...content].map((each) => each.toString(16).padStart(2, '0')).join(' ');
}
