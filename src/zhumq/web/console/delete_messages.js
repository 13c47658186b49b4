/** Deleting the oldest messages of a topic: what would be deleted is shown while it is chosen, and only that is deleted. */

import { change, Problem } from './api.js';
import { h, patch, path } from './dom.js';
import { consequences, field, InvalidInput, openDialog, values } from './forms.js';
import { count, plural } from './format.js';
import { problemBox, sentence } from './parts.js';
import { table } from './table.js';

const TYPING_MS = 300;
const CHOICES = [['latest', 'All that are there now'], ['offset', 'All before an offset'], ['time', 'All before a time']];

export function deleteMessages(topic) {
  const preview = h('div', { 'aria-live': 'polite' });
  let planned = null;
  let asked = 0;
  let typing = null;
  const dialog = openDialog({
    title: 'Delete messages',
    submit: 'Delete the messages',
    isDanger: true,
    isWide: true,
    typed: topic,
    body: [
      consequences(
        'They cannot be brought back. The topic, its settings and its offsets stay: the next message has the next offset.',
        'A group that has not read them skips them.',
      ),
      field({ name: 'what', label: 'Delete', kind: 'select', options: CHOICES }),
      field({ name: 'at', label: 'Offset or time', placeholder: '17, or 2026-01-31T09:00', hint: 'Only for an offset or a time.' }),
      field({ name: 'partition', label: 'Partition', kind: 'number', min: 0, hint: 'Empty: all of them.' }),
      preview,
    ],
    run() {
      const offsets = (planned ?? []).filter(({ before, after }) => after > before).map(({ partition, after }) => ({ partition, offset: after }));
      if (offsets.length === 0) throw new InvalidInput('nothing would be deleted');
      return change('POST', path`/topics/${topic}/delete-records`, { offsets });
    },
    done: ({ changes }) => `${plural(sumOf(changes), 'message')} deleted.`,
  });
  dialog.form.addEventListener('input', ({ target }) => {
    if (target.name === 'typed') return;
    planned = null; // What is shown is not what is chosen now.
    clearTimeout(typing);
    typing = setTimeout(look, TYPING_MS);
  });

  async function look() {
    asked += 1;
    const mine = asked;
    try {
      const { changes } = await change('POST', path`/topics/${topic}/delete-records`, body(values(dialog.form)));
      if (mine !== asked) return; // Something else was chosen meanwhile.
      planned = changes;
      patch(preview, h('p', null, h('strong', null, plural(sumOf(changes), 'message')), ' would be deleted.'), planTable(changes));
    } catch (problem) {
      if (!(problem instanceof Problem || problem instanceof InvalidInput)) throw problem;
      if (mine === asked) patch(preview, problemBox(problem instanceof Problem ? problem : sentence(problem.message)));
    }
  }

  look();
}

function body({ what, at, partition }) {
  return { before: position(what, at.trim()), partition: partition === '' ? null : Number(partition), dry_run: true };
}

function position(what, at) {
  if (what === 'latest') return what;
  if (what === 'offset') {
    if (!/^\d+$/.test(at)) throw new InvalidInput('give an offset, such as 17');
    return at;
  }
  const milliseconds = new Date(at).getTime();
  if (Number.isNaN(milliseconds)) throw new InvalidInput('give a time, such as 2026-01-31T09:00');
  return `@${Math.max(milliseconds, 0)}`;
}

function sumOf(changes) {
  return changes.reduce((sum, { before, after }) => sum + after - before, 0);
}

function planTable(changes) {
  const list = table({
    caption: 'What would be deleted',
    key: (each) => String(each.partition),
    columns: [
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'Earliest now', kind: 'number', cell: (each) => count(each.before) },
      { title: 'Then', kind: 'number', cell: (each) => count(each.after) },
      { title: 'Messages', kind: 'number', cell: (each) => count(each.after - each.before) },
    ],
  });
  list.update(changes);
  return list.element;
}
