/** The list of groups of every kind, each with its lag. */

import { get } from '../api.js';
import { h, patch, withQuery } from '../dom.js';
import { field } from '../forms.js';
import { count } from '../format.js';
import { behind, kindOf, stateBadge } from '../group_parts.js';
import { badge, groupLink, pager, problemBox } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const PAGE_ROWS = 50;
const TYPING_MS = 200;
const LAG_MS = 15_000;
const PARKED_MAX = 1000;
const TYPES = [['', 'Every kind'], ['classic', 'Classic'], ['consumer', 'Consumer (KIP-848)'], ['share', 'Share']];
const STATES = [['', 'Every state'], ['stable', 'Stable'], ['empty', 'Empty'], ['dead', 'Dead']];

export default function showGroups(page) {
  const query = {};
  for (const name of ['search', 'type', 'state', 'after']) query[name] = page.query.get(name) ?? '';
  const pages = h('div', null);
  const warning = h('div', null);
  let lags = new Map();
  let parked = new Set(); // groups of which a session is parked
  let found = null;
  const list = table({
    caption: 'Groups',
    key: (each) => each.group,
    empty: 'No such groups. A group is there when the first of its consumers joins.',
    columns: [
      { title: 'Group', kind: 'wide', cell: (each) => groupLink(each.group) },
      { title: 'Kind', cell: (each) => kindOf(each), sort: (each) => each.type },
      { title: 'State', cell: (each) => stateBadge(each.state), sort: (each) => each.state },
      { title: 'Members', kind: 'number', cell: (each) => count(lags.get(each.group)?.members), sort: (each) => lags.get(each.group)?.members },
      { title: 'Lag', kind: 'number', cell: (each) => count(lags.get(each.group)?.lag), sort: (each) => lags.get(each.group)?.lag },
      { title: 'Behind by', kind: 'number', cell: (each) => behind(lags.get(each.group)?.lag_seconds), sort: (each) => lags.get(each.group)?.lag_seconds },
      { title: 'Note', cell: (each) => trouble(lags.get(each.group), parked.has(each.group)) },
    ],
  });
  let typing = null;
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: onInput },
    field({ name: 'search', label: 'Search', kind: 'search', value: query.search, placeholder: 'part of a name' }),
    field({ name: 'type', label: 'Kind', kind: 'select', options: TYPES, value: query.type }),
    field({ name: 'state', label: 'State', kind: 'select', options: STATES, value: query.state }),
  );

  function onInput() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      for (const name of ['search', 'type', 'state']) query[name] = filters.elements[name].value;
      query.after = '';
      setAddress(query);
      reading.refresh();
    }, TYPING_MS);
  }

  page.show(page.heading('Groups'), filters, warning, list.element, pages);
  const reading = page.watch({
    kinds: ['group'],
    everyMs: 15_000,
    load: (signal) => get('/groups', { ...query, limit: PAGE_ROWS }, { signal }),
    show(answer) {
      const isOther = found !== null && answer !== found;
      found = answer;
      list.update(found.items);
      patch(warning, found.warning ? problemBox(found.warning) : null);
      patch(pages, pager(query.after, found.next, (after) => withQuery('/groups', { ...query, after })));
      if (isOther) lagging.refresh();
    },
  });
  // The list is there before its lags, which take the brokers longer.
  const lagging = page.watch({
    everyMs: LAG_MS,
    load: (signal) => get('/group-lags', { ...query, limit: PAGE_ROWS }, { signal }),
    show(answer) {
      lags = new Map([...answer.items, ...answer.left_out].map((each) => [each.group, each]));
      if (found !== null) list.update(found.items);
    },
  });
  page.watch({
    everyMs: LAG_MS,
    load: (signal) => get('/push-sessions', { state: 'parked', limit: PARKED_MAX }, { signal }),
    show(answer) {
      parked = new Set(answer.items.map((each) => each.group));
      if (found !== null) list.update(found.items);
    },
    fail() {}, // A broker may be without push.
  });
}

function trouble(lag, isParked) {
  if (lag?.reason) return lag.reason;
  if (isParked) return [badge('a session is parked', 'bad'), ' ', h('a', { href: '/sessions?state=parked' }, 'Resume')];
  return lag?.idle_partitions ? badge('messages wait, no consumer', 'warn') : '';
}
