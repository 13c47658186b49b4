/** One key through all topics that have an index of keys: what happened to an order, a customer, a device. */

import { get, Problem } from '../api.js';
import { h, patch } from '../dom.js';
import { field, values } from '../forms.js';
import { plural, visible } from '../format.js';
import { messageList } from '../message_list.js';
import { emptyText, problemBox, topicLink } from '../parts.js';
import { setAddress } from '../router.js';

const KINDS = [['key', 'Text'], ['key_base64', 'Base64']];

export default function showKey(page) {
  const kind = page.query.has('key_base64') ? 'key_base64' : 'key';
  const status = h('p', { class: 'status', role: 'status' });
  const failure = h('div', null);
  const where = h('div', null);
  const list = messageList({ withTopic: true });
  let reading = new AbortController();
  const form = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: submit },
    field({ name: 'key', label: 'Key', kind: 'search', required: true, value: page.query.get(kind) ?? '' }),
    field({ name: 'kind', label: 'The key is', kind: 'select', options: KINDS, value: kind }),
    h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Follow')),
  );

  function submit(event) {
    event.preventDefault();
    const given = values(form);
    setAddress({ [given.kind]: given.key }, { isNew: true });
    read({ [given.kind]: given.key });
  }

  async function read(query) {
    reading.abort();
    reading = new AbortController();
    const { signal } = reading;
    patch(failure);
    status.textContent = 'Reading …';
    try {
      const found = await get('/keys', { ...query, decode: true }, { signal, isKept: false });
      if (signal.aborted || page.isLeft) return;
      list.update(found.items);
      const topics = new Set(found.items.map((each) => each.topic)).size;
      const left = found.is_complete ? '' : ' There are more than are shown.';
      status.textContent = `${plural(found.items.length, 'message')} in ${plural(topics, 'topic')}, newest first; looked into ${plural(found.searched.length, 'topic')}.${left}`;
      patch(where, places(found));
    } catch (error) {
      if (signal.aborted || page.isLeft) return;
      if (!(error instanceof Problem)) throw error;
      status.textContent = '';
      patch(failure, problemBox(error));
    }
  }

  page.onLeave(() => reading.abort());
  page.show(
    page.heading('Follow a key', { above: [['Topics', '/topics']] }),
    emptyText('The newest messages with a key, in all topics that have an index of keys (index.keys=true). 20 of each topic, up to 50 topics.'),
    form,
    failure,
    h('h2', { class: 'unseen' }, 'Messages'),
    status,
    list.element,
    where,
  );
  if (page.query.get(kind)) read({ [kind]: page.query.get(kind) });
}

/** The topics that were looked into without finding it, and those that were not. */
function places({ items, searched, left_out: leftOut }) {
  const found = new Set(items.map((each) => each.topic));
  const without = searched.filter((each) => !found.has(each));
  return [
    searched.length === 0 ? emptyText('No topic that you may read has an index of keys. The setting index.keys=true of a topic builds one.') : null,
    without.length ? h('p', { class: 'empty' }, 'Not in: ', without.map((each, index) => [index ? ', ' : '', topicLink(each)])) : null,
    leftOut.length ? h('p', { class: 'empty' }, `Not looked into (too many, too slow, or not permitted): ${visible(leftOut.join(', '))}`) : null,
  ];
}
