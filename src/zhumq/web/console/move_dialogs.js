/** Dialogs that move replicas: the proposal is shown first, and what is started is what was shown. */

import { change, Problem } from './api.js';
import { h, path } from './dom.js';
import { consequences, field, InvalidInput, openDialog } from './forms.js';
import { bytes, count, plural, visible } from './format.js';
import { note, sentence } from './parts.js';
import { table } from './table.js';

const ROWS_MAX = 100; // moves that a proposal lists
const MEBIBYTE = 1024 * 1024;
const MODES = {
  raft: 'raft: a majority of the replicas has a message on disk before it is acknowledged; the replicas elect their leader',
  fetch: 'fetch: all replicas in sync have it, at least min.insync.replicas; the controller names the leader',
};

/** What a broker has goes to the others. */
export function proposeDraining(broker) {
  return propose({ drain: broker }, {
    title: `Drain broker ${broker}`,
    nothing: `Broker ${broker} has no replicas.`,
    lines: [
      `After this broker ${broker} has no replicas, and can be stopped.`,
      'New topics may be placed on it until it is stopped.',
    ],
  });
}

/** Partitions go where they would be placed if they were new: a broker that has joined gets its share. */
export function proposeRebalancing() {
  return propose({}, {
    title: 'Rebalance the cluster',
    nothing: 'Every partition is at its place already.',
    lines: ['Every partition goes to its place on the hash ring of the live brokers.'],
  });
}

/** Ask where the replicas of a topic are to be, then show what that moves. */
export function moveTopic(topic, brokers) {
  if (topic === null) return;
  const present = Math.max(...topic.partitions.map((each) => each.replicas.length));
  openDialog({
    title: `Move the replicas of ${visible(topic.topic)}`,
    submit: 'Show the moves',
    body: [
      field({
        name: 'replicas',
        label: 'Replicas of each partition',
        kind: 'number',
        min: 1,
        max: brokers.length,
        required: true,
        value: present,
        hint: `It has ${count(present)} now.`,
      }),
      h(
        'fieldset',
        null,
        h('legend', null, 'On these brokers'),
        brokers.map(({ broker, rack }) => {
          const label = `Broker ${broker}${rack === null ? '' : ` in rack ${visible(rack)}`}`;
          return field({ name: `broker-${broker}`, label, kind: 'checkbox', value: true });
        }),
      ),
    ],
    run(given) {
      const chosen = brokers.map((each) => each.broker).filter((each) => given[`broker-${each}`]);
      const replicas = Number(given.replicas);
      if (chosen.length < replicas) throw new InvalidInput(`${plural(replicas, 'replica')} need as many brokers: choose more of them`);
      return change('POST', '/cluster/reassignments/plan', { topic: topic.topic, brokers: chosen, replicas });
    },
    done: (proposal) => showProposal(proposal, { title: `Move the replicas of ${visible(topic.topic)}`, nothing: 'The replicas are where they would go.', lines: [] }),
  });
}

async function propose(body, words) {
  try {
    showProposal(await change('POST', '/cluster/reassignments/plan', body), words);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    note(visible(sentence(error.message)));
  }
}

