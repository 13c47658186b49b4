/** A subject of the schema registry: its versions, their texts and references, and what may change. */

import { change, get, REGISTRY } from '../api.js';
import { indentJson } from '../content.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { plural, visible } from '../format.js';
import { badge, button, copy, facts, section } from '../parts.js';
import { go, setAddress } from '../router.js';
import { registerSchema } from '../schema_parts.js';
import { table } from '../table.js';

const LEVELS = ['BACKWARD', 'BACKWARD_TRANSITIVE', 'FORWARD', 'FORWARD_TRANSITIVE', 'FULL', 'FULL_TRANSITIVE', 'NONE'];
const MEANINGS = {
  NONE: 'Anything may follow.',
  BACKWARD: 'A new version reads what was written with the latest one.',
  BACKWARD_TRANSITIVE: 'A new version reads what was written with any version.',
  FORWARD: 'The latest version reads what is written with a new one.',
  FORWARD_TRANSITIVE: 'Every version reads what is written with a new one.',
  FULL: 'A new version and the latest one read each other.',
  FULL_TRANSITIVE: 'A new version and every other read each other.',
};

export default function showSchema(page) {
  const { subject } = page.params;
  const about = h('div', null);
  const text = h('div', null);
  const actions = h('span', { class: 'actions' });
  let chosen = Number(page.query.get('version')) || null;
  let shown = null; // the version whose text is shown, as the registry has it
  let details = null;
  const list = table({
    caption: `Versions of ${subject}`,
    key: (each) => String(each.version),
    columns: [
      { title: 'Version', cell: (each) => versionButton(each), sort: (each) => each.version },
      { title: 'Id', kind: 'number', cell: (each) => each.id, sort: (each) => each.id },
      { title: 'Type', cell: (each) => each.type },
      { title: 'State', cell: (each) => (each.is_deleted ? badge('deleted', 'warn') : badge('in use', 'plain')) },
      { title: 'Refers to', kind: 'wide', cell: (each) => links(each.references) },
      { title: 'Referred to by', cell: (each) => links(each.referenced_by) },
      { title: 'Delete', kind: 'actions', cell: (each) => deleteButton(each) },
    ],
  });

  function versionButton({ version }) {
    return button(`Version ${version}`, () => choose(version), { 'aria-pressed': String(version === shownVersion()) });
  }

  function deleteButton(each) {
    return button('Delete', () => deleteVersion(subject, each), { class: 'danger', 'aria-label': `Delete version ${each.version}` });
  }

  function shownVersion() {
    return chosen ?? details?.versions.at(-1)?.version ?? null;
  }

  function choose(version) {
    chosen = version;
    setAddress({ version: String(version) });
    list.update(newestFirst(details));
    reading.refresh();
  }

  page.show(
    page.heading(visible(subject), { above: [['Schemas', '/schemas']], actions: [actions] }),
    about,
    section('Versions', null, list.element),
    text,
  );
  page.watch({
    everyMs: 10_000,
    load: (signal) => get(path`/schemas/${subject}`, null, { signal }),
    show(found) {
      if (found === details) return; // A button that has the focus stays.
      details = found;
      list.update(newestFirst(found));
      patch(about, aboutSubject(found));
      actions.replaceChildren(...subjectActions(found, () => registerSchema(latestOf(shown, found))));
      reading.refresh();
    },
  });
  const reading = page.watch({
    everyMs: 60_000, // A version never changes.
    async load(signal) {
      const version = shownVersion();
      if (version === null) return null;
      return get(path`/subjects/${subject}/versions/${version}`, { deleted: true }, { signal, prefix: REGISTRY });
    },
    show(found) {
      if (found === null || found.version !== shownVersion()) return;
      shown = { ...found, type: found.schemaType ?? 'AVRO', references: found.references ?? [] };
      patch(text, schemaText(shown));
    },
    fail() {}, // The list says what is wrong.
  });
}

function newestFirst({ versions }) {
  return [...versions].reverse();
}

/** What the form of a new version begins with. */
function latestOf(shown, { subject }) {
  return { subject, type: shown?.type ?? 'AVRO', schema: shown === null ? '' : pretty(shown), references: shown?.references ?? [] };
}

