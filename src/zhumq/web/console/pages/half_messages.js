/** Half messages that have not ended, and deciding on them in place of their producers. */

import { change, get } from '../api.js';
import { contentView } from '../content.js';
import { h, patch, path } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { count, visible } from '../format.js';
import { headerTable } from '../message_list.js';
import { badge, button, emptyText, facts, moment, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const KINDS = { pending: 'accent', committed: 'good', failed: 'bad', 'given-up': 'bad' };

export default function showHalfMessages(page) {
  const query = { group: page.query.get('group') ?? '', state: page.query.get('state') ?? '', limit: 200 };
  const more = h('div', null);
  const list = table({
    caption: 'Half messages',
    key: (each) => each.id,
    empty: 'No half message waits for its end. A producer prepares one, consumers do not see it, and the producer commits it or rolls it back.',
    columns: [
      { title: 'Id', cell: (each) => h('code', null, visible(each.id)) },
      { title: 'State', cell: (each) => badge(each.state, KINDS[each.state] ?? 'plain'), sort: (each) => each.state },
      { title: 'Topic', cell: (each) => topicLink(each.topic) },
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'Producer group', cell: (each) => visible(each.group) },
      { title: 'Prepared', cell: (each) => moment(each.prepared_ms), sort: (each) => each.prepared_ms },
      { title: 'Checks', kind: 'number', cell: (each) => count(each.checks), sort: (each) => each.checks },
      { title: 'Reason', cell: (each) => visible(each.reason || '–') },
      { title: 'Decide', kind: 'actions', cell: (each) => button('Show …', () => decide(each), { 'aria-label': `Show ${visible(each.id)}` }) },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'group', label: 'Producer group', kind: 'search', value: query.group }),
    field({ name: 'state', label: 'State', kind: 'select', options: [['', 'Every state'], 'pending', 'committed', 'failed', 'given-up'], value: query.state }),
  );
  function apply() {
    Object.assign(query, { group: filters.elements.group.value, state: filters.elements.state.value });
    setAddress({ group: query.group, state: query.state });
    reading.refresh();
  }
  page.show(page.heading('Half messages'), filters, list.element, more);
  const reading = page.watch({
    everyMs: 4000,
    load: (signal) => get('/half-messages', query, { signal }),
    show(found) {
      list.update(found.items);
      patch(more, found.has_more ? emptyText(`Only the ${count(query.limit)} oldest are shown.`) : null);
    },
  });
}

/** Show a half message with its body, and what can be decided. */
async function decide(entry) {
  const found = await get(path`/half-messages/${entry.id}`, null, { isKept: false });
  const dialog = openDialog({
    title: `Half message ${visible(entry.id)}`,
    submit: 'Commit',
    isWide: true,
    body: [
      facts([
        ['State', badge(entry.state, KINDS[entry.state] ?? 'plain')],
        ['Topic', visible(entry.topic)],
        ['Prepared', moment(entry.prepared_ms)],
        ['Checks', count(entry.checks)],
      ]),
      consequences(
        'Its producer decides by itself when it is asked: decide here only if it does not, and you know what it would have.',
        'Commit: consumers get the message. Roll back: it is deleted. Neither can be undone.',
      ),
      found.has_body ? [
        found.key === null ? null : h('div', null, h('h3', null, 'Key'), contentView(found.key, 'Key')),
        found.headers.length ? h('div', null, h('h3', null, 'Headers'), headerTable(found.headers)) : null,
        h('div', null, h('h3', null, 'Value'), contentView(found.value, 'Value')),
      ] : emptyText('The body is not shown: you may not read the topic, or the half message has ended.'),
    ],
    more: button('Roll back', rollBack, { class: 'danger left' }),
    run: () => change('POST', path`/half-messages/${entry.id}/commit`),
    done: 'The half message is committed.',
  });

  function rollBack() {
    dialog.close();
    openDialog({
      title: `Roll back ${visible(entry.id)}`,
      submit: 'Roll back',
      isDanger: true,
      body: consequences('The half message is deleted, and never delivered. This cannot be undone.'),
      run: () => change('POST', path`/half-messages/${entry.id}/rollback`),
      done: 'The half message is rolled back.',
    });
  }
}
