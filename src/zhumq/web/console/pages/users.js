/** Users: create them, set their passwords, delete them. */

import { change, get } from '../api.js';
import { h, patch, path, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { visible } from '../format.js';
import { button, pager } from '../parts.js';
import { table } from '../table.js';

export default function showUsers(page) {
  const after = page.query.get('after') ?? '';
  const pages = h('div', null);
  const list = table({
    caption: 'Users',
    key: (each) => each.user,
    empty: 'There are no users with a password. Who reaches a listener without SASL needs none.',
    columns: [
      { title: 'User', kind: 'wide', cell: (each) => h('bdi', null, visible(each.user)), sort: (each) => each.user },
      { title: 'Mechanisms', cell: (each) => each.mechanisms.join(', ') || '–' },
      { title: 'ACLs', cell: (each) => h('a', { href: withQuery('/acls', { principal: `User:${each.user}` }) }, 'ACLs') },
      {
        title: 'Actions',
        kind: 'actions',
        cell: (each) => h(
          'span',
          null,
          button('Set password', () => setPassword(each.user), { 'aria-label': `Set the password of ${visible(each.user)}` }),
          button('Delete', () => deleteUser(each.user), { class: 'danger', 'aria-label': `Delete ${visible(each.user)}` }),
        ),
      },
    ],
  });
  page.show(page.heading('Users', { actions: [button('Create user', createUser, { class: 'primary' })] }), list.element, pages);
  page.watch({
    everyMs: 15_000,
    load: (signal) => get('/users', { after }, { signal }),
    show(found) {
      list.update(found.items);
      patch(pages, pager(after, found.next, (each) => withQuery('/users', { after: each })));
    },
  });
}

function createUser() {
  openDialog({
    title: 'Create a user',
    submit: 'Create',
    body: [
      consequences('With an authorizer a new user may do nothing until ACLs allow it.'),
      field({ name: 'user', label: 'User', required: true, maxlength: 249 }),
      field({ name: 'password', label: 'Password', kind: 'password', required: true, autocomplete: 'new-password' }),
    ],
    run: (given) => change('POST', '/users', given),
    done: ({ user }) => `The user ${user} is created.`,
  });
}

function setPassword(user) {
  openDialog({
    title: `Set the password of ${visible(user)}`,
    submit: 'Set',
    body: [
      consequences('Clients that log in with the old password are refused from then on; open connections stay.'),
      field({ name: 'password', label: 'New password', kind: 'password', required: true, autocomplete: 'new-password' }),
    ],
    run: (given) => change('PUT', path`/users/${user}/password`, given),
    done: `The password of ${user} is set.`,
  });
}

function deleteUser(user) {
  openDialog({
    title: 'Delete the user',
    submit: 'Delete the user',
    isDanger: true,
    typed: user,
    body: consequences('Clients of this user cannot log in any more. The ACLs that name it stay, and hold for a user of this name that is created later.'),
    run: () => change('DELETE', path`/users/${user}`),
    done: `The user ${user} is deleted.`,
  });
}
