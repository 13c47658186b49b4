/** Operations of the cluster: brokers, replicas that move, draining a broker, how a topic is replicated. */

import { get } from '../api.js';
import { h, patch, path } from '../dom.js';
import { field } from '../forms.js';
import { bytes, count, percent, plural, visible } from '../format.js';
import { cancelMoves, changeMode, limitRate, moveTopic, proposeDraining, proposeRebalancing } from '../move_dialogs.js';
import { badge, brokerLink, button, emptyText, pager, section, topicLink } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const MOVES_MS = 2000;
const MOVES_ROWS = 200;
const TOPICS_MAX = 1000; // that the field proposes
const ALONE = 'This is a single broker. Replicas cannot move, as there is no other broker to move them to; it cannot be drained;'
  + ' and a topic has no replication mode, as there is nothing to agree on. A cluster has all of this: start brokers with --zookeeper.';

export default function showCluster(page) {
  const known = { brokers: null, moves: [], hasMore: false, rate: null, topic: null };
  const alone = h('div', null);
  const rebalance = button('Rebalance …', () => proposeRebalancing());
  const brokers = table({
    caption: 'Brokers',
    key: (each) => String(each.broker),
    columns: [
      { title: 'Broker', cell: (each) => brokerLink(each.broker), sort: (each) => each.broker },
      { title: 'Address', cell: (each) => h('code', null, visible(each.address)) },
      { title: 'Rack', cell: (each) => (each.rack === null ? '–' : visible(each.rack)), sort: (each) => each.rack },
      { title: 'Version', cell: (each) => (each.version === null ? '–' : visible(each.version)), sort: (each) => each.version },
      { title: 'State', cell: (each) => brokerState(each, known.moves) },
      { title: 'Leads', kind: 'number', cell: (each) => count(each.leads), sort: (each) => each.leads },
      { title: 'Replicas', kind: 'number', cell: (each) => count(each.replicas), sort: (each) => each.replicas },
      { title: 'Size', kind: 'number', cell: (each) => bytes(each.size_bytes), sort: (each) => each.size_bytes },
      {
        title: 'Drain',
        kind: 'actions',
        cell: (each) => (each.isAlone ? '' : button('Drain …', () => proposeDraining(each.broker), { 'aria-label': `Drain broker ${each.broker}` })),
      },
    ],
  });
  const summary = h('p', { class: 'status', 'aria-live': 'polite' });
  const rate = h('p', null);
  const cancelAll = button('Cancel all …', () => cancelMoves(known.moves), { class: 'danger', hidden: true });
  const moves = table({
    caption: 'Replicas that move',
    key: (each) => `${each.topic} ${each.partition}`,
    empty: 'No replicas are moving.',
    columns: [
      { title: 'Topic', kind: 'wide', cell: (each) => topicLink(each.topic), sort: (each) => each.topic },
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Leader', cell: (each) => (each.leader === null ? badge('none', 'bad') : `broker ${each.leader}`) },
      { title: 'Comes to', cell: (each) => each.adding.join(', ') || '–' },
      { title: 'Leaves', cell: (each) => each.removing.join(', ') || '–' },
      { title: 'Left to copy', kind: 'number', cell: (each) => bytes(each.left_bytes), sort: (each) => each.left_bytes },
      { title: 'Progress', cell: (each) => progress(each) },
      { title: 'Cancel', kind: 'actions', cell: (each) => button('Cancel', () => cancelMoves([each]), { 'aria-label': `Cancel the move of ${each.topic} ${each.partition}` }) },
    ],
  });
  const pages = h('div', null);
  const replication = topicSection(page, known);
  const acting = h(
    'div',
    null,
    section('Replicas that move', null, summary, rate, moves.element, pages, h('p', null, cancelAll)),
    replication,
  );

  page.show(page.heading('Cluster', { actions: [rebalance] }), alone, section('Brokers', null, brokers.element), acting);

  function draw() {
    if (known.brokers === null) return;
    const isAlone = known.brokers.length === 1;
    patch(alone, isAlone ? emptyText(ALONE) : null);
    acting.hidden = isAlone && known.moves.length === 0;
    rebalance.disabled = isAlone;
    brokers.update(known.brokers.map((each) => ({ ...each, isAlone })));
    moves.update(known.moves);
    patch(summary, known.moves.length ? movesText(known) : null);
    cancelAll.hidden = known.moves.length < 2;
  }

  page.watch({
    kinds: ['broker', 'cluster', 'topic'],
    load: (signal) => get('/cluster/brokers', null, { signal }),
    show(found) {
      known.brokers = found;
      draw();
    },
  });
  page.watch({
    everyMs: MOVES_MS,
    load: (signal) => get('/cluster/reassignments', { limit: MOVES_ROWS, after: page.query.get('after') ?? '' }, { signal }),
    show(found) {
      known.moves = found.items;
      known.hasMore = found.next !== null;
      patch(pages, pager(page.query.get('after') ?? '', found.next, (after) => `/cluster?after=${encodeURIComponent(after)}`));
      draw();
    },
  });
  page.watch({
    everyMs: 10_000,
    load: (signal) => get('/cluster/copy-rate', null, { signal }),
    show({ bytes_per_second: limit }) {
      patch(
        rate,
        limit === null ? 'Brokers copy as fast as they can. ' : ['Each broker copies at most ', h('strong', null, `${bytes(limit)}/s`), '. '],
        button('Limit the rate …', () => limitRate(known.rate)),
      );
      known.rate = limit;
    },
    fail: () => patch(rate),
  });
}

