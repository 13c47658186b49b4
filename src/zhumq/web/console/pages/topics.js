/** The list of topics: find one, create one. */

import { change, get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { field, InvalidInput, openDialog } from '../forms.js';
import { bytes, count, plural } from '../format.js';
import { rate } from '../history.js';
import { badge, button, pager, topicLink } from '../parts.js';
import { go, setAddress } from '../router.js';
import { table } from '../table.js';

const PAGE_ROWS = 100;
const FIGURES_MS = 10_000;
const RATE_MS_MIN = 4_000; // between two readings: a rate of less is one of chance
const TYPING_MS = 200;
const NOTHING_YET = 'There are no topics yet. Create one here, or send to one: brokers create what is not there, unless auto.create.topics.enable is false.';

export default function showTopics(page) {
  const query = { search: page.query.get('search') ?? '', internal: page.query.get('internal') === 'true', after: page.query.get('after') ?? '' };
  const pages = h('div', null);
  let listed = null;
  let figures = new Map();
  const list = table({
    caption: 'Topics',
    key: (each) => each.topic,
    empty: () => (query.search ? 'No topic has this in its name.' : NOTHING_YET),
    columns: [
      { title: 'Topic', kind: 'wide', cell: (each) => topicLink(each.topic) },
      { title: 'Messages', kind: 'number', cell: (each) => messages(each.topic, figures.get(each.topic)), sort: (each) => figures.get(each.topic)?.messages },
      { title: 'Written/s', kind: 'number', cell: (each) => written(figures.get(each.topic)), sort: (each) => figures.get(each.topic)?.perSecond },
      { title: 'Size', kind: 'number', cell: (each) => bytes(figures.get(each.topic)?.size_bytes), sort: (each) => figures.get(each.topic)?.size_bytes },
      { title: 'Partitions', kind: 'number', cell: (each) => count(each.partitions), sort: (each) => each.partitions },
      { title: 'Replicas', kind: 'number', cell: (each) => count(each.replicas), sort: (each) => each.replicas },
      { title: 'State', cell: (each) => state(figures.get(each.topic)) },
    ],
  });
  let typing = null;
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: onInput },
    field({ name: 'search', label: 'Search', kind: 'search', value: query.search, placeholder: 'part of a name' }),
    field({ name: 'internal', label: 'Internal topics', kind: 'checkbox', value: query.internal }),
  );

  function onInput() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      Object.assign(query, { search: filters.elements.search.value, internal: filters.elements.internal.checked, after: '' });
      setAddress(query);
      reading.refresh();
    }, TYPING_MS);
  }

  page.show(
    page.heading('Topics', { actions: [h('a', { href: '/tail' }, 'Live tail of several'), button('Create topic', createTopic, { class: 'primary' })] }),
    filters,
    list.element,
    pages,
  );
  const reading = page.watch({
    kinds: ['topic'],
    everyMs: 15_000,
    load: (signal) => get('/topics', { ...query, limit: PAGE_ROWS }, { signal }),
    show(found) {
      const isOther = listed !== null && found !== listed;
      listed = found;
      list.update(found.items);
      patch(pages, pager(query.after, found.next, (after) => withQuery('/topics', { ...query, after })));
      if (isOther) counting.refresh();
    },
  });
  // The list is there before its figures, which take the brokers longer.
  const counting = page.watch({
    everyMs: FIGURES_MS,
    load: async (signal) => ({ atMs: Date.now(), found: await get('/topic-figures', { ...query, limit: PAGE_ROWS }, { signal }) }),
    show({ atMs, found }) {
      figures = new Map(found.items.map((each) => [each.topic, withRate(each, figures.get(each.topic), atMs)]));
      if (listed !== null) list.update(listed.items);
    },
    fail() {}, // The topics are shown without their figures.
  });
}

/** The figures of a topic with the rate since they were last read; at first there is none. */
function withRate(found, before, atMs) {
  if (before !== undefined && atMs - before.atMs < RATE_MS_MIN) return { ...before, ...found, written: before.written };
  const isKnown = before !== undefined && found.written !== null && before.written !== null && found.written >= before.written;
  return { ...found, atMs, perSecond: isKnown ? ((found.written - before.written) * 1000) / (atMs - before.atMs) : null };
}

function messages(topic, figures) {
  return h('a', { href: path`/topics/${topic}/messages`, title: 'The newest messages' }, count(figures?.messages));
}

function written(figures) {
  return figures?.perSecond === null || figures?.perSecond === undefined ? '–' : rate(figures.perSecond);
}

function state(figures) {
  if (figures === undefined) return '';
  if (figures.leaderless) return badge(`${plural(figures.leaderless, 'partition')} without a leader`, 'bad');
  if (figures.underreplicated) return badge(`${count(figures.underreplicated)} under-replicated`, 'warn');
  return badge('in sync', 'good');
}

/** Ask for a new topic, and go to its page. */
function createTopic() {
  openDialog({
    title: 'Create a topic',
    submit: 'Create',
    body: [
      field({ name: 'topic', label: 'Name', required: true, hint: 'Characters a-z, A-Z, 0-9, dot, underscore and hyphen. It cannot be renamed.' }),
      field({ name: 'partitions', label: 'Partitions', kind: 'number', min: 1, hint: 'Empty: the default of the brokers. More can be added later, none removed.' }),
      field({ name: 'replicas', label: 'Replicas', kind: 'number', min: 1, hint: 'Empty: the default of the brokers. At most as many as there are brokers.' }),
      field({ name: 'settings', label: 'Settings', kind: 'textarea', rows: 3, hint: 'One in each line: retention.ms=86400000. Empty: the defaults.' }),
    ],
    async run({ topic, partitions, replicas, settings }) {
      const body = { topic, settings: parseSettings(settings) };
      if (partitions) body.partitions = Number(partitions);
      if (replicas) body.replicas = Number(replicas);
      return change('POST', '/topics', body);
    },
    done({ topic }) {
      go(path`/topics/${topic}`);
      return `The topic ${topic} is created.`;
    },
  });
}

function parseSettings(text) {
  const found = {};
  for (const line of text.split('\n').map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf('=');
    if (at < 1) throw new InvalidInput(`"${line}" is no setting: write name=value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
