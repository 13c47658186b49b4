/** The audit log: who did what, from where, allowed or denied; newest first, and live. */

import { get } from '../api.js';
import { h, patch, withQuery } from '../dom.js';
import { field } from '../forms.js';
import { count, plural, visible } from '../format.js';
import { badge, button, emptyText, moment, pager } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const FILTERS = ['principal', 'resource', 'result'];
const RESULTS = [['', 'Allowed and denied'], ['allowed', 'Allowed'], ['denied', 'Denied']];
const PAGE_ROWS = 100;
const LIVE_MS = 1500;
const SLOW_MS = 15_000;
const ABOUT = 'Logins, refusals and changes, as the brokers keep them. Allowed reads and writes of messages are not among them.';
const NOTHING = 'No such lines. Brokers write logins, refusals and changes; without authentication and an authorizer there are none.';

export default function showAudit(page) {
  const query = { after: page.query.get('after') ?? '' };
  for (const name of FILTERS) query[name] = page.query.get(name) ?? '';
  const pages = h('div', null);
  const status = h('p', { class: 'status', 'aria-live': 'polite' });
  const list = table({
    caption: 'Audit log',
    key: (each) => each.id,
    empty: NOTHING,
    columns: [
      { title: 'When', cell: (each) => moment(each.time_ms) },
      { title: 'Result', cell: result },
      { title: 'Who', cell: (each) => h('bdi', { class: 'clip', title: visible(each.principal) }, visible(each.principal)) },
      { title: 'From', cell: (each) => visible(each.host) },
      { title: 'What', cell: (each) => what(each) },
      { title: 'To', cell: (each) => h('bdi', { class: 'name' }, visible(each.resource)) },
      { title: 'Broker', kind: 'number', cell: (each) => each.broker },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'principal', label: 'User', kind: 'search', value: query.principal, placeholder: 'alice' }),
    field({ name: 'resource', label: 'Resource', kind: 'search', value: query.resource, placeholder: 'topic:orders' }),
    field({ name: 'result', label: 'Result', kind: 'select', options: RESULTS, value: query.result }),
  );
  // The newest page changes by itself; older ones do not.
  const live = button('Live', toggleLive, { 'aria-pressed': 'false' });
  let reading = null;

  function apply() {
    for (const name of FILTERS) query[name] = filters.elements[name].value;
    query.after = '';
    setAddress(query);
    reading.refresh();
  }

  function toggleLive() {
    const isLive = live.getAttribute('aria-pressed') !== 'true';
    live.setAttribute('aria-pressed', String(isLive));
    if (isLive && query.after) {
      query.after = '';
      setAddress(query);
    }
    patch(status, isLive ? 'Lines are shown as they are written.' : null);
    follow(isLive);
  }

  function follow(isLive) {
    reading?.stop();
    reading = page.watch({
      everyMs: isLive ? LIVE_MS : SLOW_MS,
      load: (signal) => get('/audit', { ...query, limit: PAGE_ROWS }, { signal, isKept: !query.after }),
      show(found) {
        list.update(found.items);
        patch(
          pages,
          found.next && found.items.length === 0 ? emptyText('Nothing among the lines that were looked at: older ones are on the next page.') : null,
          pager(query.after, found.next, (after) => withQuery('/audit', { ...query, after })),
        );
      },
    });
  }

  page.show(page.heading('Audit log', { actions: [live] }), emptyText(ABOUT), filters, status, list.element, pages);
  follow(false);
}

function result(line) {
  if (line.dropped) return badge('dropped', 'warn');
  return line.allowed ? badge('allowed', 'good') : badge('denied', 'bad');
}

function what(line) {
  if (line.dropped) return `${plural(line.dropped, 'more event')}, not written`;
  return [
    visible(line.action),
    line.operation ? h('span', { class: 'words' }, visible(line.operation)) : null,
    line.count > 1 ? h('span', { class: 'words' }, `${count(line.count)} times`) : null,
  ];
}
