/** Forms and dialogs: labels, hints, and what will happen before it happens. */

import { Problem } from './api.js';
import { h, patch } from './dom.js';
import { refreshAll } from './live.js';
import { note, problemBox, sentence } from './parts.js';

let fieldCount = 0;

/**
 * A field with its label and a hint.
 * @param {{name: string, label: string, kind?: string, hint?: *, value?: *, options?: (string|[string, string])[],
 *   required?: boolean, placeholder?: string, autocomplete?: string, list?: string[], rows?: number}} what
 */
export function field({ name, label, kind = 'text', hint, options, list, rows, value, ...attributes }) {
  fieldCount += 1;
  const id = `field-${fieldCount}`;
  const common = { id, name, 'aria-describedby': hint ? `${id}-hint` : null, ...attributes };
  let input;
  if (kind === 'select') {
    const choices = options.map((each) => (Array.isArray(each) ? each : [each, each]));
    input = h('select', common, choices.map(([each, text]) => h('option', { value: each, selected: each === (value ?? '') }, text)));
  } else if (kind === 'textarea') {
    input = h('textarea', { rows: rows ?? 6, spellcheck: 'false', ...common, value: value ?? '' });
  } else if (kind === 'checkbox') {
    input = h('input', { type: 'checkbox', ...common, checked: Boolean(value) });
  } else {
    const isName = kind === 'text' || kind === 'search';
    input = h('input', {
      type: kind,
      list: list ? `${id}-list` : null,
      autocomplete: 'off',
      spellcheck: isName ? 'false' : null,
      autocapitalize: isName ? 'none' : null,
      ...common,
      value: value ?? '',
    });
  }
  return h(
    'div',
    { class: `field ${kind}` },
    h('label', { for: id }, label),
    input,
    list ? h('datalist', { id: `${id}-list` }, list.map((each) => h('option', { value: each }))) : null,
    hint ? h('p', { class: 'hint', id: `${id}-hint` }, hint) : null,
  );
}

/** What the fields of a form hold, by their names. Checkboxes are true or false. */
export function values(form) {
  const found = {};
  for (const element of form.elements) {
    if (!element.name) continue;
    found[element.name] = element.type === 'checkbox' ? element.checked : element.value;
  }
  return found;
}

/**
 * A dialog with a form. `run` gets its values; when it is done the dialog closes, and `done` is said. A problem is
 * shown in the dialog, which stays.
 * @param {{title: string, body: *, submit: string, isDanger?: boolean, typed?: ?string, run: (values: Object) => Promise<*>,
 *   done?: string|((answer: *) => ?string), isWide?: boolean, more?: *}} what `typed`: what must be typed before it can be submitted
 */
export function openDialog({ title, body, submit, isDanger = false, typed = null, run, done, isWide = false, more = null }) {
  const failure = h('div', null);
  const send = h('button', { type: 'submit', class: isDanger ? 'danger' : 'primary', disabled: typed !== null }, submit);
  const check = typed === null ? null : field({ name: 'typed', label: h('span', null, 'Type ', h('code', null, typed), ' to confirm') });
  const form = h(
    'form',
    { method: 'dialog', novalidate: false, onsubmit, oninput: onInput },
    h('h2', { id: 'dialog-title' }, title),
    body,
    check,
    failure,
    h('div', { class: 'buttons' }, more, h('button', { type: 'button', onclick: () => dialog.close() }, submit ? 'Back' : 'Close'), submit ? send : null),
  );
  const dialog = h('dialog', { class: isWide ? 'wide' : null, 'aria-labelledby': 'dialog-title', onclose: () => dialog.remove() }, form);

  function onInput() {
    if (typed !== null) send.disabled = form.elements.typed.value !== typed;
  }

  async function onsubmit(event) {
    event.preventDefault();
    if (!submit) return;
    send.disabled = true;
    patch(failure);
    try {
      const answer = await run(values(form));
      dialog.close();
      const text = typeof done === 'function' ? done(answer) : done;
      if (text) note(text);
      refreshAll();
    } catch (error) {
      if (!(error instanceof Problem || error instanceof InvalidInput)) throw error;
      patch(failure, error instanceof Problem ? problemBox(error) : problemBox(sentence(error.message)));
    } finally {
      send.disabled = false;
      onInput();
    }
  }

  document.body.append(dialog);
  // The browser gives the focus back to what opened the dialog when it closes.
  dialog.showModal();
  form.querySelector('input, select, textarea')?.focus();
  return { form, close: () => dialog.close() };
}

/** A field holds what cannot be sent: said in the dialog. */
export class InvalidInput extends Error {}

/** What will happen, as a list, before it does. */
export function consequences(...lines) {
  return h('ul', { class: 'consequences' }, lines.filter(Boolean).map((each) => h('li', null, each)));
}
