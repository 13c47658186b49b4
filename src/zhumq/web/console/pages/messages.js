/** The messages of a topic: by offset, time, key or tag; the newest; and those that come. */

import { get, Problem } from '../api.js';
import { h, patch, path } from '../dom.js';
import { saveLines, saveTable } from '../download.js';
import { field, values } from '../forms.js';
import { plural } from '../format.js';
import { tailMessages } from '../live_tail.js';
import { sendMessage } from '../message_form.js';
import { messageKey, messageList } from '../message_list.js';
import { button, note, problemBox } from '../parts.js';
import { setAddress } from '../router.js';
import { topicHeading } from '../topic_parts.js';

const LIVE_ROWS_MAX = 500;
const ROWS_MAX = 2000;
const MODES = [['newest', 'The newest'], ['earliest', 'From the beginning'], ['offset', 'From an offset'], ['time', 'From a time'], ['key', 'With a key'], ['tag', 'With a tag']];
const LABELS = { offset: 'Offset', time: 'Time', key: 'Key', tag: 'Tag' };

export default function showMessages(page) {
  const { topic } = page.params;
  const asked = question(page.query);
  const status = h('p', { class: 'status', role: 'status' });
  const failure = h('div', null);
  const list = messageList();
  const further = h('div', { class: 'pager' });
  const live = h('button', { type: 'button', 'aria-pressed': 'false', onclick: () => (tailing ? stopLive() : startLive()) }, 'Live tail');
  let shown = [];
  let reading = new AbortController();
  let tailing = false;

  const form = h(
    'form',
    { class: 'filters messages-form', onsubmit: submit, onchange: adapt },
    field({ name: 'mode', label: 'Show', kind: 'select', options: MODES, value: asked.mode }),
    field({ name: 'at', label: 'Offset', value: asked.at }),
    field({ name: 'partition', label: 'Partition', kind: 'number', min: 0, value: asked.partition, placeholder: 'all' }),
    field({ name: 'filter', label: 'Filter', value: asked.filter, placeholder: "key LIKE 'eu-%' AND value.total > 100" }),
    field({ name: 'limit', label: 'At most', kind: 'select', options: ['20', '100', '500'], value: asked.limit }),
    field({ name: 'uncommitted', label: 'Uncommitted, too', kind: 'checkbox', value: asked.uncommitted }),
    h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Read'), live),
  );

  /** Only what the chosen way needs can be filled in. */
  function adapt() {
    const mode = form.elements.mode.value;
    const at = form.elements.at;
    at.closest('.field').hidden = !(mode in LABELS);
    at.labels[0].textContent = LABELS[mode] ?? 'Position';
    at.required = mode in LABELS;
    at.type = mode === 'time' ? 'datetime-local' : 'text';
    if (mode === 'time') at.step = '1';
    for (const name of ['filter', 'uncommitted']) form.elements[name].closest('.field').hidden = mode === 'key' || mode === 'tag';
    live.hidden = mode === 'key' || mode === 'tag';
  }

  function submit(event) {
    event.preventDefault();
    stopLive();
    setAddress(addressOf(values(form)), { isNew: true });
    read(requestOf(values(form)));
  }

  async function read(request, { isFurther = false, toOpen = null } = {}) {
    reading.abort();
    reading = new AbortController();
    const { signal } = reading;
    patch(failure);
    status.textContent = 'Reading …';
    try {
      const found = await get(path`/topics/${topic}` + request.end, request.query, { signal, isKept: false });
      if (signal.aborted || page.isLeft) return;
      const items = request.isNewestFirst ? found.items.reverse() : found.items;
      shown = isFurther ? [...shown, ...items].slice(-ROWS_MAX) : items;
      list.update(shown);
      status.textContent = summary(shown.length, found, request);
      further.replaceChildren();
      if (found.next !== undefined && !found.is_at_end && !request.isNewestFirst) {
        further.append(button('Read on', () => read({ ...request, query: { ...request.query, from: null, after: found.next } }, { isFurther: true })));
      }
      if (toOpen && shown.length) list.open(messageKey(shown[0]));
      // The button is gone: who used it goes on with the first message that it brought.
      if (isFurther) list.element.children[shown.length - items.length]?.firstElementChild.focus();
    } catch (error) {
      if (signal.aborted || page.isLeft) return;
      if (!(error instanceof Problem)) throw error;
      status.textContent = '';
      patch(failure, problemBox(error));
    }
  }

  async function startLive() {
    reading.abort();
    reading = new AbortController();
    const { signal } = reading;
    tailing = true;
    live.setAttribute('aria-pressed', 'true');
    live.textContent = 'Stop the live tail';
    patch(further);
    const given = values(form);
    setAddress({ ...addressOf({ ...given, mode: 'newest' }), live: true });
    const request = requestOf({ ...given, mode: 'newest', limit: '20' });
    shown = [];
    let seen = 0;
    try {
      await tailMessages(topic, request.query, {
        signal,
        onMessages(items, isFirst) {
          patch(failure);
          if (!isFirst) seen += items.length;
          shown = [...items, ...shown].slice(0, LIVE_ROWS_MAX);
          list.update(shown);
          status.textContent = `Live: ${plural(seen, 'new message')} so far, newest first.`;
        },
        onWaiting() {
          status.textContent = 'Live: waiting for the broker.';
        },
      });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      stopLive();
      patch(failure, problemBox(error));
    }
  }

  function stopLive() {
    if (!tailing) return;
    reading.abort();
    tailing = false;
    live.setAttribute('aria-pressed', 'false');
    live.textContent = 'Live tail';
    status.textContent = `Stopped. ${status.textContent.replace('Live: ', '')}`;
  }

  function save(write, ending) {
    if (shown.length === 0) {
      note('No messages are shown: there is nothing to save.');
      return;
    }
    write(shown, `${topic}.${ending}`);
    const isCut = shown.some(({ key, value }) => key?.is_cut || value?.is_cut);
    note(`${plural(shown.length, 'message')} saved${isCut ? '; of large ones the beginning, as is_cut says' : ''}.`);
  }

  // A page that is not seen does not read.
  const onVisibility = () => {
    if (document.hidden && tailing) stopLive();
  };
  document.addEventListener('visibilitychange', onVisibility);
  page.onLeave(() => {
    document.removeEventListener('visibilitychange', onVisibility);
    reading.abort();
  });
  page.show(
    topicHeading(page, '/messages', [
      button('Save as JSON lines', () => save(saveLines, 'jsonl')),
      button('Save as CSV', () => save(saveTable, 'csv')),
      button('Send a message', () => sendMessage(topic), { class: 'primary' }),
    ]),
    form,
    failure,
    h('h2', { class: 'unseen' }, 'Messages'),
    status,
    list.element,
    further,
  );
  adapt();
  // Also says whether there is such a topic, and whether the broker answers.
  page.watch({
    kinds: ['topic'],
    name: topic,
    everyMs: 10_000,
    load: (signal) => get(path`/topics/${topic}`, null, { signal }),
    show: ({ partitions }) => form.elements.partition.setAttribute('max', partitions.length - 1),
  });
  if (page.query.get('live') === 'true') startLive();
  else read(requestOf(values(form)), { toOpen: asked.mode === 'offset' });
}

