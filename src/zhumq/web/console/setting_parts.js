/** What the pages of settings share. */

import { h } from './dom.js';
import { bytes, duration } from './format.js';
import { badge } from './parts.js';

const ORIGINS = {
  broker: 'the broker',
  'all-brokers': 'all brokers',
  file: 'the broker’s file',
  default: 'default',
};

/** Where the value of a setting comes from. `own` is what it is called if it was set for what the page is about. */
export function originBadge(origin, own) {
  return origin === 'own' ? badge(own, 'accent') : badge(ORIGINS[origin] ?? origin, 'plain');
}

/** A time or a size in words; nothing for other values. */
export function inWords(name, value) {
  const number = Number(value);
  if (value === null || value === '' || !Number.isFinite(number) || number < 0) return null;
  if (name.endsWith('.ms') && number >= 1000 && number < 1e15) return h('span', { class: 'words' }, duration(number));
  if (name.endsWith('.bytes') && number >= 1024) return h('span', { class: 'words' }, bytes(number));
  return null;
}
