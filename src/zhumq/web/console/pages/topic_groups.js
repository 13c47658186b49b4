/** The groups that read a topic, and how far behind each is in it. */

import { get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { count } from '../format.js';
import { kindOf, stateBadge } from '../group_parts.js';
import { badge, groupLink, pager } from '../parts.js';
import { table } from '../table.js';
import { topicHeading } from '../topic_parts.js';

const PAGE_ROWS = 50;

export default function showTopicGroups(page) {
  const { topic } = page.params;
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: `Groups of ${topic}`,
    key: (each) => each.group,
    empty: 'No group reads this topic, or has an offset in it. Consumers without a group leave no trace.',
    columns: [
      { title: 'Group', kind: 'wide', cell: (each) => groupLink(each.group) },
      { title: 'Kind', cell: (each) => kindOf(each), sort: (each) => each.type },
      { title: 'State', cell: (each) => stateBadge(each.state), sort: (each) => each.state },
      { title: 'Members here', kind: 'number', cell: (each) => count(each.members), sort: (each) => each.members },
      { title: 'Partitions', kind: 'number', cell: (each) => count(each.partitions), sort: (each) => each.partitions },
      { title: 'Lag here', kind: 'number', cell: (each) => count(each.lag), sort: (each) => each.lag },
      { title: 'Note', cell: (each) => (each.idle_partitions ? badge('messages wait, no consumer', 'warn') : '') },
    ],
  });
  page.show(topicHeading(page, '/groups'), list.element, pages);
  page.watch({
    kinds: ['group'],
    everyMs: 10_000,
    load: (signal) => get(path`/topics/${topic}/groups`, { after, limit: PAGE_ROWS }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery(path`/topics/${topic}/groups`, { after: each })));
    },
  });
}