/** What an address asks for, as the form has it. */
function question(query) {
  const asked = {
    mode: query.get('from') === 'earliest' ? 'earliest' : 'newest',
    at: '',
    partition: query.get('partition') ?? '',
    filter: query.get('filter') ?? '',
    limit: query.get('limit') ?? '100',
    uncommitted: query.get('uncommitted') === 'true',
  };
  for (const mode of ['offset', 'time', 'key', 'tag']) {
    if (query.has(mode)) Object.assign(asked, { mode, at: query.get(mode) });
  }
  return asked;
}

/** The parameters of the address of what a form asks for. */
function addressOf({ mode, at, partition, filter, limit, uncommitted }) {
  const query = { partition, filter, limit: limit === '100' ? '' : limit, uncommitted };
  if (mode === 'earliest') query.from = 'earliest';
  else if (mode !== 'newest') query[mode] = at;
  return query;
}

/** The request for what a form asks for. */
function requestOf({ mode, at, partition, filter, limit, uncommitted }) {
  if (mode === 'key' || mode === 'tag') {
    return { end: '/lookup', query: { [mode]: at, partition, limit: Math.min(Number(limit), 100), decode: true }, isLookup: true };
  }
  const query = { partition, filter, limit, isolation: uncommitted ? 'read_uncommitted' : '', decode: true };
  if (mode === 'newest') query.last = true;
  if (mode === 'earliest') query.from = 'earliest';
  if (mode === 'offset') query.from = at;
  if (mode === 'time') query.from = `@${new Date(at).getTime()}`;
  return { end: '/messages', query, isNewestFirst: mode === 'newest' };
}

function summary(shown, found, request) {
  const order = request.isNewestFirst || request.isLookup ? ', newest first' : '';
  const looked = request.query.filter ? `; looked at ${plural(found.scanned, 'message')}` : '';
  const more = request.isLookup && !found.is_complete ? '; there are older ones' : '';
  return shown === 0 ? `No messages${looked}.` : `${plural(shown, 'message')}${order}${looked}${more}.`;
}
