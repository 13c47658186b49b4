/** A transactional id: its open transaction, what it has written to, and ending it. */

import { change, get } from '../api.js';
import { h, patch, path } from '../dom.js';
import { consequences, openDialog } from '../forms.js';
import { count, duration, visible } from '../format.js';
import { button, facts, moment, section, topicLink } from '../parts.js';
import { table } from '../table.js';
import { transactionBadge } from './transactions.js';

export default function showTransaction(page) {
  const { id } = page.params;
  const about = h('div', null);
  const written = table({
    caption: 'Partitions that the open transaction has written to',
    key: (each) => `${each.topic} ${each.partition}`,
    empty: 'No transaction is open.',
    columns: [
      { title: 'Topic', cell: (each) => topicLink(each.topic) },
      { title: 'Partition', cell: (each) => each.partition },
    ],
  });
  page.show(
    page.heading(visible(id), {
      above: [['Transactions', '/transactions']],
      actions: [button('Commit', () => end(id, 'commit')), button('Abort', () => end(id, 'abort'), { class: 'danger' })],
    }),
    about,
    section('Written to', null, written.element),
  );
  page.watch({
    everyMs: 3000,
    load: (signal) => get(path`/transactions/${id}`, null, { signal }),
    show(found) {
      patch(about, facts([
        ['State', transactionBadge(found.state)],
        ['Began', moment(found.started_ms)],
        ['Open for', duration(found.age_ms)],
        ['Times out after', found.timeout_ms === null ? 'never: two-phase' : duration(found.timeout_ms)],
        ['Producer', `${found.producer_id}, epoch ${found.producer_epoch}`],
        ['Coordinator', `broker ${found.coordinator}`],
      ]));
      written.update(found.partitions);
    },
  });
}

function end(id, how) {
  const isCommit = how === 'commit';
  openDialog({
    title: isCommit ? 'Commit the prepared transaction' : 'Abort the transaction',
    submit: isCommit ? 'Commit' : 'Abort it',
    isDanger: !isCommit,
    body: consequences(
      isCommit
        ? 'Its messages are delivered. Only the prepared transaction of a two-phase producer can be committed here.'
        : 'Its messages are never delivered to consumers of committed messages.',
      'The producer is fenced: its next request fails, and it must start anew.',
    ),
    run: () => change('POST', path`/transactions/${id}/${how}`),
    done: isCommit ? 'The transaction is committed.' : 'The transaction is aborted.',
  });
}