function showProposal(proposal, { title, nothing, lines }) {
  const { moves } = proposal;
  if (moves.length === 0) {
    note(nothing);
    return;
  }
  const list = table({
    caption: 'Proposed moves',
    key: (each) => `${each.topic} ${each.partition}`,
    columns: [
      { title: 'Topic', kind: 'wide', cell: (each) => visible(each.topic) },
      { title: 'Partition', cell: (each) => each.partition },
      { title: 'Replicas now', cell: (each) => each.before.join(', ') },
      { title: 'Then', cell: (each) => each.after.join(', ') },
      { title: 'Copies', kind: 'number', cell: (each) => bytes(each.copied_bytes) },
    ],
  });
  const shares = table({
    caption: 'What changes for each broker',
    key: (each) => String(each.broker),
    columns: [
      { title: 'Broker', cell: (each) => each.broker },
      { title: 'Replicas now', kind: 'number', cell: (each) => count(each.before) },
      { title: 'Then', kind: 'number', cell: (each) => count(each.after) },
      { title: 'To fetch', kind: 'number', cell: (each) => count(each.fetches) },
    ],
  });
  const copied = proposal.copied_bytes === null ? 'an unknown number of bytes' : bytes(proposal.copied_bytes);
  list.update(moves.slice(0, ROWS_MAX));
  shares.update(proposal.brokers);
  openDialog({
    title,
    submit: `Start ${plural(moves.length, 'move')}`,
    isWide: true,
    body: [
      consequences(
        ...lines,
        `${plural(moves.length, 'partition')} move, and ${copied} are copied between brokers.`,
        'The topics stay in use. A broker drops a replica only after the new one has caught up.',
        'A move can be cancelled until it has ended.',
        proposal.left_out ? `${plural(proposal.left_out, 'more partition')} are for a second time: ${count(moves.length)} moves are started at once.` : null,
      ),
      shares.element,
      list.element,
      moves.length > ROWS_MAX ? h('p', { class: 'hint' }, `And ${count(moves.length - ROWS_MAX)} more.`) : null,
      rateField('', 'Empty: as it is set now. It stays set after the moves.'),
    ],
    async run({ rate }) {
      if (rate) await change('PUT', '/cluster/copy-rate', { bytes_per_second: toBytes(rate) });
      const wanted = moves.map(({ topic, partition, after }) => ({ topic, partition, replicas: after }));
      return change('POST', '/cluster/reassignments', { moves: wanted });
    },
    done: ({ started }) => `${plural(started, 'move')} started.`,
  });
}

/** Cancel moves: their partitions have the replicas from before again. */
export function cancelMoves(moves) {
  openDialog({
    title: moves.length === 1 ? `Cancel the move of ${visible(moves[0].topic)} ${moves[0].partition}` : `Cancel ${plural(moves.length, 'move')}`,
    submit: moves.length === 1 ? 'Cancel the move' : 'Cancel the moves',
    isDanger: true,
    body: consequences('What was copied is deleted again.', 'The partitions keep the replicas that they had before. They stay in use.'),
    run: () => change('POST', '/cluster/reassignments/cancel', { partitions: moves.map(({ topic, partition }) => ({ topic, partition })) }),
    done: ({ cancelled }) => (cancelled ? `${plural(cancelled, 'move')} cancelled.` : 'Nothing was cancelled: it had ended.'),
  });
}

/** Ask how fast brokers may copy. */
export function limitRate(present) {
  openDialog({
    title: 'Limit the rate of copies',
    submit: 'Set',
    body: [
      consequences(
        'It holds for what each broker sends to replicas that are being added, now and later, until it is taken back.',
        'Replicas that are in sync are not limited: producers wait for them. Below the rate of producers a move does not end.',
      ),
      rateField(present === null ? '' : String(present / MEBIBYTE), 'Empty: no limit.'),
    ],
    run: ({ rate }) => change('PUT', '/cluster/copy-rate', { bytes_per_second: rate ? toBytes(rate) : null }),
    done: 'The rate of copies is set.',
  });
}

/** Ask how the replicas of a topic are to agree. */
export function changeMode(topic) {
  if (topic === null) return;
  const [{ wanted_mode: present }] = topic.partitions;
  const isRaft = present === 'raft';
  openDialog({
    title: `Change the mode of ${visible(topic.topic)}`,
    submit: isRaft ? 'Change to fetch' : 'Change to raft',
    body: [
      consequences(
        `Now it is ${MODES[present] ?? present}.`,
        `Then it is ${MODES[isRaft ? 'fetch' : 'raft']}.`,
        'The partitions change one by one while the topic is in use; each gets a new leader epoch, and its clients ask again for a moment.',
        isRaft
          ? 'The leader that the controller names has to win the votes of the replicas once more.'
          : 'A partition changes when all its replicas are in sync: while one is down it stays as it is.',
      ),
    ],
    run: () => change('PATCH', path`/topics/${topic.topic}`, { settings: { 'replication.mode': isRaft ? 'fetch' : 'raft' } }),
    done: `The mode of ${topic.topic} is changing.`,
  });
}

function rateField(value, hint) {
  return field({ name: 'rate', label: 'Each broker copies at most, in MiB a second', kind: 'number', min: 0.001, step: 'any', value, hint });
}

function toBytes(rate) {
  return Math.max(1, Math.round(Number(rate) * MEBIBYTE));
}
