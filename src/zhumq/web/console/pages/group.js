/** A group: its members, what they read, its lag, who is stuck, and moving its offsets. */

import { change, get } from '../api.js';
import { h, patch, path } from '../dom.js';
import { consequences, field, openDialog, values } from '../forms.js';
import { count, duration, plural, visible } from '../format.js';
import { behind, groupSummary, place, stateBadge, trendBadge } from '../group_parts.js';
import { historySection } from '../history.js';
import { badge, button, facts, messageLink, problemBox, section, topicLink } from '../parts.js';
import { go } from '../router.js';
import { table } from '../table.js';
import { trendOf } from '../trend.js';

const STUCK_MS = 30_000; // without a step, although messages wait
const TREND_MS = 300_000;
const TREND_POINTS = 30;
const TARGETS = [['earliest', 'The earliest message'], ['latest', 'After the latest message'], ['offset', 'An offset'], ['time', 'A time']];
const SHARE_PROTOCOLS = new Set(['share']);

export default function showGroup(page) {
  const { group } = page.params;
  const about = h('div', null);
  const warning = h('div', null);
  const settings = h('div', null);
  /** By partition, the offset that was committed when it last changed. */
  const steps = new Map();
  /** By member, the client id. */
  let clients = new Map();
  let shown = null;
  let trend = null;
  const offsets = table({
    caption: `Offsets of ${group}`,
    key: place,
    empty: 'The group has committed no offsets.',
    columns: [
      { title: 'Topic', cell: (each) => topicLink(each.topic), sort: (each) => each.topic },
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Next offset', kind: 'number', cell: (each) => next(each), sort: (each) => each.committed },
      { title: 'Latest', kind: 'number', cell: (each) => count(each.latest), sort: (each) => each.latest },
      { title: 'Lag', kind: 'number', cell: (each) => count(each.lag), sort: (each) => each.lag },
      { title: 'In flight', kind: 'number', cell: (each) => count(each.in_flight), sort: (each) => each.in_flight },
      { title: 'Read by', kind: 'wide', cell: (each) => readers(each, clients) },
      { title: 'Progress', cell: (each) => progress(each, steps.get(place(each))) },
    ],
  });
  const members = table({
    caption: `Members of ${group}`,
    key: (each) => each.member,
    empty: 'The group has no members now: nothing reads for it.',
    columns: [
      { title: 'Member', kind: 'wide', cell: (each) => h('code', null, visible(each.member)), sort: (each) => each.member },
      { title: 'Client', cell: (each) => visible(each.client ?? '–') },
      // Kafka writes /127.0.0.1.
      { title: 'Host', cell: (each) => visible((each.host ?? '–').replace(/^\//, '')) },
      { title: 'Static id', cell: (each) => visible(each.static_id ?? '–') },
      { title: 'Partitions', kind: 'number', cell: (each) => count(each.partitions), sort: (each) => each.partitions },
      { title: 'Lag', kind: 'number', cell: (each) => count(lagOf(shown, each)), sort: (each) => lagOf(shown, each) },
    ],
  });

  page.show(
    page.heading(visible(group), {
      above: [['Groups', '/groups']],
      actions: [
        button('Reset offsets', () => resetOffsets(group, shown)),
        button('Forget a topic', () => forgetTopic(group, shown)),
        button('Delete', () => deleteGroup(group, shown), { class: 'danger' }),
      ],
    }),
    warning,
    about,
    historySection(page, {
      what: 'group',
      name: group,
      charts: [
        { label: 'Lag in messages', lines: [['lag', '']], show: (value) => count(Math.round(value)) },
        { label: 'Lag in time', lines: [['lag_seconds', '']], show: (value) => duration(value * 1000) },
      ],
    }),
    section('Offsets', null, offsets.element),
    section('Members', null, members.element),
    settings,
  );

  page.watch({
    kinds: ['group'],
    name: group,
    everyMs: 3000,
    load: (signal) => get(path`/groups/${group}`, null, { signal }),
    show(found) {
      shown = found;
      clients = new Map(found.members.map((each) => [each.member, each.client]));
      remember(found.offsets, steps);
      patch(about, aboutGroup(found, groupSummary(found), trend));
      patch(warning, found.warning ? problemBox(found.warning) : null);
      offsets.update(found.offsets);
      members.update(found.members);
      if (isShare(found) && settings.childElementCount === 0) showSettings(page, group, settings);
    },
  });
  page.watch({
    everyMs: 10_000,
    load: (signal) => get('/history/group', { name: group, last_ms: TREND_MS, points: TREND_POINTS }, { signal }),
    show(found) {
      trend = trendOf(found.series.lag ?? [], found.step_ms);
      if (shown !== null) patch(about, aboutGroup(shown, groupSummary(shown), trend));
    },
    fail() {}, // The charts say why there is no history.
  });
}

function isShare(group) {
  return group.mode !== null || SHARE_PROTOCOLS.has(group.protocol ?? '');
}

function remember(offsets, steps) {
  const now = Date.now();
  for (const each of offsets) {
    const before = steps.get(place(each));
    if (before === undefined || before.committed !== each.committed) steps.set(place(each), { committed: each.committed, at: now });
  }
}

function progress(offset, step) {
  if (!offset.lag) return offset.lag === 0 ? badge('caught up', 'good') : '–';
  if (offset.member === null && offset.consumers.length === 0) return badge('no consumer', 'warn');
  const waited = Date.now() - (step?.at ?? Date.now());
  return waited >= STUCK_MS ? badge(`stuck for ${duration(waited)}`, 'bad') : badge('reads', 'plain');
}

function next(offset) {
  if (offset.committed === null) return 'none';
  return offset.lag ? messageLink(offset.topic, offset.partition, offset.committed, count(offset.committed)) : count(offset.committed);
}

function readers(offset, clients) {
  const names = offset.consumers.length ? offset.consumers : [offset.member].filter((each) => each !== null);
  if (names.length === 0) return '–';
  const known = [...new Set(names.map((each) => clients.get(each)).filter(Boolean))];
  const ids = h('code', { class: known.length ? 'below' : null }, visible(names.join(', ')));
  return known.length ? [visible(known.join(', ')), ids] : ids;
}

function lagOf(group, member) {
  const mine = group.offsets.filter((each) => each.member === member.member || each.consumers.includes(member.member));
  return mine.length ? mine.reduce((sum, each) => sum + (each.lag ?? 0), 0) : null;
}

function aboutGroup(group, summary, trend) {
  return facts([
    ['State', stateBadge(group.state)],
    ['Lag', plural(summary.lag, 'message')],
    ['Behind by', behind(summary.seconds)],
    trend === null ? null : ['Trend', trendBadge(trend, summary.lag)],
    ['Members', count(group.members.length)],
    ['Assignment', group.protocol ?? '–'],
    group.mode ? ['Mode', visible(group.mode)] : null,
    group.claims.length ? ['Reads point-to-point', group.claims.map((each) => [topicLink(each), ' '])] : null,
    ['Coordinator', group.coordinator === null ? '–' : `broker ${group.coordinator}`],
    summary.idle.length ? ['Without a consumer', badge(`${plural(summary.idle.length, 'partition')} with messages`, 'warn')] : null,
  ]);
}

function resetOffsets(group, shown) {
  const topics = [...new Set((shown?.offsets ?? []).map((each) => each.topic))];
  const preview = h('div', { 'aria-live': 'polite' });
  const body = ({ topic, to, at, partition }, isTry) => ({
    topic,
    to: to === 'offset' ? at : to === 'time' ? `@${new Date(at).getTime()}` : to,
    partition: partition === '' ? null : Number(partition),
    dry_run: isTry,
  });
  const show = async () => {
    const { changes } = await change('POST', path`/groups/${group}/reset`, body(values(dialog.form), true));
    patch(preview, changeTable(changes));
  };
  const dialog = openDialog({
    title: `Reset the offsets of ${group}`,
    submit: 'Reset',
    isWide: true,
    body: [
      consequences(
        'An earlier offset makes consumers read messages again; a later one makes them skip messages.',
        'The group must have no running consumers: the broker refuses it otherwise.',
      ),
      field({ name: 'topic', label: 'Topic', required: true, list: topics, value: topics[0] ?? '' }),
      field({ name: 'partition', label: 'Partition', kind: 'number', min: 0, hint: 'Empty: all of them.' }),
      field({ name: 'to', label: 'To', kind: 'select', options: TARGETS }),
      field({ name: 'at', label: 'Offset or time', placeholder: '17, or 2026-01-31T09:00', hint: 'Only for an offset or a time.' }),
      preview,
    ],
    more: button('Preview', () => show().catch((error) => patch(preview, problemBox(error))), { class: 'left' }),
    run: (given) => change('POST', path`/groups/${group}/reset`, body(given, false)),
    done: ({ changes }) => `${plural(changes.length, 'offset')} reset.`,
  });
}

function changeTable(changes) {
  const list = table({
    caption: 'What would change',
    key: place,
    empty: 'Nothing would change.',
    columns: [
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'Now', kind: 'number', cell: (each) => count(each.before) },
      { title: 'Then', kind: 'number', cell: (each) => count(each.after) },
      { title: 'Effect', cell: (each) => effect(each) },
    ],
  });
  list.update(changes);
  return list.element;
}

function effect({ before, after }) {
  if (before === null) return 'begins here';
  if (after === before) return 'no change';
  return after < before ? `reads ${plural(before - after, 'message')} again` : `skips ${plural(after - before, 'message')}`;
}

function forgetTopic(group, shown) {
  const topics = [...new Set((shown?.offsets ?? []).map((each) => each.topic))];
  openDialog({
    title: `Let ${group} forget a topic`,
    submit: 'Forget it',
    isDanger: true,
    body: [
      consequences(
        'The offsets of the group in the topic are deleted, and its lag there no longer counts. Those in other topics stay.',
        'A consumer of the group that reads the topic again begins where its setting says: at the latest or the earliest message.',
        'The broker refuses it while consumers of the group read the topic.',
      ),
      field({ name: 'topic', label: 'Topic', required: true, list: topics, value: topics.length === 1 ? topics[0] : '' }),
    ],
    run: async ({ topic }) => {
      await change('DELETE', path`/groups/${group}/offsets/${topic}`);
      return topic;
    },
    done: (topic) => `${group} has forgotten ${topic}.`,
  });
}

function deleteGroup(group, shown) {
  openDialog({
    title: 'Delete the group',
    submit: 'Delete the group',
    isDanger: true,
    typed: group,
    body: consequences(
      `The group's offsets on ${plural(shown?.offsets.length ?? 0, 'partition')} are deleted.`,
      'A consumer that joins a group of this name begins where its setting says: at the latest or the earliest message.',
      'The broker refuses it while the group has consumers.',
    ),
    run: () => change('DELETE', path`/groups/${group}`),
    done() {
      go('/groups');
      return `The group ${group} is deleted.`;
    },
  });
}

/** The settings of a share group, such as its filter. */
function showSettings(page, group, holder) {
  const list = table({
    caption: `Settings of ${group}`,
    key: (each) => each.name,
    columns: [
      { title: 'Setting', cell: (each) => h('code', null, each.name) },
      { title: 'Value', kind: 'wide', cell: (each) => h('code', null, visible(each.value || '–')) },
      { title: 'Default', cell: (each) => h('code', null, visible(each.default || '–')) },
      { title: 'Comes from', cell: (each) => badge(each.is_own ? 'this group' : each.origin, each.is_own ? 'accent' : 'plain') },
      { title: 'Change', kind: 'actions', cell: (each) => button('Change', () => changeSetting(group, each), { 'aria-label': `Change ${each.name}` }) },
    ],
  });
  patch(holder, section('Settings', null, list.element));
  page.watch({
    everyMs: 15_000,
    load: (signal) => get(path`/groups/${group}/settings`, null, { signal }),
    show: (found) => list.update(found),
    fail: () => holder.replaceChildren(),
  });
}

function changeSetting(group, setting) {
  openDialog({
    title: `Change ${setting.name}`,
    submit: 'Set',
    body: [
      consequences(
        'The change takes effect at once for all consumers of the group.',
        setting.name === 'zhumq.filter' ? 'Messages that do not pass the filter are not delivered to the group.' : null,
      ),
      field({ name: 'value', label: 'Value', value: setting.value ?? '', hint: 'Empty: the default.' }),
    ],
    run: ({ value }) => change('PATCH', path`/groups/${group}/settings`, { settings: { [setting.name]: value === '' ? null : value } }),
    done: `${setting.name} is set.`,
  });
}