/** The section of one topic, which the address names. */
function topicSection(page, known) {
  const shown = h('div', null);
  const list = table({
    caption: 'Partitions of the topic',
    key: (each) => String(each.partition),
    columns: [
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Leader', cell: (each) => (each.leader === null ? badge('none', 'bad') : `broker ${each.leader}`) },
      { title: 'Replicas', cell: (each) => each.replicas.join(', ') },
      { title: 'In sync', cell: (each) => (each.in_sync.length === each.replicas.length ? 'all' : badge(each.in_sync.join(', ') || 'none', 'warn')) },
      { title: 'Mode', cell: (each) => (isChanging(each) ? badge(`${each.mode}, changing to ${each.wanted_mode}`, 'accent') : (each.mode ?? '–')) },
    ],
  });
  const names = h('datalist', { id: 'topics-of-the-cluster' });
  const chosen = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: choose },
    field({ name: 'topic', label: 'Topic', kind: 'search', value: page.query.get('topic') ?? '' }),
    names,
  );
  chosen.elements.topic.setAttribute('list', names.id);
  const actions = h(
    'p',
    { class: 'toolbar' },
    button('Move replicas …', () => moveTopic(known.topic, known.brokers ?? [])),
    button('Change the mode …', () => changeMode(known.topic)),
  );
  let reading = null;

  function choose() {
    const topic = chosen.elements.topic.value;
    setAddress({ topic });
    follow(topic);
  }

  function follow(topic) {
    reading?.stop();
    known.topic = null;
    patch(shown);
    if (!topic) return;
    reading = page.watch({
      kinds: ['topic'],
      name: topic,
      everyMs: MOVES_MS,
      load: (signal) => get(path`/topics/${topic}`, null, { signal }),
      show(found) {
        known.topic = found;
        list.update(found.partitions);
        if (!list.element.isConnected) shown.replaceChildren(actions, list.element);
      },
    });
  }

  const offerNames = () => get('/topics', { limit: TOPICS_MAX }).then(
    ({ items }) => patch(names, items.map((each) => h('option', { value: each.topic }))),
    () => {}, // The name can be typed all the same.
  );
  chosen.addEventListener('focusin', offerNames, { once: true });
  follow(page.query.get('topic') ?? '');
  return section(
    'How a topic is replicated',
    null,
    emptyText('Choose a topic to move its replicas, to change how many it has, or how they agree.'),
    chosen,
    shown,
  );
}

function isChanging(partition) {
  return partition.mode !== null && partition.wanted_mode !== null && partition.mode !== partition.wanted_mode;
}

function brokerState(broker, moves) {
  const leaving = moves.filter((each) => each.removing.includes(broker.broker)).length;
  const coming = moves.filter((each) => each.adding.includes(broker.broker)).length;
  return [
    broker.controller ? badge('controller', 'accent') : null,
    leaving ? [' ', badge(`${plural(leaving, 'replica')} leaving`, 'warn')] : null,
    coming ? [' ', badge(`${plural(coming, 'replica')} coming`, 'good')] : null,
  ];
}

function movesText({ moves, hasMore }) {
  const isKnown = moves.every((each) => each.left_bytes !== null);
  const left = moves.reduce((sum, each) => sum + (each.left_bytes ?? 0), 0);
  return `${hasMore ? 'More than ' : ''}${plural(moves.length, 'partition')} moving, ${isKnown ? '' : 'at least '}${bytes(left)} left to copy.`;
}

/** How much of the new replicas is there. */
function progress(move) {
  if (move.left_bytes === null) return 'not known';
  const whole = move.size_bytes * move.adding.length;
  if (whole === 0) return 'nothing to copy';
  const share = Math.max(0, 1 - move.left_bytes / whole);
  const bar = h('progress', { max: 1, value: String(share), 'aria-label': `Copied of ${move.topic} ${move.partition}` });
  return h('span', { class: 'used' }, bar, percent(share));
}
