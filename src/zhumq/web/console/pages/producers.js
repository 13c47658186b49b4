/** Who writes what at which rate: producers of every kind, and the transactions that they have open. */

import { get, Problem } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { field } from '../forms.js';
import { count, duration, plural, relative, visible } from '../format.js';
import { byteRate, rate } from '../history.js';
import { badge, pager, section, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';
import { transactionBadge } from './transactions.js';

const ROWS_MAX = 1000; // pairs of a producer and a partition that one page adds up
const TYPING_MS = 200;
const OPEN_STATES = ['Ongoing', 'PrepareCommit', 'PrepareAbort'];
const KINDS = [['', 'Every kind'], ['plain', 'Plain'], ['idempotent', 'Idempotent'], ['transactional', 'Transactional']];
const PARTITIONS_SHOWN = 6;

export default function showProducers(page) {
  const query = {};
  for (const name of ['topic', 'client', 'kind', 'after']) query[name] = page.query.get(name) ?? '';
  const pages = h('div', null);
  let found = { items: [], next: null };
  /** By transactional id, the transaction that it has open. */
  let open = new Map();
  const list = table({
    caption: 'Producers',
    key: (each) => each.key,
    empty: 'No such producers. One is here from its first message on, until 2,000 others have written to its broker after it.',
    columns: [
      { title: 'Client', cell: (each) => clientCell(each), sort: (each) => each.client_id },
      { title: 'Kind', cell: (each) => kindCell(each), sort: (each) => each.kind },
      { title: 'Topic', cell: (each) => topicLink(each.topic), sort: (each) => each.topic },
      { title: 'Partitions', cell: (each) => partitionsText(each.partitions) },
      { title: 'Messages/s', kind: 'number', cell: (each) => rate(each.message_rate), sort: (each) => each.message_rate },
      { title: 'Bytes/s', kind: 'number', cell: (each) => byteRate(each.byte_rate), sort: (each) => each.byte_rate },
      { title: 'Messages', kind: 'number', cell: (each) => count(each.messages), sort: (each) => each.messages },
      { title: 'Last seen', cell: (each) => relative(each.last_ms), sort: (each) => each.last_ms },
      { title: 'Transaction', cell: (each) => transactionCell(each, open), sort: (each) => open.get(each.transactional_id)?.age_ms },
    ],
  });
  const transactions = table({
    caption: 'Open transactions',
    key: (each) => each.transactional_id,
    empty: 'No transaction is open.',
    columns: [
      { title: 'Transactional id', kind: 'wide', cell: (each) => transactionLink(each.transactional_id), sort: (each) => each.transactional_id },
      { title: 'State', cell: (each) => transactionBadge(each.state), sort: (each) => each.state },
      { title: 'Open for', kind: 'number', cell: (each) => duration(each.age_ms), sort: (each) => each.age_ms },
      { title: 'Kind', cell: (each) => (each.is_two_phase ? 'two-phase: ends when its producer or an operator decides' : 'ordinary: times out') },
      { title: 'Client', cell: (each) => clientsOf(each, found.items) },
    ],
  });
  let typing = null;
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: onInput },
    field({ name: 'client', label: 'Client', kind: 'search', value: query.client, placeholder: 'id, user or address' }),
    field({ name: 'topic', label: 'Topic', kind: 'search', value: query.topic, placeholder: 'its whole name' }),
    field({ name: 'kind', label: 'Kind', kind: 'select', options: KINDS, value: query.kind }),
  );

  function onInput() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const isOtherTopic = filters.elements.topic.value.trim() !== query.topic;
      for (const name of ['client', 'topic', 'kind']) query[name] = filters.elements[name].value.trim();
      if (isOtherTopic) query.after = '';
      setAddress(query);
      draw();
      if (isOtherTopic) reading.refresh();
    }, TYPING_MS);
  }

  function draw() {
    list.update(byTopic(found.items).filter((each) => isSought(each, query)));
    transactions.update([...open.values()]);
  }

  page.show(
    page.heading('Producers'),
    filters,
    list.element,
    pages,
    section('Open transactions', null, transactions.element),
  );
  const reading = page.watch({
    everyMs: 5000,
    load: (signal) => get('/producers', { topic: query.topic, after: query.after, limit: ROWS_MAX }, { signal }),
    show(answer) {
      found = answer;
      draw();
      patch(pages, pager(query.after, found.next, (after) => withQuery('/producers', { ...query, after })));
    },
  });
  page.watch({
    everyMs: 5000,
    async load(signal) {
      try {
        return (await get('/transactions', { state: OPEN_STATES, limit: ROWS_MAX }, { signal })).items;
      } catch (error) {
        // Who may not see transactions sees the producers all the same.
        if (error instanceof Problem && error.status === 403) return [];
        throw error;
      }
    },
    show(items) {
      open = new Map(items.map((each) => [each.transactional_id, each]));
      draw();
    },
  });
}

/** The pairs of a producer and a partition, added up for each topic; those that write now first. */
function byTopic(items) {
  const rows = new Map();
  for (const each of items) {
    const key = JSON.stringify([each.topic, each.client_id, each.principal, each.host, each.producer_id]);
    const row = rows.get(key);
    if (row === undefined) {
      rows.set(key, { ...each, key, partitions: [each.partition] });
    } else {
      row.partitions.push(each.partition);
      for (const name of ['message_rate', 'byte_rate', 'messages']) row[name] += each[name];
      row.last_ms = Math.max(row.last_ms, each.last_ms);
    }
  }
  // Who writes now is first. Within both, rows stay where they are: a rate is another one at every reading.
  return [...rows.values()].sort((one, other) => (other.message_rate > 0) - (one.message_rate > 0));
}

function isSought(each, { client, kind }) {
  const text = `${each.client_id} ${each.principal} ${each.host} ${each.transactional_id ?? ''}`.toLowerCase();
  return text.includes(client.toLowerCase()) && (kind === '' || each.kind === kind);
}

function clientCell(each) {
  return [h('code', null, visible(each.client_id || 'no client id')), h('span', { class: 'below' }, `${visible(each.principal)} at ${visible(each.host)}`)];
}

function kindCell(each) {
  if (each.kind === 'plain') return badge('plain', 'plain');
  const id = h('span', { class: 'below' }, `id ${each.producer_id}, epoch ${each.producer_epoch}`);
  return [badge(each.kind, each.kind === 'transactional' ? 'accent' : 'good'), id];
}

function partitionsText(partitions) {
  const sorted = [...new Set(partitions)].sort((one, other) => one - other);
  return sorted.length > PARTITIONS_SHOWN ? plural(sorted.length, 'partition') : sorted.join(', ');
}

function transactionLink(id) {
  return h('a', { href: path`/transactions/${id}`, class: 'name' }, visible(id));
}

function transactionCell(each, open) {
  if (each.transactional_id === null) return '–';
  const present = open.get(each.transactional_id);
  const state = present ? h('span', { class: 'below' }, transactionBadge(present.state), ` for ${duration(present.age_ms)}`) : null;
  return [transactionLink(each.transactional_id), state];
}

function clientsOf({ transactional_id: id }, items) {
  const clients = [...new Set(items.filter((each) => each.transactional_id === id).map((each) => each.client_id))];
  return clients.length ? h('code', null, visible(clients.join(', '))) : '–';
}
