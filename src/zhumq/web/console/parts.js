/** Small parts that pages are made of. */

import { Problem } from './api.js';
import { h, path } from './dom.js';
import { count, percent, relative, time, visible } from './format.js';

const NOTE_MS = 6000;

/** A short message at the edge of the page, which is also read aloud. */
export function note(text) {
  const element = h('div', { class: 'note' }, text);
  document.getElementById('notes').append(element);
  setTimeout(() => element.remove(), NOTE_MS);
}

/** What went wrong, where it went wrong. */
export function problemBox(problem) {
  const text = problem instanceof Problem ? sentence(problem.message) : String(problem);
  return h('p', { class: 'problem', role: 'alert' }, visible(text));
}

/** A section of a page with its heading. */
export function section(title, attributes, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`;
  return h('section', { 'aria-labelledby': id, ...attributes }, h('h2', { id }, title), ...children);
}

/** A state as a word with a colour: the word says it all. */
export function badge(text, kind = 'plain') {
  return h('span', { class: `badge ${kind}` }, text);
}

/** Facts with their names, in one line where there is room. */
export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(Boolean).map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

/** A name that is a link to its page. */
export function topicLink(name) {
  return h('a', { href: path`/topics/${name}`, class: 'name' }, visible(name));
}

export function groupLink(name) {
  return h('a', { href: path`/groups/${name}`, class: 'name' }, visible(name));
}

export function brokerLink(number) {
  return h('a', { href: path`/cluster/brokers/${number}`, title: 'Its settings' }, String(number));
}

/** Where a message is: "orders 3 @ 17". */
export function messageLink(topic, partition, offset, text = null) {
  const address = `${path`/topics/${topic}/messages`}?partition=${partition}&offset=${offset}`;
  return h('a', { href: address }, text ?? `${partition} @ ${count(offset)}`);
}

/** A time, with how long ago it is. */
export function moment(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || milliseconds < 0) return '–';
  // A line breaks between the day and the time, and not within.
  const parts = time(milliseconds).split(' ').map((each) => h('span', { class: 'unbroken' }, each));
  return h('time', { datetime: iso(milliseconds), title: relative(milliseconds) }, parts.flatMap((each, index) => (index ? [' ', each] : [each])));
}

/** How full something is. */
export function fullness(share, label) {
  const meter = h('meter', { min: 0, max: 1, low: 0.8, high: 0.9, optimum: 0, value: share, 'aria-label': label });
  return h('span', { class: 'used' }, meter, percent(share));
}

export function button(text, onclick, attributes) {
  return h('button', { type: 'button', onclick, ...attributes }, text);
}

/** Nothing is there yet, and how something would come. */
export function emptyText(...children) {
  return h('p', { class: 'empty' }, ...children);
}

/** Links to the first and the next page of a list. `address` makes one from a cursor. */
export function pager(after, next, address) {
  return h(
    'p',
    { class: 'pager' },
    after ? h('a', { href: address('') }, 'First page') : null,
    next ? h('a', { href: address(next), rel: 'next' }, 'Next page') : null,
  );
}

/** Put a text on the clipboard, and say so. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    note(`Copied: ${what}.`);
  } catch {
    note('The browser does not let this page write to the clipboard.');
  }
}

/** A text as a sentence: problems begin with a small letter, and end without a full stop. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

function iso(milliseconds) {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}
