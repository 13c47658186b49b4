/** Runs of pipelines: their state, how far behind they are, and rows that broke a rule. */

import { get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { count, visible } from '../format.js';
import { badge, moment, pager } from '../parts.js';
import { table } from '../table.js';

const KINDS = { starting: 'accent', running: 'good', stopping: 'accent', done: 'plain', stopped: 'plain', failed: 'bad', lost: 'bad' };
const NOTHING = 'No pipeline has published its progress here. Run one with: zhumq pipeline run FILE.yml --publish';

export default function showPipelines(page) {
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: 'Pipelines',
    key: (each) => each.pipeline,
    empty: NOTHING,
    columns: [
      { title: 'Pipeline', cell: link, sort: (each) => each.pipeline },
      { title: 'State', cell: (each) => stateBadge(each.state), sort: (each) => each.state },
      { title: 'Reads', cell: (each) => h('bdi', { class: 'clip' }, visible(each.sources.join(', '))) },
      { title: 'Behind', kind: 'number', cell: (each) => count(each.lag), sort: (each) => each.lag },
      { title: 'Rows a second', kind: 'number', cell: (each) => count(each.rate), sort: (each) => each.rate },
      { title: 'Bad rows', kind: 'number', cell: (each) => (each.bad_rows ? badge(count(each.bad_rows), 'warn') : '0'), sort: (each) => each.bad_rows },
      { title: 'Started', cell: (each) => moment(each.started_ms), sort: (each) => each.started_ms },
      { title: 'Last seen', cell: (each) => moment(each.updated_ms), sort: (each) => each.updated_ms },
    ],
  });
  page.show(page.heading('Pipelines'), list.element, pages);
  page.watch({
    everyMs: 4000,
    load: (signal) => get('/pipelines', { after }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery('/pipelines', { after: each })));
    },
  });
}

export function stateBadge(state) {
  return badge(state, KINDS[state] ?? 'plain');
}

function link({ pipeline }) {
  return h('a', { href: path`/pipelines/${pipeline}`, class: 'name' }, visible(pipeline));
}
