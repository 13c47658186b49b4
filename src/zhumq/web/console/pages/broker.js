/** A broker: its settings as it has them, and where each comes from. */

import { get } from '../api.js';
import { h, path } from '../dom.js';
import { field } from '../forms.js';
import { visible } from '../format.js';
import { emptyText } from '../parts.js';
import { inWords, originBadge } from '../setting_parts.js';
import { table } from '../table.js';

export default function showBroker(page) {
  const { broker } = page.params;
  let found = [];
  const list = table({
    caption: `Settings of broker ${broker}`,
    key: (each) => each.name,
    empty: 'No setting has this in its name.',
    columns: [
      { title: 'Setting', cell: (each) => h('code', null, each.name), sort: (each) => each.name },
      { title: 'Value', kind: 'wide', cell: (each) => [h('code', null, visible(each.value ?? 'not shown')), inWords(each.name, each.value)] },
      { title: 'Default', cell: (each) => h('code', { class: 'clip', title: each.default }, visible(each.default || '–')) },
      { title: 'Comes from', cell: (each) => originBadge(each.origin, 'this broker'), sort: (each) => each.origin },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: draw },
    field({ name: 'search', label: 'Search', kind: 'search', value: page.query.get('search') ?? '', placeholder: 'log.retention' }),
    field({ name: 'other', label: 'Only those without the default', kind: 'checkbox' }),
  );

  function draw() {
    const sought = filters.elements.search.value.toLowerCase();
    list.update(found.filter((each) => each.name.includes(sought) && (each.origin !== 'default' || !filters.elements.other.checked)));
  }

  page.show(
    page.heading(`Broker ${visible(broker)}`, { above: [['Cluster', '/cluster']] }),
    emptyText(
      'To change one, write it into the settings that the broker is started with, and start it again. How fast replicas that move are copied is changed while it runs: ',
      h('a', { href: '/cluster' }, 'Cluster'),
      '.',
    ),
    filters,
    list.element,
  );
  page.watch({
    everyMs: 30_000,
    load: (signal) => get(path`/cluster/brokers/${broker}/settings`, null, { signal }),
    show(settings) {
      found = settings;
      draw();
    },
  });
}
