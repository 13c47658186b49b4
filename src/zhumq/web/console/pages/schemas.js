/** The subjects of the schema registry. */

import { get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { field } from '../forms.js';
import { count, visible } from '../format.js';
import { badge, button, pager, problemBox } from '../parts.js';
import { setAddress } from '../router.js';
import { missingText, registerSchema } from '../schema_parts.js';
import { table } from '../table.js';

const PAGE_ROWS = 100;
const TYPING_MS = 200;

export default function showSchemas(page) {
  const query = { search: page.query.get('search') ?? '', deleted: page.query.get('deleted') === 'true', after: page.query.get('after') ?? '' };
  const pages = h('div', null);
  const warning = h('div', null);
  const list = table({
    caption: 'Subjects',
    key: (each) => each.subject,
    empty: 'No such subjects. A subject is there when its first schema is registered: by a serializer, by zhumq schema register, or here.',
    columns: [
      { title: 'Subject', kind: 'wide', cell: (each) => h('a', { href: path`/schemas/${each.subject}`, class: 'name' }, visible(each.subject)), sort: (each) => each.subject },
      { title: 'Type', cell: (each) => each.type, sort: (each) => each.type },
      { title: 'Versions', kind: 'number', cell: (each) => count(each.versions.length), sort: (each) => each.versions.length },
      { title: 'Latest version', kind: 'number', cell: (each) => each.versions.at(-1) },
      { title: 'Its id', kind: 'number', cell: (each) => each.latest_id, sort: (each) => each.latest_id },
      { title: 'Compatibility', cell: (each) => each.compatibility, sort: (each) => each.compatibility },
      { title: 'State', cell: (each) => (each.is_deleted ? badge('deleted', 'warn') : badge(each.mode.toLowerCase(), 'plain')) },
    ],
  });
  let typing = null;
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: onInput },
    field({ name: 'search', label: 'Search', kind: 'search', value: query.search, placeholder: 'part of a name' }),
    field({ name: 'deleted', label: 'Deleted ones, too', kind: 'checkbox', value: query.deleted }),
  );

  function onInput() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      Object.assign(query, { search: filters.elements.search.value, deleted: filters.elements.deleted.checked, after: '' });
      setAddress(query);
      reading.refresh();
    }, TYPING_MS);
  }

  page.show(
    page.heading('Schemas', { actions: [button('Register a schema', () => registerSchema(), { class: 'primary' })] }),
    warning,
    filters,
    list.element,
    pages,
  );
  const reading = page.watch({
    everyMs: 10_000,
    load: (signal) => get('/schemas', { ...query, limit: PAGE_ROWS }, { signal }),
    show(found) {
      list.update(found.items);
      patch(warning, found.missing.length ? problemBox(missingText(found.missing)) : null);
      patch(pages, pager(query.after, found.next, (after) => withQuery('/schemas', { ...query, after })));
    },
  });
}
