/** A topic: its partitions with leaders, replicas, offsets, sizes, and the rate of its messages. */

import { change, get } from '../api.js';
import { deleteMessages } from '../delete_messages.js';
import { h, patch, path } from '../dom.js';
import { consequences, openDialog } from '../forms.js';
import { bytes, count, plural, visible } from '../format.js';
import { byteRate, historySection, rate } from '../history.js';
import { badge, button, facts, groupLink, problemBox, section } from '../parts.js';
import { table } from '../table.js';
import { addPartitions, deleteTopic, topicHeading } from '../topic_parts.js';

export default function showTopic(page) {
  const { topic } = page.params;
  const about = h('div', null);
  const warning = h('div', null);
  const sizes = new Map();
  let described = null;
  const list = table({
    caption: `Partitions of ${topic}`,
    key: (each) => String(each.partition),
    columns: [
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Leader', cell: (each) => (each.leader === null ? badge('none', 'bad') : `broker ${each.leader}`), sort: (each) => each.leader },
      { title: 'Replicas', cell: (each) => each.replicas.join(', ') },
      { title: 'In sync', cell: (each) => inSync(each) },
      { title: 'Mode', cell: (each) => mode(each) },
      { title: 'Earliest', kind: 'number', cell: (each) => count(each.earliest), sort: (each) => each.earliest },
      { title: 'Latest', kind: 'number', cell: (each) => latest(topic, each), sort: (each) => each.latest },
      { title: 'Messages', kind: 'number', cell: (each) => count(each.messages), sort: (each) => each.messages },
      { title: 'Size', kind: 'number', cell: (each) => bytes(sizes.get(each.partition)), sort: (each) => sizes.get(each.partition) },
    ],
  });

  page.show(
    topicHeading(page, '', [
      button('Add partitions', () => addPartitions(topic, described?.partitions.length ?? 0)),
      button('Delete messages', () => deleteMessages(topic), { class: 'danger' }),
      button('Delete topic', () => deleteTopic(topic), { class: 'danger' }),
    ]),
    warning,
    about,
    historySection(page, {
      what: 'topic',
      name: topic,
      charts: [
        { label: 'Messages a second', lines: [['messages_in', 'in'], ['messages_out', 'out']], show: rate },
        { label: 'Bytes a second', lines: [['bytes_in', 'in'], ['bytes_out', 'out']], show: byteRate },
        { label: 'Size, without copies', lines: [['size_bytes', '']], show: bytes },
      ],
    }),
    section('Partitions', null, list.element),
  );

  function draw() {
    if (described === null) return;
    list.update(described.partitions);
    patch(about, aboutTopic(described, sizes));
    patch(warning, described.warning ? problemBox(described.warning) : null);
  }

  page.watch({
    kinds: ['topic'],
    name: topic,
    everyMs: 3000,
    load: (signal) => get(path`/topics/${topic}`, null, { signal }),
    show(found) {
      described = found;
      draw();
    },
  });
  page.watch({
    everyMs: 10_000,
    load: (signal) => get(path`/topics/${topic}/sizes`, null, { signal }),
    show(found) {
      for (const each of found) sizes.set(each.partition, each.size_bytes);
      draw();
    },
    fail() {}, // The partitions are shown without their sizes.
  });
}

function aboutTopic(found, sizes) {
  const messages = found.partitions.reduce((sum, each) => sum + (each.messages ?? 0), 0);
  const size = [...sizes.values()].reduce((sum, each) => sum + (each ?? 0), 0);
  const own = Object.entries(found.settings);
  const claim = found.point_to_point;
  return facts([
    ['Messages', count(messages)],
    ['Size of the leaders', sizes.size ? bytes(size) : '–'],
    ['Id', h('code', null, found.topic_id)],
    ['Own settings', own.length ? own.map(([name, value]) => h('code', { class: 'setting' }, `${name}=${visible(value ?? '')}`)) : 'none'],
    claim ? ['Read point-to-point by', [groupLink(claim.group), ' ', button('Release', () => release(found.topic, claim.group))]] : null,
  ]);
}

function release(topic, group) {
  openDialog({
    title: 'Let another group read the topic',
    submit: 'Release',
    body: consequences(
      `${group} reads ${topic} point-to-point: no other group can. After this the first group that asks reads it.`,
      'It is refused while the group has consumers.',
    ),
    run: () => change('POST', path`/topics/${topic}/release`),
    done: `${topic} is released.`,
  });
}

function inSync(partition) {
  const missing = partition.replicas.length - partition.in_sync.length;
  if (missing <= 0) return 'all';
  return badge(`${partition.in_sync.join(', ') || 'none'}: ${plural(missing, 'replica')} missing`, 'warn');
}

function mode(partition) {
  if (partition.mode === null) return '–';
  const isChanging = partition.wanted_mode !== null && partition.wanted_mode !== partition.mode;
  return isChanging ? `${partition.mode}, changing to ${partition.wanted_mode}` : partition.mode;
}

function latest(topic, partition) {
  if (!partition.messages) return count(partition.latest);
  const address = `${path`/topics/${topic}/messages`}?partition=${partition.partition}&offset=${partition.latest - 1}`;
  return h('a', { href: address, title: 'The newest message' }, count(partition.latest));
}
