/** When and why the segments of a topic are deleted. */

import { get } from '../api.js';
import { h, patch, path } from '../dom.js';
import { bytes, count, duration, plural, relative, visible } from '../format.js';
import { badge, facts, fullness, moment, problemBox, section } from '../parts.js';
import { table } from '../table.js';
import { topicHeading } from '../topic_parts.js';

export default function showTopicRetention(page) {
  const { topic } = page.params;
  const rule = h('div', null);
  const missing = h('div', null);
  let now = Date.now();
  const segments = table({
    caption: `Segments of ${topic}`,
    key: (each) => `${each.partition} ${each.first_offset}`,
    columns: [
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Offsets', kind: 'number', cell: (each) => `${count(each.first_offset)} – ${count(each.next_offset - 1)}`, sort: (each) => each.first_offset },
      { title: 'Size', kind: 'number', cell: (each) => bytes(each.size_bytes), sort: (each) => each.size_bytes },
      { title: 'Newest message', cell: (each) => moment(each.newest_ms), sort: (each) => each.newest_ms },
      { title: 'State', cell: (each) => (each.active ? badge('active', 'accent') : 'closed') },
      { title: 'Deleted', kind: 'wide', cell: (each) => fate(each, now), sort: (each) => each.goes_at_ms },
    ],
  });
  const disks = table({
    caption: 'Disks of its leaders',
    key: (each) => String(each.broker),
    columns: [
      { title: 'Broker', cell: (each) => each.broker },
      { title: 'Used', cell: (each) => fullness(each.used_bytes / each.total_bytes, `Disk of broker ${each.broker}`) },
      { title: 'A day more costs', kind: 'number', cell: (each) => bytes(each.day_bytes) },
      { title: 'Deletes expired segments at once from', kind: 'number', cell: (each) => `${each.expired_percent} %` },
      { title: 'Deletes the oldest from', kind: 'number', cell: (each) => `${each.forced_percent} %` },
      { title: 'Refuses messages from', kind: 'number', cell: (each) => `${each.refused_percent} %` },
      { title: 'State', cell: (each) => diskState(each) },
    ],
  });
  page.show(
    topicHeading(page, '/retention'),
    rule,
    missing,
    section('Segments', null, segments.element),
    section('Disks', null, disks.element),
  );
  page.watch({
    everyMs: 10_000,
    load: (signal) => get(path`/topics/${topic}/retention`, null, { signal }),
    show(found) {
      now = found.disks[0]?.now_ms ?? Date.now();
      patch(rule, explain(found));
      patch(missing, found.unanswered.length ? problemBox(`The leaders of these partitions did not answer: ${found.unanswered.join(', ')}.`) : null);
      segments.update(found.segments);
      disks.update(found.disks);
    },
  });
}

function explain(found) {
  const limits = [];
  if (found.cleanup_policy.includes('delete')) {
    if (found.retention_ms >= 0) limits.push(`when its newest message is older than ${duration(found.retention_ms)}`);
    if (found.retention_bytes >= 0) limits.push(`when the partition is larger than ${bytes(found.retention_bytes)} without it`);
  }
  const text = limits.length
    ? `A closed segment is deleted ${limits.join(', or ')}.`
    : 'Segments are not deleted by age or size.';
  const compacted = found.cleanup_policy.includes('compact') ? ' Of each key the newest message is kept.' : '';
  return [
    h('p', null, text + compacted),
    facts([
      ['cleanup.policy', h('code', null, visible(found.cleanup_policy))],
      ['retention.ms', found.retention_ms < 0 ? 'no limit' : `${count(found.retention_ms)} (${duration(found.retention_ms)})`],
      ['retention.bytes', found.retention_bytes < 0 ? 'no limit' : bytes(found.retention_bytes)],
      ['A day more of retention costs', bytes(found.day_bytes)],
      found.segments_left_off ? ['Not shown', plural(found.segments_left_off, 'younger segment')] : null,
    ]),
  ];
}

function fate(segment, now) {
  const protection = segment.protection ? h('span', { class: 'words' }, `A full disk does not delete it: ${visible(segment.protection)}`) : null;
  if (segment.goes_at_ms !== null) {
    return [h('span', null, `${relative(segment.goes_at_ms, now)}${segment.reason ? `: ${visible(segment.reason)}` : ''}`), protection];
  }
  if (segment.goes_after_bytes !== null) return [`after ${bytes(segment.goes_after_bytes)} more`, protection];
  return [segment.active ? 'not while it is active' : 'not by what is known now', protection];
}

function diskState(disk) {
  if (disk.refuses_writes) return badge('refuses messages', 'bad');
  if (disk.beyond_help) return badge('deleting is not enough', 'bad');
  if (disk.clock_held) return badge('the clock jumped: waits', 'warn');
  return disk.delete_at ? `deletes at ${disk.delete_at}` : 'fine';
}
