/** Keys and values of messages that are written with a schema of the registry: which one, in the form of a message. */

import { get, Problem } from './api.js';
import { h } from './dom.js';
import { field, InvalidInput } from './forms.js';

/** The kind of a key or a value in the form of a message: JSON that a schema says how to write. */
export const SCHEMA = 'schema';
const SUBJECTS_MAX = 200; // that are suggested

/** Whether a content was decoded whole, so that its JSON can be edited and written again with its schema. */
export function hasSchema(content) {
  return content?.decoded?.text !== undefined && !content.decoded.is_cut;
}

/** The fields that choose a schema. `part` is key or value; `decoded` is what a message that is edited was written with. */
export function schemaFields(part, label, subject, decoded) {
  return h(
    'div',
    { class: 'schema-fields', 'data-schema-of': part, hidden: true },
    field({ name: `${part}Subject`, label: `Subject for the ${label}`, value: decoded?.subject ?? subject, list: [] }),
    field({ name: `${part}Version`, label: `Version for the ${label}`, kind: 'number', min: 1, value: decoded?.version ?? '', placeholder: 'latest' }),
    field({ name: `${part}Message`, label: `Message of Protobuf for the ${label}`, value: decoded?.message ?? '', placeholder: 'the first of the file' }),
  );
}

/** Suggest the subjects of the registry. A new message to a topic that has one begins as JSON of it, if nothing is typed yet. */
export async function suggestSchemas(fields, topic, isNew) {
  let items;
  try {
    ({ items } = await get('/schemas', { limit: SUBJECTS_MAX, search: '' }));
  } catch (error) {
    if (error instanceof Problem) return; // Whoever may not read the registry types a name.
    throw error;
  }
  for (const each of fields.querySelectorAll('datalist')) {
    each.replaceChildren(...items.map(({ subject }) => h('option', { value: subject })));
  }
  const types = new Map(items.map(({ subject, type }) => [subject, type]));
  for (const part of ['key', 'value']) {
    const [subject, message] = ['Subject', 'Message'].map((name) => fields.querySelector(`[name="${part}${name}"]`));
    // Only a .proto file has several messages; what a subject is that is not known here, whoever types it knows.
    const adapt = () => { message.closest('.field').hidden = (types.get(subject.value) ?? 'PROTOBUF') !== 'PROTOBUF'; };
    subject.addEventListener('input', adapt);
    adapt();
  }
  const has = (part) => items.some(({ subject }) => subject === `${topic}-${part}`);
  const [kind, value, keyKind, key] = ['kind', 'value', 'keyKind', 'key'].map((name) => fields.querySelector(`[name="${name}"]`));
  if (isNew && value.value === '' && kind.value === 'text' && has('value')) kind.value = SCHEMA;
  if (isNew && key.value === '' && keyKind.value === 'text' && has('key')) keyKind.value = SCHEMA;
}

/** The content that fields hold, as the API takes it. */
export function readSchema(given, part, text) {
  const what = part === 'key' ? 'key' : 'value';
  try {
    JSON.parse(text);
  } catch (error) {
    throw new InvalidInput(`the ${what} is no JSON: ${error.message}`);
  }
  const subject = given[`${part}Subject`].trim();
  if (subject === '') throw new InvalidInput(`the ${what} needs a subject of the schema registry`);
  const schema = { subject };
  if (given[`${part}Version`] !== '') schema.version = Number(given[`${part}Version`]);
  if (given[`${part}Message`] !== '') schema.message = given[`${part}Message`].trim();
  // As text: a browser would round the numbers of JSON.
  return { text, schema };
}
