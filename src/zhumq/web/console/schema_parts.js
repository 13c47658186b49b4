/** What the pages of schemas share: registering one, after what would break was shown. */

import { change, Problem, REGISTRY } from './api.js';
import { h, patch, path } from './dom.js';
import { consequences, field, InvalidInput, openDialog, values } from './forms.js';
import { visible } from './format.js';
import { badge, button, problemBox } from './parts.js';
import { go } from './router.js';

const CHECK_MS = 500; // after the last key
const TYPES = [['AVRO', 'Avro'], ['JSON', 'JSON Schema'], ['PROTOBUF', 'Protobuf']];

/** Why schemas cannot be registered or decoded here. */
export function missingText(missing) {
  return `The registry of this server is without ${missing.join(', ')}: pip install 'zhumq[registry]'.`
    + ' Until then schemas can be looked at, but neither registered nor used to decode messages.';
}

/**
 * Ask for a schema, show whether it could be the next version and what would break, and register it.
 * @param {?{subject: string, type: string, schema: string, references: Object[]}} latest the version that it would follow
 */
export function registerSchema(latest = null) {
  const result = h('div', { 'aria-live': 'polite' });
  let timer = null;
  let asked = 0;

  /** Show whether a schema could be registered. Gives whether it can. */
  async function check() {
    clearTimeout(timer);
    asked += 1;
    const mine = asked;
    const given = values(dialog.form);
    if (given.subject === '' || given.schema.trim() === '') {
      patch(result);
      return false;
    }
    let answer;
    try {
      answer = await change('POST', path`/compatibility/subjects/${given.subject}/versions`, bodyOf(given), { verbose: true }, { prefix: REGISTRY });
    } catch (error) {
      if (!(error instanceof Problem || error instanceof InvalidInput)) throw error;
      if (mine === asked) patch(result, problemBox(error instanceof Problem ? error : error.message));
      return false;
    }
    // An answer to what was typed before says nothing of what is there now.
    if (mine === asked) patch(result, verdict(answer));
    return answer.is_compatible;
  }

  const dialog = openDialog({
    title: latest === null ? 'Register a schema' : `Register a new version of ${latest.subject}`,
    submit: 'Register',
    isWide: true,
    body: [
      consequences(
        'Producers and consumers can use it at once. A schema that is a version already is not registered twice.',
        'It is compared with the versions before it by the rule of the subject; what would break is shown below.',
      ),
      latest === null ? field({ name: 'subject', label: 'Subject', required: true, placeholder: 'orders-value', hint: 'Serializers look for TOPIC-value and TOPIC-key.' })
        : h('input', { type: 'hidden', name: 'subject', value: latest.subject }),
      field({ name: 'type', label: 'Type', kind: 'select', options: TYPES, value: latest?.type ?? 'AVRO' }),
      field({ name: 'schema', label: 'Schema', kind: 'textarea', rows: 14, required: true, value: latest?.schema ?? '' }),
      field({
        name: 'references',
        label: 'References',
        kind: 'textarea',
        rows: 2,
        value: (latest?.references ?? []).map((each) => `${each.name} = ${each.subject} ${each.version}`).join('\n'),
        hint: 'Other schemas that it uses, one in each line: name = subject version.',
      }),
      result,
    ],
    more: button('Check', check, { class: 'left' }),
    async run(given) {
      const body = bodyOf(given);
      if (!(await check())) throw new InvalidInput('it is not registered: see above what is wrong with it');
      return change('POST', path`/subjects/${given.subject}/versions`, body, null, { prefix: REGISTRY });
    },
    done({ id, version }) {
      const { subject } = values(dialog.form);
      if (latest === null) go(path`/schemas/${subject}`);
      return `Registered: version ${version}, id ${id}.`;
    },
  });
  dialog.form.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_MS);
  });
}

function verdict({ is_compatible: isCompatible, messages }) {
  if (isCompatible) return h('p', null, badge('compatible', 'good'), ' It can be the next version.');
  return h(
    'div',
    { class: 'verdict' },
    h('p', null, badge('not compatible', 'bad'), ' This would break:'),
    h('ul', null, messages.map((each) => h('li', null, visible(each)))),
  );
}

function bodyOf({ schema, type, references }) {
  return {
    schema,
    schemaType: type,
    references: references.split('\n').filter((each) => each.trim() !== '').map((line) => {
      const found = line.trim().match(/^(.+?)\s*=\s*(.+?)\s+(\d+)$/);
      if (found === null) throw new InvalidInput(`"${line}" is no reference: write name = subject version`);
      return { name: found[1], subject: found[2], version: Number(found[3]) };
    }),
  };
}
