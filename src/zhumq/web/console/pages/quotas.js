/** Quotas of users, clients and addresses. */

import { change, get } from '../api.js';
import { h } from '../dom.js';
import { consequences, field, InvalidInput, openDialog } from '../forms.js';
import { bytes, count, visible } from '../format.js';
import { button } from '../parts.js';
import { table } from '../table.js';

const NAMES = [
  ['producer_byte_rate', 'Bytes a second that it may write'],
  ['consumer_byte_rate', 'Bytes a second that it may read'],
  ['request_percentage', 'Percent of a request thread'],
  ['controller_mutation_rate', 'Partitions a second that it may create and delete'],
  ['connection_creation_rate', 'New connections a second (of an address)'],
];
const TYPES = [['user', 'User'], ['client-id', 'Client id'], ['ip', 'Address']];

export default function showQuotas(page) {
  const list = table({
    caption: 'Quotas',
    key: (each) => JSON.stringify(each.entity),
    empty: 'There are no quotas: clients may use what the brokers have.',
    columns: [
      { title: 'Of', kind: 'wide', cell: (each) => h('bdi', null, entityText(each.entity)), sort: (each) => entityText(each.entity) },
      { title: 'Writes', kind: 'number', cell: (each) => rate(each.quotas.producer_byte_rate) },
      { title: 'Reads', kind: 'number', cell: (each) => rate(each.quotas.consumer_byte_rate) },
      { title: 'Requests', kind: 'number', cell: (each) => (each.quotas.request_percentage === undefined ? '–' : `${count(each.quotas.request_percentage)} %`) },
      { title: 'Changes a second', kind: 'number', cell: (each) => count(each.quotas.controller_mutation_rate) },
      { title: 'Connections a second', kind: 'number', cell: (each) => count(each.quotas.connection_creation_rate) },
      { title: 'Change', kind: 'actions', cell: (each) => button('Change', () => setQuotas(each), { 'aria-label': `Change the quotas of ${entityText(each.entity)}` }) },
    ],
  });
  page.show(page.heading('Quotas', { actions: [button('Set a quota', () => setQuotas(null), { class: 'primary' })] }), list.element);
  page.watch({
    everyMs: 15_000,
    load: (signal) => get('/quotas', null, { signal }),
    show: (found) => list.update(found),
  });
}

function setQuotas(quota) {
  openDialog({
    title: quota === null ? 'Set a quota' : `Quotas of ${entityText(quota.entity)}`,
    submit: 'Set',
    body: [
      consequences('It holds for each broker. A client above its quota is answered later; it gets no errors.'),
      ...(quota === null ? [
        field({ name: 'type', label: 'Of', kind: 'select', options: TYPES }),
        field({ name: 'name', label: 'Name', hint: 'Empty: the default for all that have none of their own.' }),
      ] : []),
      ...NAMES.map(([name, label]) => field({ name, label, kind: 'number', min: 0, step: 'any', value: quota?.quotas[name] ?? '', hint: quota === null ? null : 'Empty: none.' })),
    ],
    run(given) {
      const quotas = {};
      for (const [name] of NAMES) {
        if (given[name] !== '') quotas[name] = Number(given[name]);
        else if (quota?.quotas[name] !== undefined) quotas[name] = null;
      }
      if (Object.keys(quotas).length === 0) throw new InvalidInput('give at least one quota');
      const entity = quota === null ? { [given.type]: given.name === '' ? null : given.name } : quota.entity;
      return change('PATCH', '/quotas', { entity, quotas });
    },
    done: 'The quotas are set.',
  });
}

function entityText(entity) {
  return Object.entries(entity).map(([type, name]) => (name === null ? `default ${type}` : `${type} ${visible(name)}`)).join(', ');
}

function rate(value) {
  return value === undefined ? '–' : `${bytes(value)}/s`;
}
