/** The idempotent and transactional producers that have written to a topic. */

import { get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { count } from '../format.js';
import { messageLink, moment, pager } from '../parts.js';
import { table } from '../table.js';
import { topicHeading } from '../topic_parts.js';

export default function showProducers(page) {
  const { topic } = page.params;
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: `Producers of ${topic}`,
    key: (each) => `${each.partition} ${each.producer_id}`,
    empty: 'No idempotent or transactional producer has written to this topic lately.',
    columns: [
      { title: 'Producer id', cell: (each) => each.producer_id, sort: (each) => each.producer_id },
      { title: 'Partition', cell: (each) => each.partition, sort: (each) => each.partition },
      { title: 'Epoch', kind: 'number', cell: (each) => each.producer_epoch },
      { title: 'Last sequence', kind: 'number', cell: (each) => count(each.last_sequence), sort: (each) => each.last_sequence },
      { title: 'Last message', cell: (each) => moment(each.last_ms), sort: (each) => each.last_ms },
      { title: 'Open transaction', cell: (each) => (each.transaction_start === null ? 'none' : ['since ', messageLink(topic, each.partition, each.transaction_start)]) },
    ],
  });
  page.show(
    topicHeading(page, '/producers'),
    h(
      'p',
      { class: 'empty' },
      'What the partitions remember of producers that number their messages (enable.idempotence, the default of most clients). ',
      h('a', { href: withQuery('/producers', { topic }) }, 'Who writes to the topic now'),
      ' has clients, rates, and plain producers, too.',
    ),
    list.element,
    pages,
  );
  page.watch({
    everyMs: 5000,
    load: (signal) => get(path`/topics/${topic}/producers`, { after }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery(path`/topics/${topic}/producers`, { after: each })));
    },
  });
}
