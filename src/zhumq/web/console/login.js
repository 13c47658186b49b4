/** The form that asks for a user and a password, or for a token. */

import { currentSession, logIn, Problem } from './api.js';
import { h, patch } from './dom.js';
import { field, values } from './forms.js';
import { problemBox } from './parts.js';

/** Show the form in place of a page. `done` is called after a login: the address has stayed what it was. */
export function showLogin(main, done) {
  if (main.querySelector('form.login')) return;
  document.title = 'Log in · zhumq';
  const isToken = currentSession().authentication === 'token';
  const failure = h('div', null);
  const fields = isToken
    ? [field({ name: 'token', label: 'Token', kind: 'password', required: true, autocomplete: 'off' })]
    : [
      field({ name: 'user', label: 'User', required: true, autocomplete: 'username' }),
      field({ name: 'password', label: 'Password', kind: 'password', required: true, autocomplete: 'current-password' }),
    ];

  async function submit(event) {
    event.preventDefault();
    patch(failure);
    try {
      await logIn(values(event.target));
      done();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      patch(failure, problemBox(error));
    }
  }

  const form = h(
    'form',
    { class: 'login', onsubmit: submit },
    h('h1', { tabindex: -1 }, 'Log in'),
    h('p', null, 'The broker checks who you are, and its ACLs decide what you may see and change.'),
    fields,
    failure,
    h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'primary' }, 'Log in')),
  );
  patch(main, form);
  form.querySelector('input').focus();
}
