/** The dead-letter topics, with how many dead letters each has. */

import { get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { count, visible } from '../format.js';
import { badge, pager } from '../parts.js';
import { table } from '../table.js';

export default function showDeadLetters(page) {
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: 'Dead-letter topics',
    key: (each) => each.topic,
    empty: 'No message was dead-lettered. One is when its consumers have rejected it, or have failed on it too often.',
    columns: [
      { title: 'Dead-letter topic', kind: 'wide', cell: (each) => h('a', { href: path`/dead-letters/${each.topic}`, class: 'name' }, visible(each.topic)) },
      { title: 'Left to replay', kind: 'number', cell: (each) => (each.left ? badge(count(each.left), 'warn') : '0'), sort: (each) => each.left },
      { title: 'Replayed', kind: 'number', cell: (each) => count(each.replayed), sort: (each) => each.replayed },
    ],
  });
  page.show(page.heading('Dead letters'), list.element, pages);
  page.watch({
    kinds: ['topic'],
    everyMs: 8000,
    load: (signal) => get('/dead-letters', { after }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery('/dead-letters', { after: each })));
    },
  });
}
