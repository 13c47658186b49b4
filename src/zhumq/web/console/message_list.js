/** Messages below each other: a line for each, which opens to all that the message has. */

import { get } from './api.js';
import { contentView, preview } from './content.js';
import { h, keyed, patch, path, withQuery } from './dom.js';
import { bytes, count, time, visible } from './format.js';
import { headerCount, isEditable, isWhole, sendMessage } from './message_form.js';
import { button, copy, facts } from './parts.js';
import { asCurl, asPython, givenMessage } from './snippets.js';

const WHOLE_BYTES = 4 * 1024 * 1024;

/**
 * `withTopic`: they are of several topics.
 * @returns {{element: HTMLElement, update: (messages: Object[]) => void, open: (key: string) => void}}
 */
export function messageList({ withTopic = false } = {}) {
  const list = h('ol', { class: withTopic ? 'messages with-topic' : 'messages', 'aria-label': 'Messages' });
  return {
    element: list,
    update(messages) {
      // A message never changes, so a line that is there stays as it is.
      keyed(list, messages, { key: messageKey, create: (message) => line(message, withTopic), update() {} });
    },
    open(key) {
      list.querySelector(`[data-key="${key}"] > button[aria-expanded="false"]`)?.click();
    },
  };
}

export function messageKey({ topic, partition, offset }) {
  return `${topic} ${partition}@${offset}`;
}

function line(message, withTopic) {
  const detail = h('div', { class: 'detail', hidden: true });
  const open = h(
    'button',
    { type: 'button', class: 'line', 'aria-expanded': 'false', onclick: toggle },
    h('span', { class: 'time' }, time(message.timestamp_ms, { withMilliseconds: true })),
    h('span', { class: 'place' }, `${withTopic ? `${message.topic} ` : ''}${message.partition} @ ${count(message.offset)}`),
    h('bdi', { class: 'key' }, message.key === null ? '' : preview(message.key, 60)),
    h('bdi', { class: 'value' }, preview(message.value, 240)),
    h('span', { class: 'more' }, headerCount(message.headers)),
    h('span', { class: 'size' }, message.value === null ? '' : bytes(message.value.size)),
  );

  function toggle() {
    const isOpen = open.getAttribute('aria-expanded') === 'true';
    open.setAttribute('aria-expanded', String(!isOpen));
    detail.hidden = isOpen;
    if (!isOpen && detail.childElementCount === 0) patch(detail, details(message, detail));
  }

  return h('li', null, open, detail);
}

function details(message, holder) {
  const { topic, partition, offset } = message;
  const address = withQuery(path`/topics/${topic}/messages`, { partition: String(partition), offset: String(offset) });
  return [
    facts([
      ['Partition', partition],
      ['Offset', count(offset)],
      ['Time', `${time(message.timestamp_ms, { withMilliseconds: true })} (${message.timestamp_ms ?? 'none'})`],
      ['Key', message.key === null ? 'null' : `${bytes(message.key.size)}`],
      ['Value', message.value === null ? 'null' : `${bytes(message.value.size)}`],
    ]),
    h(
      'div',
      { class: 'toolbar' },
      h('a', { href: address }, 'Link to this message'),
      sameKey(message),
      elsewhere(message.key),
      button('Copy value', () => copy(message.value?.text ?? message.value?.base64 ?? '', 'the value')),
      !isWhole(message) ? null : button('Copy as curl', () => copy(asCurl(topic, givenMessage(message)), 'a command that sends this message')),
      !isWhole(message) ? null : button('Copy as Python', () => copy(asPython(topic, givenMessage(message)), 'a program that sends this message')),
      !isEditable(message) ? null : button('Send again …', () => sendMessage(topic, message)),
    ),
    message.key === null ? null : h('div', null, h('h3', null, 'Key'), contentView(message.key, 'Key')),
    message.headers.length ? h('div', null, h('h3', null, 'Headers'), headerTable(message.headers)) : null,
    h('div', null, h('h3', null, 'Value'), contentView(message.value, 'Value')),
    message.value?.is_cut ? button('Show more of the value', () => showWhole(message, holder)) : null,
  ];
}

/** The link to all messages with the key of a message, where the filter can name it. */
function sameKey(message) {
  const text = message.key?.text;
  if (text === undefined || message.key.is_cut) return null;
  const filter = `key = '${text.replaceAll("'", "''")}'`;
  return h('a', { href: withQuery(path`/topics/${message.topic}/messages`, { from: 'earliest', filter }) }, 'Messages with this key');
}

/** The link to all topics that have the key of a message. */
function elsewhere(key) {
  if (key === null || key.is_cut) return null;
  const query = key.text !== undefined ? { key: key.text } : { key_base64: key.base64 };
  return h('a', { href: withQuery('/keys', query) }, 'The same key in other topics');
}

async function showWhole(message, holder) {
  const { topic, partition, offset } = message;
  const query = { partition: String(partition), from: String(offset), limit: 1, value_bytes: WHOLE_BYTES, isolation: 'read_uncommitted', decode: true };
  const { items } = await get(path`/topics/${topic}/messages`, query, { isKept: false });
  if (items.length && items[0].offset === offset) holder.replaceChildren(...h('div', null, details(items[0], holder)).childNodes);
}

/** The headers of a message: names and values as text. */
export function headerTable(headers) {
  return h(
    'table',
    { class: 'headers' },
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Name'), h('th', { scope: 'col' }, 'Value'))),
    h('tbody', null, headers.map(({ name, value }) => h('tr', null, h('td', null, h('bdi', null, visible(name))), h('td', null, h('bdi', null, headerValue(value)))))),
  );
}

function headerValue(value) {
  if (value?.text !== undefined) return visible(value.text) + (value.is_cut ? ' …' : '');
  return preview(value, 200);
}
