/** ACLs: who may do what. */

import { change, get } from '../api.js';
import { h, patch, withQuery } from '../dom.js';
import { consequences, field, openDialog } from '../forms.js';
import { visible } from '../format.js';
import { badge, button, emptyText, pager, problemBox } from '../parts.js';
import { setAddress } from '../router.js';
import { table } from '../table.js';

const TYPES = ['TOPIC', 'GROUP', 'CLUSTER', 'TRANSACTIONAL_ID', 'USER'];
const OPERATIONS = ['READ', 'WRITE', 'CREATE', 'DELETE', 'ALTER', 'DESCRIBE', 'DESCRIBE_CONFIGS', 'ALTER_CONFIGS', 'CLUSTER_ACTION', 'IDEMPOTENT_WRITE', 'TWO_PHASE_COMMIT', 'ALL'];
const FIELDS = ['resource_type', 'resource_name', 'pattern', 'principal', 'host', 'operation', 'permission'];
const NO_AUTHORIZER = 'SECURITY_DISABLED';
const WITHOUT_AUTHORIZER = 'The brokers have no authorizer, so there are no ACLs: everyone who reaches them may do everything.'
  + ' Start them with --set authorizer.class.name=zhumq --set super.users=User:NAME.';

export default function showAcls(page) {
  const query = {};
  for (const name of ['principal', 'resource_type', 'resource_name', 'after']) query[name] = page.query.get(name) ?? '';
  const pages = h('div', null);
  const list = table({
    caption: 'ACLs',
    key: (each) => FIELDS.map((name) => each[name]).join(' '),
    empty: 'No such ACLs.',
    columns: [
      { title: 'Principal', cell: (each) => h('bdi', null, visible(each.principal)), sort: (each) => each.principal },
      { title: 'May', cell: (each) => (each.permission === 'ALLOW' ? badge('allow', 'good') : badge('deny', 'bad')) },
      { title: 'Operation', cell: (each) => each.operation, sort: (each) => each.operation },
      { title: 'On', cell: (each) => each.resource_type, sort: (each) => each.resource_type },
      { title: 'Name', kind: 'wide', cell: (each) => [h('bdi', { class: 'name' }, visible(each.resource_name)), each.pattern === 'PREFIXED' ? ' and all that begins so' : ''] },
      { title: 'From host', cell: (each) => visible(each.host) },
      { title: 'Delete', kind: 'actions', cell: (each) => button('Delete', () => deleteAcl(each), { class: 'danger', 'aria-label': `Delete: ${describe(each)}` }) },
    ],
  });
  const filters = h(
    'form',
    { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault(), onchange: apply },
    field({ name: 'principal', label: 'Principal', kind: 'search', value: query.principal, placeholder: 'User:alice' }),
    field({ name: 'resource_type', label: 'On', kind: 'select', options: [['', 'Everything'], ...TYPES], value: query.resource_type }),
    field({ name: 'resource_name', label: 'Name', kind: 'search', value: query.resource_name, hint: null }),
  );
  function apply() {
    for (const name of ['principal', 'resource_type', 'resource_name']) query[name] = filters.elements[name].value;
    query.after = '';
    setAddress(query);
    reading.refresh();
  }
  const create = button('Create ACL', createAcl, { class: 'primary' });
  const failure = h('div', null);
  const shown = h('div', null, filters, list.element, pages);
  page.show(page.heading('ACLs', { actions: [create] }), failure, shown);
  const reading = page.watch({
    everyMs: 15_000,
    // Those that concern a name: also the ones by a prefix, and by *.
    load: (signal) => get('/acls', { ...query, pattern: query.resource_name ? 'MATCH' : '' }, { signal }),
    show(found) {
      patch(failure);
      create.disabled = shown.hidden = false;
      list.update(found.items);
      patch(pages, pager(query.after, found.next, (after) => withQuery('/acls', { ...query, after })));
    },
    fail(problem) {
      const isOff = problem.code === NO_AUTHORIZER;
      patch(failure, isOff ? emptyText(WITHOUT_AUTHORIZER) : problemBox(problem));
      create.disabled = shown.hidden = isOff;
    },
  });
}

function createAcl() {
  openDialog({
    title: 'Create an ACL',
    submit: 'Create',
    body: [
      consequences('It holds at once, also for open connections. A DENY is stronger than every ALLOW.'),
      field({ name: 'principal', label: 'Principal', required: true, placeholder: 'User:alice', hint: 'User:* is everybody.' }),
      field({ name: 'permission', label: 'Permission', kind: 'select', options: ['ALLOW', 'DENY'] }),
      field({ name: 'operation', label: 'Operation', kind: 'select', options: OPERATIONS }),
      field({ name: 'resource_type', label: 'On', kind: 'select', options: TYPES }),
      field({ name: 'resource_name', label: 'Name', required: true, hint: '* is every name; of CLUSTER it is kafka-cluster.' }),
      field({ name: 'pattern', label: 'The name is', kind: 'select', options: [['LITERAL', 'the whole name'], ['PREFIXED', 'the beginning of names']] }),
      field({ name: 'host', label: 'From host', value: '*', required: true }),
    ],
    run: (given) => change('POST', '/acls', { acls: [given] }),
    done: 'The ACL is created.',
  });
}

function deleteAcl(acl) {
  openDialog({
    title: 'Delete the ACL',
    submit: 'Delete the ACL',
    isDanger: true,
    body: consequences(describe(acl), acl.permission === 'ALLOW' ? 'Clients that need it are refused from then on.' : 'What it denied is then decided by the other ACLs.'),
    run: () => change('DELETE', '/acls', undefined, Object.fromEntries(FIELDS.map((name) => [name, acl[name]]))),
    done: 'The ACL is deleted.',
  });
}

function describe(acl) {
  const names = acl.pattern === 'PREFIXED' ? `names that begin with ${acl.resource_name}` : acl.resource_name;
  return visible(`${acl.permission} ${acl.principal} ${acl.operation} on ${acl.resource_type} ${names} from ${acl.host}`);
}
