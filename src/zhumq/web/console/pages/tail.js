/** New messages of several topics, as they come. */

import { Problem } from '../api.js';
import { h, patch } from '../dom.js';
import { field, values } from '../forms.js';
import { plural } from '../format.js';
import { tailMessages } from '../live_tail.js';
import { messageList } from '../message_list.js';
import { emptyText, problemBox } from '../parts.js';
import { setAddress } from '../router.js';

const ROWS_MAX = 500;
const NEWEST = '20'; // of each topic, at the beginning
// A browser has six connections to a server: the events need one, and what else is clicked needs another.
const TOPICS_MAX = 4;

export default function showTail(page) {
  const status = h('p', { class: 'status', role: 'status' });
  const failure = h('div', null);
  const list = messageList({ withTopic: true });
  const stop = h('button', { type: 'button', hidden: true, onclick: () => end() }, 'Stop');
  let reading = null;
  const form = h(
    'form',
    { class: 'filters messages-form', onsubmit: submit, oninput: () => form.elements.topics.setCustomValidity('') },
    field({ name: 'topics', label: 'Topics', required: true, value: page.query.get('topics') ?? '', placeholder: 'orders, payments' }),
    field({ name: 'filter', label: 'Filter', value: page.query.get('filter') ?? '', placeholder: "key LIKE 'eu-%'" }),
    h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Live tail'), stop),
  );

  function submit(event) {
    event.preventDefault();
    begin();
  }

  function begin() {
    end();
    patch(failure);
    const { topics, filter } = values(form);
    setAddress({ topics, filter });
    const names = [...new Set(topics.split(',').map((each) => each.trim()).filter(Boolean))];
    let mistake = names.length > TOPICS_MAX ? `At most ${TOPICS_MAX} topics at once.` : '';
    if (names.length === 0) mistake = 'Name a topic.';
    form.elements.topics.setCustomValidity(mistake);
    if (!form.reportValidity()) return;
    reading = new AbortController();
    stop.hidden = false;
    follow(names, filter, reading.signal);
  }

  /** Every topic by a request of its own: one that fails ends them all, and its reason is shown. */
  async function follow(names, filter, signal) {
    const waiting = new Set();
    let shown = [];
    let seen = 0;
    const say = () => {
      const wait = waiting.size ? ` Waiting for the broker: ${[...waiting].join(', ')}.` : '';
      status.textContent = `Live: ${plural(seen, 'new message')} of ${plural(names.length, 'topic')} so far, newest first.${wait}`;
    };
    status.textContent = 'Reading …';
    list.update(shown);
    const query = { filter, limit: NEWEST, last: true, decode: true };
    try {
      await Promise.all(names.map((topic) => tailMessages(topic, query, {
        signal,
        onMessages(items, isFirst) {
          waiting.delete(topic);
          if (!isFirst) seen += items.length;
          shown = [...items, ...shown].sort((one, other) => (other.timestamp_ms ?? 0) - (one.timestamp_ms ?? 0)).slice(0, ROWS_MAX);
          list.update(shown);
          say();
        },
        onWaiting() {
          waiting.add(topic);
          say();
        },
      })));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (signal.aborted) return;
      end();
      patch(failure, problemBox(error));
    }
  }

  function end() {
    if (!reading || reading.signal.aborted) return;
    reading.abort();
    stop.hidden = true;
    status.textContent = `Stopped. ${status.textContent.replace('Live: ', '')}`;
  }

  // A page that is not seen does not read.
  const onVisibility = () => {
    if (document.hidden) end();
  };
  document.addEventListener('visibilitychange', onVisibility);
  page.onLeave(() => {
    document.removeEventListener('visibilitychange', onVisibility);
    reading?.abort();
  });
  page.show(
    page.heading('Live tail', { above: [['Topics', '/topics']] }),
    emptyText(`The newest messages of up to ${TOPICS_MAX} topics in one list, and those that come while the page is open. Write commas between their names.`),
    form,
    failure,
    h('h2', { class: 'unseen' }, 'Messages'),
    status,
    list.element,
  );
  if (page.query.get('topics')) begin();
}
