/** What the pages of groups share. */

import { duration, visible } from './format.js';
import { badge } from './parts.js';

const GOOD = new Set(['Stable', 'Active']);
const MOVING = new Set(['PreparingRebalance', 'CompletingRebalance', 'Assigning', 'Reconciling']);

/** The state of a group as a word with a colour. */
export function stateBadge(state) {
  if (GOOD.has(state)) return badge(state, 'good');
  if (MOVING.has(state)) return badge(state, 'warn');
  return badge(state, 'plain');
}

/** What reads in a group, and in which mode, if it has subscriptions. */
export function kindOf(group) {
  if (group.mode === null || group.mode === undefined) return visible(group.type.toLowerCase());
  return `${group.type.toLowerCase()}, ${visible(group.mode)}`;
}

/**
 * A group in few numbers: members, lag in messages and in seconds, and the partitions where messages wait that no consumer reads.
 */
export function groupSummary(group) {
  const held = new Set(group.offsets.filter((each) => each.member !== null || each.consumers.length > 0).map(place));
  return {
    members: group.members.length,
    lag: group.offsets.reduce((sum, each) => sum + (each.lag ?? 0), 0),
    seconds: group.lag_seconds ?? null,
    idle: group.offsets.filter((each) => (each.lag ?? 0) > 0 && !held.has(place(each))),
  };
}

export function place({ topic, partition }) {
  return `${topic} ${partition}`;
}

/** How old the first message is that a group is not done with. */
export function behind(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  return seconds === 0 ? '0 s' : duration(seconds * 1000);
}

function speedOf(perSecond) {
  if (perSecond < 0.1) return `${(perSecond * 60).toFixed(1)} a minute`;
  return `${perSecond.toFixed(perSecond < 10 ? 1 : 0)} a second`;
}

/** Where the lag is going, and when it would be gone. */
export function trendBadge({ kind, perSecond, catchUpMs }, lag) {
  const speed = speedOf(Math.abs(perSecond));
  if (lag === 0 || kind === 'none') return badge('caught up', 'good');
  if (kind === 'growing') return badge(`growing by ${speed}`, 'warn');
  if (kind === 'falling') return badge(`falling by ${speed}: caught up in ${duration(catchUpMs)}`, 'good');
  return kind === 'steady' ? badge('steady', 'plain') : 'not known yet';
}
