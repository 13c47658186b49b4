/** What the pages of a topic share: the tabs, and adding and deleting. */

import { change, get, Problem } from './api.js';
import { h, path } from './dom.js';
import { consequences, field, openDialog } from './forms.js';
import { count, plural, visible } from './format.js';
import { go } from './router.js';

const TABS = [
  ['', 'Partitions'],
  ['/messages', 'Messages'],
  ['/groups', 'Groups'],
  ['/settings', 'Settings'],
  ['/retention', 'Retention'],
  ['/producers', 'Producers'],
  ['/scheduled', 'Scheduled'],
];

/** The heading of a page of a topic. `tab` is the end of its address. */
export function topicHeading(page, tab, actions = []) {
  const { topic } = page.params;
  const tabs = h(
    'nav',
    { class: 'tabs', 'aria-label': 'Of this topic' },
    TABS.map(([end, text]) => h('a', { href: path`/topics/${topic}` + end, 'aria-current': end === tab ? 'page' : null }, text)),
  );
  return page.heading(visible(topic), { above: [['Topics', '/topics']], actions, below: tabs });
}

/** Ask whether a topic is to be deleted: its name is typed, and what goes with it is said. */
export async function deleteTopic(topic) {
  const what = await contents(topic);
  openDialog({
    title: 'Delete the topic',
    submit: 'Delete the topic',
    isDanger: true,
    typed: topic,
    body: consequences(
      `${what} are deleted. They cannot be brought back.`,
      'Producers and consumers of the topic get errors, unless a client creates it anew.',
      'The offsets that groups have committed in it mean nothing any more.',
    ),
    run: () => change('DELETE', path`/topics/${topic}`),
    done() {
      go('/topics');
      return `The topic ${topic} is deleted.`;
    },
  });
}

/** What goes with a topic: "3 messages in 2 partitions". A user who may delete it may not be allowed to describe it. */
async function contents(topic) {
  try {
    const { partitions } = await get(path`/topics/${topic}`);
    const messages = partitions.reduce((sum, each) => sum + (each.messages ?? 0), 0);
    return `${plural(messages, 'message')} in ${plural(partitions.length, 'partition')}`;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return 'All messages';
  }
}

/** Ask how many partitions a topic is to have. */
export function addPartitions(topic, present) {
  openDialog({
    title: 'Add partitions',
    submit: 'Add',
    body: [
      consequences(
        'New messages with a key may go to another partition than those before: the order of a key holds only within each.',
        'Consumers of groups are assigned the new partitions by themselves.',
        'Partitions cannot be removed again.',
      ),
      field({ name: 'partitions', label: 'Partitions in all', kind: 'number', min: present + 1, required: true, value: present + 1, hint: `It has ${count(present)} now.` }),
    ],
    run: ({ partitions }) => change('PATCH', path`/topics/${topic}`, { partitions: Number(partitions) }),
    done: (found) => `${topic} has ${plural(found.partitions.length, 'partition')}.`,
  });
}
