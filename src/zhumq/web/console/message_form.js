/** The form of a message: to send one, or to edit one before it is sent. */

import { change } from './api.js';
import { indentJson } from './content.js';
import { h, path } from './dom.js';
import { field, InvalidInput, openDialog, values } from './forms.js';
import { plural } from './format.js';
import { hasSchema, readSchema, SCHEMA, schemaFields, suggestSchemas } from './message_schema.js';
import { button, copy } from './parts.js';
import { asCurl, asPython } from './snippets.js';

const KEY_KINDS = [['text', 'Text'], [SCHEMA, 'JSON of a schema'], ['base64', 'Base64']];
const KINDS = [['text', 'Text'], ['json', 'JSON'], [SCHEMA, 'JSON of a schema'], ['base64', 'Base64'], ['null', 'Null: a tombstone']];

/** The fields of a message to a topic. `message` is what they begin with. */
export function messageFields(topic, message = null) {
  const [kind, value] = shown(message?.value);
  const [keyKind, key] = shown(message?.key, /[\r\n]/);
  const headers = message?.headers ?? [];
  const fields = h(
    'div',
    { class: 'message-fields', onchange: adapt },
    field({ name: 'key', label: 'Key', value: key, hint: 'Messages with the same key go to the same partition, in order. Empty: none.' }),
    field({ name: 'keyKind', label: 'The key is', kind: 'select', options: KEY_KINDS, value: keyKind === 'null' ? 'text' : keyKind }),
    schemaFields('key', 'key', `${topic}-key`, message?.key?.decoded),
    field({ name: 'value', label: 'Value', kind: 'textarea', rows: 8, value }),
    field({ name: 'kind', label: 'The value is', kind: 'select', options: KINDS, value: message === null ? 'text' : kind }),
    schemaFields('value', 'value', `${topic}-value`, message?.value?.decoded),
    field({
      name: 'headers',
      label: 'Headers',
      kind: 'textarea',
      rows: 3,
      value: headers.map(headerLine).join('\n'),
      hint: 'One in each line: name: value, or name (base64): AP8=. zhumq-tags and zhumq-delay-ms mean what they mean for every client.',
    }),
  );

  /** Only what the chosen kinds need can be filled in. */
  function adapt() {
    for (const [part, select] of [['key', 'keyKind'], ['value', 'kind']]) {
      fields.querySelector(`[data-schema-of="${part}"]`).hidden = fields.querySelector(`[name="${select}"]`).value !== SCHEMA;
    }
  }

  adapt();
  suggestSchemas(fields, topic, message === null).then(adapt);
  return fields;
}

/** The message that fields hold, as the API takes it. */
export function readMessage(given) {
  const { key, keyKind, value, kind, headers, partition } = given;
  const message = {
    key: key === '' ? null : keyKind === SCHEMA ? readSchema(given, 'key', key) : { [keyKind]: key },
    value: kind === SCHEMA ? readSchema(given, 'value', value) : readValue(value, kind),
    headers: readHeaders(headers),
  };
  if (partition) message.partition = Number(partition);
  return message;
}

/** Ask for a message, and send it. */
export function sendMessage(topic, message = null, partitions = null) {
  const read = () => readMessage(values(dialog.form));
  const tryCopy = (make, what) => {
    try {
      copy(make(topic, read()), what);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      copy('', 'nothing, as the message is not complete');
    }
  };
  const dialog = openDialog({
    title: `Send a message to ${topic}`,
    submit: 'Send',
    isWide: true,
    body: [
      messageFields(topic, message),
      field({ name: 'partition', label: 'Partition', kind: 'number', min: 0, max: partitions === null ? null : partitions - 1, hint: 'Empty: the key chooses it.' }),
    ],
    more: h(
      'span',
      { class: 'left' },
      button('Copy as curl', () => tryCopy(asCurl, 'a command that sends this message')),
      button('Copy as Python', () => tryCopy(asPython, 'a program that sends this message')),
    ),
    run: (given) => change('POST', path`/topics/${topic}/messages`, { messages: [readMessage(given)] }),
    done({ messages }) {
      const [{ partition, offset }] = messages;
      return `Sent: partition ${partition}, offset ${offset}. It is on all in-sync replicas.`;
    },
  });
}

/** What a field shows of a content: its kind and its text. A field would change some line breaks, so it gets base64. */
function shown(content, lineBreaks = /\r/) {
  if (content === null || content === undefined) return ['null', ''];
  // As it was written: with the schema of its version.
  if (hasSchema(content)) return [SCHEMA, lineBreaks.test('\n') ? content.decoded.text : indentJson(content.decoded.text) ?? content.decoded.text];
  if (content.base64 !== undefined) return ['base64', content.base64];
  return lineBreaks.test(content.text) ? ['base64', toBase64(content.text)] : ['text', content.text];
}

function toBase64(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (each) => String.fromCharCode(each)).join(''));
}

/** Whether all of a message was read, and not only the beginning of a long value. */
export function isWhole(message) {
  return ![message.key, message.value, ...message.headers.map((each) => each.value)].some((each) => each?.is_cut);
}

/** Whether the form can hold all of a message: every header has a name that a line can begin with. */
export function isEditable(message) {
  return isWhole(message) && message.headers.every(({ name }) => name !== '' && name === name.trim() && !/[:\r\n]| \((base64|null)\)$/.test(name));
}

function headerLine({ name, value }) {
  const [kind, text] = shown(value, /[\r\n]/);
  return kind === 'text' ? `${name}: ${text}` : `${name} (${kind}): ${text}`;
}

function readValue(value, kind) {
  if (kind === 'null') return null;
  if (kind !== 'json') return { [kind]: value };
  try {
    JSON.parse(value);
  } catch (error) {
    throw new InvalidInput(`the value is no JSON: ${error.message}`);
  }
  // As text: the API would send the JSON as it is written, but a browser writes its numbers anew.
  return { text: value };
}

function readHeaders(text) {
  return text.split('\n').filter((each) => each.trim() !== '').map((line) => {
    const at = line.indexOf(':');
    if (at < 1) throw new InvalidInput(`"${line}" is no header: write name: value`);
    const content = line.slice(at + 1).replace(/^ /, '');
    const [, name, kind] = line.slice(0, at).trim().match(/^(.*?)(?: \((base64|null)\))?$/);
    return { name, value: kind === 'null' ? null : { [kind ?? 'text']: content } };
  });
}

/** "3 headers" */
export function headerCount(headers) {
  return headers.length ? plural(headers.length, 'header') : '';
}
