/** The dead letters of a topic: why they are there, what they hold, editing and replaying them. */

import { change, get } from '../api.js';
import { contentView, preview } from '../content.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { count, plural, visible } from '../format.js';
import { isEditable, messageFields, readMessage } from '../message_form.js';
import { headerTable } from '../message_list.js';
import { badge, button, facts, groupLink, messageLink, moment, pager, section, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const PAGE_ROWS = 50;
const REPLAYED_MAX = 10_000; // by one request

export default function showDeadLetterTopic(page) {
  const { topic } = page.params;
  const query = { group: page.query.get('group') ?? '', after: page.query.get('after') ?? '' };
  const pages = h('div', null);
  /** By place, those that are chosen. */
  const chosen = new Map();
  const replayChosen = button('Replay chosen', () => replay(topic, { only: [...chosen.values()] }, chosen.size), { disabled: true });
  let left = null;
  const reasons = table({
    caption: 'Reasons',
    key: (each) => `${each.group} ${each.reason}`,
    empty: 'There are no dead letters.',
    columns: [
      { title: 'Group', cell: (each) => groupLink(each.group) },
      { title: 'Reason', kind: 'wide', cell: (each) => visible(each.reason) },
      { title: 'Left to replay', kind: 'number', cell: (each) => count(each.left), sort: (each) => each.left },
      { title: 'Replayed', kind: 'number', cell: (each) => count(each.replayed), sort: (each) => each.replayed },
    ],
  });
  const list = table({
    caption: `Dead letters of ${topic}`,
    key: place,
    empty: 'There are no dead letters.',
    columns: [
      {
        title: 'Choose',
        cell: (each) => h('input', {
          type: 'checkbox',
          'aria-label': `Choose ${place(each)}`,
          'data-place': place(each),
          onchange: (event) => choose(each, event.target.checked),
        }),
      },
      { title: 'Place', cell: (each) => place(each) },
      { title: 'State', cell: (each) => (each.replayed ? badge('replayed', 'plain') : badge('left', 'warn')) },
      { title: 'When', cell: (each) => moment(each.time_ms), sort: (each) => each.time_ms },
      { title: 'Reason', kind: 'wide', cell: (each) => [groupLink(each.group), `: ${visible(each.reason)}`] },
      { title: 'Key', cell: (each) => h('bdi', null, each.key === null ? '' : preview(each.key, 40)) },
      { title: 'Value', cell: (each) => h('bdi', { class: 'clip' }, preview(each.value, 80)) },
      {
        title: 'Actions',
        kind: 'actions',
        cell: (each) => h(
          'span',
          null,
          button('Inspect', () => inspect(topic, each), { 'aria-label': `Inspect ${place(each)}` }),
          button('Edit …', () => edit(topic, each), { 'aria-label': `Edit ${place(each)}` }),
        ),
      },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'group', label: 'Only of the group', kind: 'search', value: query.group }),
  );

  function choose(each, isChosen) {
    if (isChosen) chosen.set(place(each), { partition: each.partition, offset: each.offset });
    else chosen.delete(place(each));
    replayChosen.disabled = chosen.size === 0;
    replayChosen.textContent = chosen.size ? `Replay ${count(chosen.size)} chosen` : 'Replay chosen';
  }

  function apply() {
    Object.assign(query, { group: filters.elements.group.value, after: '' });
    setAddress(query);
    reading.refresh();
  }

  page.show(
    page.heading(visible(topic), {
      above: [['Dead letters', '/dead-letters']],
      actions: [
        replayChosen,
        button('Replay all', () => replay(topic, { limit: REPLAYED_MAX, ...(query.group ? { group: query.group } : {}) }, left), { class: 'primary' }),
      ],
    }),
    section('Reasons', null, reasons.element),
    section('Dead letters', null, filters, list.element, pages),
  );
  const reading = page.watch({
    kinds: ['topic'],
    name: topic,
    everyMs: 8000,
    load: (signal) => Promise.all([
      get(path`/dead-letters/${topic}/reasons`, null, { signal }),
      get(path`/dead-letters/${topic}`, { ...query, limit: PAGE_ROWS, decode: true }, { signal }),
    ]),
    show([counts, found]) {
      left = counts.filter((each) => !query.group || each.group === query.group).reduce((sum, each) => sum + each.left, 0);
      reasons.update(counts);
      list.update(found.items);
      patch(pages, pager(query.after, found.next, (after) => withQuery(path`/dead-letters/${topic}`, { ...query, after })));
      // Those that were replayed are no longer chosen.
      for (const box of list.element.querySelectorAll('input[data-place]')) box.checked = chosen.has(box.dataset.place);
    },
  });

  function replay(name, body, number) {
    openDialog({
      title: 'Replay dead letters',
      submit: 'Replay',
      body: consequences(
        `${number === null ? 'Dead letters' : plural(number, 'dead letter')} are sent back to where they came from, behind the newest messages there.`,
        'All groups that read that topic get them again, not only the one that rejected them.',
        body.only ? null : 'Those that were replayed before are left out.',
        number > REPLAYED_MAX ? `One request replays at most ${count(REPLAYED_MAX)}: repeat it.` : null,
      ),
      run: () => change('POST', path`/dead-letters/${name}/replay`, body),
      done({ replayed }) {
        chosen.clear();
        choose({}, false);
        return `${plural(replayed, 'dead letter')} replayed.`;
      },
    });
  }
}

function place({ partition, offset }) {
  return `${partition} @ ${offset}`;
}

function inspect(topic, each) {
  openDialog({
    title: `Dead letter ${place(each)}`,
    submit: '',
    isWide: true,
    run: async () => {},
    body: [
      facts([
        ['Came from', [topicLink(each.origin.topic), ' ', messageLink(each.origin.topic, each.origin.partition, each.origin.offset)]],
        ['Group', groupLink(each.group)],
        ['Reason', visible(each.reason)],
        ['Deliveries', count(each.deliveries)],
        ['When', moment(each.time_ms)],
      ]),
      each.key === null ? null : h('div', null, h('h3', null, 'Key'), contentView(each.key, 'Key')),
      each.headers.length ? h('div', null, h('h3', null, 'Headers'), headerTable(each.headers)) : null,
      h('div', null, h('h3', null, 'Value'), contentView(each.value, 'Value')),
    ],
  });
}

function edit(topic, each) {
  const isPossible = isEditable(each);
  openDialog({
    title: `Edit the dead letter ${place(each)}, then replay it`,
    submit: isPossible ? 'Replay edited' : '',
    isWide: true,
    body: isPossible
      ? [
        consequences(
          `What is below is sent to ${each.origin.topic} in place of the dead letter, which then counts as replayed.`,
          'All groups that read that topic get it.',
        ),
        messageFields(each.origin.topic, each),
      ]
      : consequences('It cannot be edited here: it is too large, or has headers with names that a line cannot hold. Replay it as it is, or send it with a program.'),
    run: (given) => change('POST', path`/dead-letters/${topic}/replay`, { only: [{ partition: each.partition, offset: each.offset, edited: readMessage(given) }] }),
    done: ({ replayed }) => `${plural(replayed, 'dead letter')} replayed.`,
  });
}
