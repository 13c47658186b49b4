/** The settings of a topic: what each is, where it comes from, and changing it. */

import { change, get } from '../api.js';
import { h, path } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { visible } from '../format.js';
import { button } from '../parts.js';
import { inWords, originBadge } from '../setting_parts.js';
import { table } from '../table.js';
import { topicHeading } from '../topic_parts.js';

export default function showTopicSettings(page) {
  const { topic } = page.params;
  let found = [];
  const list = table({
    caption: `Settings of ${topic}`,
    key: (each) => each.name,
    empty: 'No setting has this in its name.',
    columns: [
      { title: 'Setting', cell: (each) => h('code', null, each.name), sort: (each) => each.name },
      { title: 'Value', kind: 'wide', cell: (each) => [h('code', null, visible(each.value ?? '–')), inWords(each.name, each.value)] },
      { title: 'Default', cell: (each) => h('code', null, visible(each.default ?? '–')) },
      { title: 'Comes from', cell: (each) => originBadge(each.origin, 'this topic'), sort: (each) => each.origin },
      { title: 'Change', kind: 'actions', cell: (each) => button('Change', () => changeSetting(topic, each), { 'aria-label': `Change ${each.name}` }) },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), oninput: draw },
    field({ name: 'search', label: 'Search', kind: 'search', value: page.query.get('search') ?? '', placeholder: 'retention' }),
    field({ name: 'own', label: 'Only its own', kind: 'checkbox' }),
  );

  function draw() {
    const sought = filters.elements.search.value.toLowerCase();
    list.update(found.filter((each) => each.name.includes(sought) && (each.is_own || !filters.elements.own.checked)));
  }

  page.show(topicHeading(page, '/settings'), filters, list.element);
  page.watch({
    everyMs: 15_000,
    kinds: ['topic'],
    name: topic,
    load: (signal) => get(path`/topics/${topic}/settings`, null, { signal }),
    show(settings) {
      found = settings;
      draw();
    },
  });
}

function changeSetting(topic, setting) {
  const run = (value) => change('PATCH', path`/topics/${topic}`, { settings: { [setting.name]: value } });
  const dialog = openDialog({
    title: `Change ${setting.name}`,
    submit: 'Set',
    body: [
      consequences(
        effect(setting.name),
        'The change takes effect at once on all brokers.',
        setting.is_own ? `Without a value of its own the topic has ${setting.default ?? 'the default'}.` : null,
      ),
      field({ name: 'value', label: 'Value', value: setting.value ?? '', hint: `The default is ${setting.default ?? 'not known'}.` }),
    ],
    more: setting.is_own ? button('Use the default', () => unset(), { class: 'left' }) : null,
    run: ({ value }) => run(value),
    done: `${setting.name} is set.`,
  });

  function unset() {
    dialog.close();
    openDialog({
      title: `Use the default of ${setting.name}`,
      submit: 'Use the default',
      body: consequences(`It becomes ${setting.default ?? 'the default'}; now it is ${setting.value}.`, effect(setting.name)),
      run: () => run(null),
      done: `${setting.name} is the default again.`,
    });
  }
}

/** What a change of a setting does to messages that are there, where that is not obvious. */
function effect(name) {
  if (name.startsWith('retention.')) return 'Messages that are too old or too many by the new value are deleted soon, and cannot be brought back.';
  if (name === 'cleanup.policy') return 'With compact, only the newest message of each key is kept; those without a key are refused.';
  if (name === 'min.insync.replicas') return 'Producers with acks=all are refused while fewer replicas than this are in sync.';
  if (name === 'max.message.bytes') return 'Larger messages are refused from now on; those that are there stay.';
  return null;
}
