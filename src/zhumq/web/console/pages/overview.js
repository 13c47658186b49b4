/** The overview: brokers, partitions, disks, and what needs attention and why. */

import { get, Problem } from '../api.js';
import { h, patch, path } from '../dom.js';
import { diskForecast, FORECAST_HOURS } from '../disk_forecast.js';
import { bytes, count, duration, percent, plural, visible } from '../format.js';
import { byteRate, historySection, rate } from '../history.js';
import { badge, brokerLink, emptyText, fullness, section, topicLink } from '../parts.js';
import { table } from '../table.js';

const SLOW_MS = 20_000;
const FOLDERS_MS = 30_000; // a broker adds up all of its partitions for it
const UNWELL_MAX = 50; // partitions that are listed
const DISK_FULL = 0.85;
const FORECAST_MS = 60_000;
const FORECAST_POINTS = 72;
const FORECASTS_MAX = 20; // brokers whose disks are looked at
const SOON_MS = 86_400_000;

export default function showOverview(page) {
  const numbers = h('dl', { class: 'tiles' });
  const attention = h('div', null);
  const brokers = table({
    caption: 'Brokers',
    key: (each) => String(each.broker),
    columns: [
      { title: 'Broker', cell: (each) => brokerLink(each.broker), sort: (each) => each.broker },
      { title: 'Address', cell: (each) => h('code', null, visible(each.address)) },
      { title: 'Rack', cell: (each) => (each.rack === null ? '–' : visible(each.rack)) },
      { title: 'Role', cell: (each) => (each.controller ? badge('controller', 'accent') : '') },
      { title: 'Leads', kind: 'number', cell: (each) => count(each.leads), sort: (each) => each.leads },
      { title: 'Replicas', kind: 'number', cell: (each) => count(each.replicas), sort: (each) => each.replicas },
    ],
  });
  const known = { cluster: null, folders: null, forecasts: new Map(), deadLetters: null, parked: null, halves: null };
  const folders = table({
    caption: 'Data folders',
    key: (each) => `${each.broker} ${each.folder}`,
    columns: [
      { title: 'Broker', cell: (each) => each.broker },
      { title: 'Folder', cell: (each) => h('code', null, visible(each.folder)) },
      { title: 'Messages take', kind: 'number', cell: (each) => bytes(each.size_bytes), sort: (each) => each.size_bytes },
      { title: 'Free on the disk', kind: 'number', cell: (each) => bytes(each.usable_bytes) },
      { title: 'Disk', kind: 'number', cell: (each) => bytes(each.total_bytes) },
      { title: 'Used', cell: (each) => used(each) },
      { title: 'At this rate', cell: (each) => forecastText(known.forecasts.get(each.broker)) },
    ],
  });
  const unwell = table({
    caption: 'Partitions that need attention',
    key: (each) => `${each.topic} ${each.partition}`,
    empty: 'Every partition has a leader, and all its replicas are in sync.',
    columns: [
      { title: 'Topic', cell: (each) => topicLink(each.topic), sort: (each) => each.topic },
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'State', cell: (each) => (each.leader === null ? badge('no leader', 'bad') : badge('under-replicated', 'warn')) },
      { title: 'Leader', kind: 'number', cell: (each) => each.leader ?? '–' },
      { title: 'Replicas', cell: (each) => each.replicas.join(', ') },
      { title: 'In sync', cell: (each) => each.in_sync.join(', ') || 'none' },
    ],
  });
  const redraw = () => patch(attention, attentionList(findings(known)));

  page.show(
    page.heading('Overview'),
    numbers,
    section('Needs attention', { 'aria-live': 'polite' }, attention),
    historySection(page, {
      what: 'cluster',
      charts: [
        { label: 'Messages a second', lines: [['messages_in', 'in'], ['messages_out', 'out']], show: rate },
        { label: 'Bytes a second', lines: [['bytes_in', 'in'], ['bytes_out', 'out']], show: byteRate },
        { label: 'Disks', lines: [['disk_used_bytes', 'used']], show: bytes, top: 'disk_total_bytes' },
      ],
    }),
    section('Brokers', null, brokers.element),
    section('Disks', null, folders.element),
    section('Partitions', null, unwell.element),
  );

  page.watch({
    kinds: ['topic', 'broker', 'cluster'],
    async load(signal) {
      const cluster = await get('/cluster', null, { signal });
      // Each of the two has the brokers go through all partitions.
      const isWell = cluster.leaderless + cluster.underreplicated === 0;
      return [cluster, isWell ? { items: [] } : await get('/cluster/unwell-partitions', { limit: UNWELL_MAX }, { signal })];
    },
    show([cluster, partitions]) {
      known.cluster = cluster;
      patch(numbers, tiles(cluster));
      brokers.update(cluster.brokers);
      unwell.update(partitions.items);
      redraw();
      watchForecasts();
    },
  });
  page.watch({
    everyMs: FOLDERS_MS,
    load: (signal) => get('/cluster/data-folders', null, { signal }),
    show(found) {
      known.folders = found;
      folders.update(found);
      redraw();
    },
    fail: () => folders.update([]),
  });
  let isForecasting = false;
  // Only when the brokers are known: in a large cluster they are not asked for twice.
  const watchForecasts = () => {
    if (isForecasting) return;
    isForecasting = true;
    page.watch({
      everyMs: FORECAST_MS,
      load: (signal) => readForecasts(known.cluster.brokers, signal),
      show(found) {
        known.forecasts = found;
        if (known.folders !== null) folders.update(known.folders);
        redraw();
      },
      fail() {}, // A broker may keep no history.
    });
  };
  // A user may not have the right to all of these, and a broker may be without push: the rest is shown all the same.
  page.watch({
    everyMs: SLOW_MS,
    load: (signal) => Promise.all([
      optional(get('/dead-letters', { limit: 1000 }, { signal })),
      optional(get('/push-sessions', { state: 'parked', limit: 1000 }, { signal })),
      optional(get('/half-messages', { state: ['failed', 'given-up'], limit: 1000 }, { signal })),
    ]),
    show([deadLetters, parked, halves]) {
      Object.assign(known, { deadLetters, parked, halves });
      redraw();
    },
  });
}

