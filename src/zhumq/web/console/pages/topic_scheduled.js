/** The delayed messages of a topic that are not delivered yet: the next one first. */

import { change, get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, InvalidInput, openDialog } from '../forms.js';
import { bytes, plural, relative, time } from '../format.js';
import { button, moment, pager } from '../parts.js';
import { table } from '../table.js';
import { topicHeading } from '../topic_parts.js';

export default function showScheduled(page) {
  const { topic } = page.params;
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: `Delayed messages of ${topic}`,
    key: (each) => each.id,
    empty: 'No message waits. A message with the header zhumq-delay-ms does, in a topic with delay.enable=true.',
    columns: [
      { title: 'Due', cell: (each) => moment(each.due_ms), sort: (each) => each.due_ms },
      { title: 'In', kind: 'number', cell: (each) => relative(each.due_ms) },
      { title: 'Id', cell: (each) => h('code', null, each.id) },
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'Scheduled', cell: (each) => moment(each.scheduled_ms) },
      { title: 'Size', kind: 'number', cell: (each) => bytes(each.size_bytes), sort: (each) => each.size_bytes },
      { title: 'Cancel', kind: 'actions', cell: (each) => button('Cancel', () => cancelOne(topic, each), { class: 'danger', 'aria-label': `Cancel ${each.id}` }) },
    ],
  });
  page.show(
    topicHeading(page, '/scheduled', [button('Cancel many', () => cancelMany(topic))]),
    list.element,
    pages,
  );
  page.watch({
    everyMs: 4000,
    load: (signal) => get(path`/topics/${topic}/scheduled`, { after }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery(path`/topics/${topic}/scheduled`, { after: each })));
    },
  });
}

function cancelOne(topic, message) {
  openDialog({
    title: 'Cancel the delayed message',
    submit: 'Cancel the message',
    isDanger: true,
    body: consequences(`The message ${message.id}, due at ${time(message.due_ms)}, is never delivered. This cannot be undone.`),
    run: () => change('DELETE', path`/topics/${topic}/scheduled/${message.id}`),
    done: 'The message is cancelled.',
  });
}

function cancelMany(topic) {
  openDialog({
    title: 'Cancel delayed messages',
    submit: 'Cancel the messages',
    isDanger: true,
    typed: topic,
    body: [
      consequences('All delayed messages of the topic that are due in this time are never delivered. This cannot be undone.'),
      field({ name: 'from', label: 'Due from', kind: 'datetime-local', step: 1, required: true }),
      field({ name: 'to', label: 'Due before', kind: 'datetime-local', step: 1, required: true }),
    ],
    run({ from, to }) {
      const query = { from_ms: new Date(from).getTime(), to_ms: new Date(to).getTime() };
      if (!(query.from_ms < query.to_ms)) throw new InvalidInput('the first time must be before the second');
      return change('DELETE', path`/topics/${topic}/scheduled`, undefined, query);
    },
    done: ({ cancelled }) => `${plural(cancelled, 'message')} cancelled.`,
  });
}