function pretty({ schema }) {
  return indentJson(schema) ?? schema;
}

function aboutSubject(found) {
  const own = found.has_own_compatibility ? 'of this subject' : 'of all subjects';
  return facts([
    ['Compatibility', [badge(found.compatibility, 'accent'), ' ', own]],
    ['Which means', MEANINGS[found.compatibility] ?? ''],
    ['Mode', found.mode.toLowerCase()],
    ['Versions', found.versions.length],
  ]);
}

function subjectActions(found, register) {
  const isGone = found.versions.every((each) => each.is_deleted);
  return [
    button('Register a new version', register, { class: 'primary' }),
    button('Change compatibility', () => changeLevel(found)),
    button(isGone ? 'Delete for good' : 'Delete', () => deleteSubject(found, isGone), { class: 'danger' }),
  ];
}

function schemaText(found) {
  return section(
    `Version ${found.version}`,
    null,
    h('div', { class: 'toolbar' }, h('span', null, `Schema id ${found.id}`), button('Copy', () => copy(found.schema, 'the schema'))),
    h('div', { class: 'content' }, h('pre', { tabindex: 0, role: 'group', 'aria-label': `Schema of version ${found.version}` }, visible(pretty(found)))),
  );
}

function links(places) {
  if (places.length === 0) return '–';
  return places.map(({ name, subject, version }) => h(
    'div',
    null,
    name ? [h('code', null, visible(name)), ' is '] : null,
    h('a', { href: withQuery(path`/schemas/${subject}`, { version: String(version) }) }, `${visible(subject)} version ${version}`),
  ));
}

function changeLevel({ subject, compatibility, has_own_compatibility: isOwn }) {
  openDialog({
    title: `What may change in ${subject}`,
    submit: 'Set',
    body: [
      consequences('It holds for versions that are registered from now on. Those that are there are not compared again.'),
      field({
        name: 'level',
        label: 'Compatibility',
        kind: 'select',
        options: [['', 'As for all subjects'], ...LEVELS.map((each) => [each, `${each}: ${MEANINGS[each]}`])],
        value: isOwn ? compatibility : '',
      }),
    ],
    run({ level }) {
      if (level !== '') return change('PUT', path`/config/${subject}`, { compatibility: level }, null, { prefix: REGISTRY });
      return isOwn ? change('DELETE', path`/config/${subject}`, undefined, null, { prefix: REGISTRY }) : null;
    },
    done: 'The compatibility is set.',
  });
}

function deleteSubject({ subject, versions }, isGone) {
  openDialog({
    title: isGone ? 'Delete the subject for good' : 'Delete the subject',
    submit: isGone ? 'Delete for good' : 'Delete the subject',
    isDanger: true,
    typed: subject,
    body: consequences(
      ...(isGone ? [
        `${plural(versions.length, 'version')} are gone for good. Messages that were written with them cannot be decoded any more.`,
      ] : [
        `${plural(versions.filter((each) => !each.is_deleted).length, 'version')} are deleted. Serializers that look for the subject register it anew, or fail.`,
        'Consumers still find the schemas by their ids. It can be deleted for good after this.',
      ]),
      'It is refused while other schemas refer to one of its versions.',
    ),
    run: () => change('DELETE', path`/subjects/${subject}`, undefined, { permanent: isGone }, { prefix: REGISTRY }),
    done() {
      if (isGone) go('/schemas');
      return isGone ? `${subject} is deleted for good.` : `${subject} is deleted.`;
    },
  });
}

function deleteVersion(subject, { version, is_deleted: isGone, referenced_by: referrers }) {
  openDialog({
    title: `Delete version ${version}${isGone ? ' for good' : ''}`,
    submit: isGone ? 'Delete for good' : 'Delete the version',
    isDanger: true,
    typed: subject,
    body: consequences(
      isGone ? 'Messages that were written with it cannot be decoded any more.' : 'New versions are not compared with it any more. Consumers still find it by its id.',
      referrers.length ? `${plural(referrers.length, 'version')} of other schemas refer to it: it is refused.` : null,
    ),
    run: () => change('DELETE', path`/subjects/${subject}/versions/${version}`, undefined, { permanent: isGone }, { prefix: REGISTRY }),
    done: `Version ${version} is deleted.`,
  });
}