/** What the disk of each broker does, by its history. Folders on one disk have one forecast. */
async function readForecasts(brokers, signal) {
  const query = { last_ms: FORECAST_HOURS * 3_600_000, points: FORECAST_POINTS };
  const asked = brokers.slice(0, FORECASTS_MAX).map(async ({ broker }) => [broker, await get('/history/cluster', { ...query, broker }, { signal })]);
  const found = new Map();
  for (const [broker, { series, step_ms: stepMs }] of await Promise.all(asked)) {
    const total = (series.disk_total_bytes ?? []).findLast((each) => each !== null);
    if (total) found.set(broker, diskForecast(series.disk_used_bytes, stepMs, total));
  }
  return found;
}

function forecastText(forecast) {
  if (forecast === undefined || forecast.kind === 'unknown') return 'not known yet';
  if (forecast.kind !== 'growing') return forecast.kind;
  return badge(`full in ${duration(forecast.fullInMs)}`, forecast.fullInMs < SOON_MS ? 'bad' : 'plain');
}

async function optional(request) {
  try {
    return await request;
  } catch (error) {
    if (error instanceof Problem && !error.isUnavailable) return null;
    throw error;
  }
}

function tiles(cluster) {
  const tile = (name, value, kind) => h('div', { class: kind ?? null }, h('dt', null, name), h('dd', null, value));
  return [
    tile('Brokers', count(cluster.brokers.length)),
    tile('Controller', cluster.controller === null ? 'none' : `broker ${cluster.controller}`, cluster.controller === null ? 'bad' : null),
    tile('Topics', count(cluster.topics)),
    tile('Partitions', count(cluster.partitions)),
    tile('Without a leader', count(cluster.leaderless), cluster.leaderless ? 'bad' : null),
    tile('Under-replicated', count(cluster.underreplicated), cluster.underreplicated ? 'warn' : null),
  ];
}

function used(folder) {
  if (!folder.total_bytes || folder.usable_bytes === null) return '–';
  const share = 1 - folder.usable_bytes / folder.total_bytes;
  return fullness(share, `Disk of broker ${folder.broker}`);
}

/** What an operator should look at: how bad it is, what it is, why it matters, and where it is shown. */
function findings({ cluster, folders, forecasts, deadLetters, parked, halves }) {
  const found = [];
  const add = (kind, what, why, href, text) => found.push({ kind, what, why, href, text });
  if (cluster?.controller === null) {
    add('bad', 'The cluster has no controller', 'Topics cannot be created, and no new leaders are chosen, until a broker is elected.');
  }
  if (cluster?.leaderless) {
    add('bad', `${plural(cluster.leaderless, 'partition')} without a leader`, 'They can be neither written nor read until one of their replicas is back.');
  }
  if (cluster?.underreplicated) {
    add('warn', `${plural(cluster.underreplicated, 'partition')} under-replicated`, 'A replica lags behind or its broker is down: one more failure may cost messages.');
  }
  for (const each of folders ?? []) {
    if (!each.total_bytes || each.usable_bytes === null) continue;
    const share = 1 - each.usable_bytes / each.total_bytes;
    if (share >= DISK_FULL) {
      const why = `${bytes(each.usable_bytes)} are left. A full disk deletes the oldest segments early, then refuses messages.`;
      add('warn', `The disk of broker ${each.broker} is ${percent(share)} full`, why);
    }
  }
  for (const [broker, { fullInMs, perDay }] of forecasts) {
    if (fullInMs === null || fullInMs >= SOON_MS) continue;
    const why = `As in the last ${FORECAST_HOURS} hours, when it grew by ${bytes(perDay)} a day. Shorten the retention of topics, or give it more room.`;
    add('bad', `The disk of broker ${broker} is full in ${duration(fullInMs)}`, why, '/topics', 'Topics');
  }
  for (const each of deadLetters?.items ?? []) {
    if (each.left > 0) {
      const why = 'Consumers have given up on these messages. Look at the reasons, then replay them.';
      add('warn', `${plural(each.left, 'dead letter')} in ${visible(each.topic)}`, why, path`/dead-letters/${each.topic}`, 'Inspect');
    }
  }
  for (const each of parked?.items ?? []) {
    add('bad', `The session ${visible(each.name)} is parked`, `It gets no messages until it is resumed. Reason: ${visible(each.reason)}`, '/sessions?state=parked', 'Resume');
  }
  if (halves?.items.length) {
    add('warn', `${plural(halves.items.length, 'half message')} that no producer decides on`, 'Decide in its place: commit or roll back.', '/half-messages', 'Decide');
  }
  return found;
}

function attentionList(found) {
  if (found.length === 0) return emptyText('Nothing does.');
  return h(
    'ul',
    { class: 'attention' },
    found.map(({ kind, what, why, href, text }) => h(
      'li',
      { class: kind },
      h('strong', null, what),
      h('span', null, why),
      href ? h('a', { href }, text) : null,
    )),
  );
}
