/** Transactional ids, open and prepared transactions with their age, and those that hang. */

import { change, get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { count, duration, visible } from '../format.js';
import { badge, button, messageLink, pager, section, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const STATES = ['Empty', 'Ongoing', 'PrepareCommit', 'PrepareAbort', 'CompleteCommit', 'CompleteAbort', 'PrepareEpochFence', 'Dead'];
const HANGING = 'A transaction hangs when its coordinator has forgotten it: consumers of committed messages wait before it for ever.'
  + ' To find them, every partition is asked.';

export default function showTransactions(page) {
  const query = { state: page.query.get('state') ?? '', pattern: page.query.get('pattern') ?? '', after: page.query.get('after') ?? '' };
  const pages = h('div', null);
  const list = table({
    caption: 'Transactional ids',
    key: (each) => each.transactional_id,
    empty: 'No such transactional ids. A producer with a transactional.id has one here from its first transaction on.',
    columns: [
      { title: 'Transactional id', kind: 'wide', cell: (each) => h('a', { href: path`/transactions/${each.transactional_id}`, class: 'name' }, visible(each.transactional_id)) },
      { title: 'State', cell: (each) => transactionBadge(each.state), sort: (each) => each.state },
      { title: 'Open for', kind: 'number', cell: (each) => duration(each.age_ms), sort: (each) => each.age_ms },
      { title: 'Kind', cell: (each) => (each.is_two_phase ? 'two-phase' : 'ordinary') },
      { title: 'Producer id', cell: (each) => each.producer_id },
      { title: 'Coordinator', cell: (each) => `broker ${each.coordinator}` },
    ],
  });
  const hanging = table({
    caption: 'Hanging transactions',
    key: (each) => `${each.topic} ${each.partition} ${each.start_offset}`,
    empty: 'None: no transaction holds back consumers without a coordinator that will end it.',
    columns: [
      { title: 'Topic', cell: (each) => topicLink(each.topic) },
      { title: 'Begins at', cell: (each) => messageLink(each.topic, each.partition, each.start_offset) },
      { title: 'Producer id', cell: (each) => each.producer_id },
      { title: 'Last message', kind: 'number', cell: (each) => `${duration(each.age_ms)} ago` },
      { title: 'Abort', kind: 'actions', cell: (each) => button('Abort', () => abortHanging(each), { class: 'danger' }) },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'pattern', label: 'Expression', kind: 'search', value: query.pattern, placeholder: 'orders-.*' }),
    field({ name: 'state', label: 'State', kind: 'select', options: [['', 'Every state'], ...STATES], value: query.state }),
  );
  function apply() {
    Object.assign(query, { state: filters.elements.state.value, pattern: filters.elements.pattern.value, after: '' });
    setAddress(query);
    reading.refresh();
  }
  const found = h('div', null);
  const look = button('Look for hanging transactions', () => {
    patch(found, hanging.element);
    page.watch({ everyMs: 30_000, load: (signal) => get('/hanging-transactions', null, { signal }), show: (items) => hanging.update(items) });
    look.disabled = true;
  });

  page.show(
    page.heading('Transactions'),
    filters,
    list.element,
    pages,
    section('Hanging transactions', null, h('p', null, HANGING), look, found),
  );
  const reading = page.watch({
    everyMs: 5000,
    load: (signal) => get('/transactions', query, { signal }),
    show(answer) {
      list.update(answer.items);
      patch(pages, pager(query.after, answer.next, (after) => withQuery('/transactions', { ...query, after })));
    },
  });
}

export function transactionBadge(state) {
  if (state === 'Ongoing') return badge(state, 'accent');
  return badge(state, state.startsWith('Prepare') ? 'warn' : 'plain');
}

function abortHanging({ topic, partition, start_offset: start }) {
  openDialog({
    title: 'Abort the hanging transaction',
    submit: 'Abort it',
    isDanger: true,
    body: consequences(
      `Its messages in ${topic}, partition ${partition}, from offset ${count(start)} on are never delivered to consumers of committed messages.`,
      'Consumers go on behind it.',
    ),
    run: () => change('POST', '/hanging-transactions/abort', { topic, partition, start_offset: start }),
    done: 'The transaction is aborted.',
  });
}
