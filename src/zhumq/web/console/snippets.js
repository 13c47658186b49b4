/** A message as a command or a program that sends it. */

import { currentSession } from './api.js';

/** @typedef {{key: ?Object, value: ?Object, headers: {name: string, value: ?Object}[], partition?: number}} Given */

/** Where programs find the brokers, as the server of the console does. */
let bootstrap = '127.0.0.1:9092';

export function setBootstrap(address) {
  bootstrap = address;
}

/** What the API takes for a content that it has shown. */
export function given(content) {
  if (content === null) return null;
  return content.text !== undefined ? { text: content.text } : { base64: content.base64 };
}

/** The message to send that is the same as one that was read. */
export function givenMessage(message) {
  return {
    key: given(message.key),
    value: given(message.value),
    headers: message.headers.map(({ name, value }) => ({ name, value: given(value) })),
  };
}

/** A command for a shell. */
export function asCurl(topic, message) {
  const url = `${location.origin}/api/v1/topics/${encodeURIComponent(topic)}/messages`;
  const body = JSON.stringify({ messages: [message] });
  return `curl --fail-with-body -s ${shell(url)} -H 'Content-Type: application/json' -d ${shell(body)}`;
}

/** A program in Python. One with a schema asks the API, which has the registry. */
export function asPython(topic, message) {
  if (message.key?.schema || message.value?.schema) return asRequest(topic, message);
  const lines = ['import base64', '', 'import zhumq', ''];
  if (currentSession().authentication !== 'none') lines.push('# The brokers ask who you are: give the producer security={"sasl.username": ..., "sasl.password": ...} as well.');
  const named = [`${literal(topic)}`, python(message.value)];
  if (message.key !== null) named.push(`key=${python(message.key)}`);
  if (message.headers.length) {
    named.push(`headers=[${message.headers.map(({ name, value }) => `(${literal(name)}, ${python(value)})`).join(', ')}]`);
  }
  if (message.partition !== undefined) named.push(`partition=${message.partition}`);
  lines.push(`with zhumq.Producer(${literal(bootstrap)}) as producer:`, `    producer.send(${named.join(', ')})`, '');
  const needsBase64 = named.some((each) => each.includes('base64.b64decode('));
  return lines.slice(needsBase64 ? 0 : 2).join('\n');
}

function asRequest(topic, message) {
  const url = `${location.origin}/api/v1/topics/${encodeURIComponent(topic)}/messages`;
  const lines = ['import urllib.request', ''];
  const headers = ['"Content-Type": "application/json"'];
  if (currentSession().authentication !== 'none') headers.push('"Authorization": "Bearer ..."');
  lines.push(
    `body = ${literal(JSON.stringify({ messages: [message] }))}.encode()`,
    `request = urllib.request.Request(${literal(url)}, body, {${headers.join(', ')}})`,
    'with urllib.request.urlopen(request) as answer:',
    '    print(answer.read().decode())',
    '',
  );
  return lines.join('\n');
}

function python(content) {
  if (content === null) return 'None';
  if (content.text !== undefined) return `${literal(content.text)}.encode()`;
  if (content.json !== undefined) return `${literal(JSON.stringify(content.json))}.encode()`;
  return `base64.b64decode(${literal(content.base64)})`;
}

/** A text in Python: it has the escapes of JSON. */
function literal(text) {
  return JSON.stringify(text);
}

function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
