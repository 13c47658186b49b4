/** The sessions of push consumers: what they do, and resuming parked ones. */

import { change, get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { count, visible } from '../format.js';
import { badge, button, groupLink, moment, pager, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const KINDS = { active: 'good', retrying: 'warn', parked: 'bad' };

export default function showSessions(page) {
  const query = { state: page.query.get('state') ?? '', group: page.query.get('group') ?? '', after: page.query.get('after') ?? '' };
  const pages = h('div', null);
  const list = table({
    caption: 'Push sessions',
    key: (each) => each.name,
    empty: 'No such sessions. A consumer that is pushed messages has one.',
    columns: [
      { title: 'Session', cell: (each) => h('code', null, visible(each.name)), sort: (each) => each.name },
      { title: 'State', cell: (each) => [badge(each.state, KINDS[each.state] ?? 'plain'), each.connected ? '' : ' not connected'], sort: (each) => each.state },
      { title: 'Reason', cell: (each) => visible(each.reason || '–') },
      { title: 'Since', cell: (each) => moment(each.since_ms) },
      { title: 'Group', cell: (each) => [groupLink(each.group), h('span', { class: 'below' }, visible(each.mode))] },
      { title: 'Topics', cell: (each) => each.topics.map((topic) => [topicLink(topic), ' ']) },
      { title: 'In flight', kind: 'number', cell: (each) => count(each.in_flight), sort: (each) => each.in_flight },
      { title: 'Delivered', kind: 'number', cell: (each) => count(each.delivered), sort: (each) => each.delivered },
      { title: 'Redelivered', kind: 'number', cell: (each) => count(each.redelivered), sort: (each) => each.redelivered },
      { title: 'Resume', kind: 'actions', cell: (each) => (each.state === 'parked' ? button('Resume', () => resume(each), { 'aria-label': `Resume ${visible(each.name)}` }) : '') },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'state', label: 'State', kind: 'select', options: [['', 'Every state'], 'active', 'retrying', 'parked'], value: query.state }),
    field({ name: 'group', label: 'Group', kind: 'search', value: query.group }),
  );

  function apply() {
    Object.assign(query, { state: filters.elements.state.value, group: filters.elements.group.value, after: '' });
    setAddress(query);
    reading.refresh();
  }

  page.show(page.heading('Push sessions'), filters, list.element, pages);
  const reading = page.watch({
    everyMs: 4000,
    load: (signal) => get('/push-sessions', query, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(query.after, found.next, (after) => withQuery('/sessions', { ...query, after })));
    },
  });
}

function resume(session) {
  openDialog({
    title: `Resume ${visible(session.name)}`,
    submit: 'Resume',
    body: consequences(
      `It was parked because: ${visible(session.reason)}`,
      'Messages are pushed to it again, from the one where it stopped. Without a cure of the reason it is parked again.',
    ),
    run: () => change('POST', path`/push-sessions/${session.name}/resume`),
    done: `${session.name} is resumed.`,
  });
}
