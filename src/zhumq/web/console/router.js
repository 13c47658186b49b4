/** Addresses and their pages. Every page, every filter and every message has an address. */

import { Problem } from './api.js';
import { h, patch, withQuery } from './dom.js';
import { watch } from './live.js';
import { problemBox } from './parts.js';

/** The pages: what their addresses look like, which entry of the navigation they belong to, and their module. */
const ROUTES = [
  ['/', '/', () => import('./pages/overview.js')],
  ['/cluster', '/cluster', () => import('./pages/cluster.js')],
  ['/cluster/brokers/:broker', '/cluster', () => import('./pages/broker.js')],
  ['/topics', '/topics', () => import('./pages/topics.js')],
  ['/topics/:topic', '/topics', () => import('./pages/topic.js')],
  ['/topics/:topic/messages', '/topics', () => import('./pages/messages.js')],
  ['/topics/:topic/groups', '/topics', () => import('./pages/topic_groups.js')],
  ['/topics/:topic/settings', '/topics', () => import('./pages/topic_settings.js')],
  ['/topics/:topic/retention', '/topics', () => import('./pages/topic_retention.js')],
  ['/topics/:topic/producers', '/topics', () => import('./pages/topic_producers.js')],
  ['/topics/:topic/scheduled', '/topics', () => import('./pages/topic_scheduled.js')],
  ['/tail', '/topics', () => import('./pages/tail.js')],
  ['/groups', '/groups', () => import('./pages/groups.js')],
  ['/groups/:group', '/groups', () => import('./pages/group.js')],
  ['/producers', '/producers', () => import('./pages/producers.js')],
  ['/dead-letters', '/dead-letters', () => import('./pages/dead_letters.js')],
  ['/dead-letters/:topic', '/dead-letters', () => import('./pages/dead_letter_topic.js')],
  ['/sessions', '/sessions', () => import('./pages/sessions.js')],
  ['/transactions', '/transactions', () => import('./pages/transactions.js')],
  ['/transactions/:id', '/transactions', () => import('./pages/transaction.js')],
  ['/half-messages', '/half-messages', () => import('./pages/half_messages.js')],
  ['/pipelines', '/pipelines', () => import('./pages/pipelines.js')],
  ['/pipelines/:pipeline', '/pipelines', () => import('./pages/pipeline.js')],
  ['/schemas', '/schemas', () => import('./pages/schemas.js')],
  ['/schemas/:subject', '/schemas', () => import('./pages/schema.js')],
  ['/keys', '/keys', () => import('./pages/key.js')],
  ['/users', '/users', () => import('./pages/users.js')],
  ['/acls', '/acls', () => import('./pages/acls.js')],
  ['/quotas', '/quotas', () => import('./pages/quotas.js')],
  ['/audit', '/audit', () => import('./pages/audit.js')],
].map(([pattern, entry, load]) => ({ parts: pattern.split('/').filter(Boolean), entry, load }));

const NOT_LOADED = 'The server of the console does not answer, or was upgraded. Load the page again.';

let current = null;

/**
 * What a page works with.
 * @typedef {Object} Page
 * @property {Object<string, string>} params names in the address
 * @property {URLSearchParams} query
 * @property {HTMLElement} main
 */
class Page {
  constructor(params, query, main) {
    this.params = params;
    this.query = query;
    this.main = main;
    this.watches = [];
    this.isLeft = false;
    this.failure = h('div', null);
  }

  /** The heading: its text is also the title of the tab. `above` are the links to where the page is, `actions` buttons. */
  heading(title, { above = [], actions = [], below = null } = {}) {
    document.title = `${title} · zhumq`;
    const crumbs = above.length
      ? h('nav', { class: 'crumbs', 'aria-label': 'You are here' }, above.map(([text, href]) => [h('a', { href }, text), h('span', { 'aria-hidden': 'true' }, ' / ')]))
      : null;
    return [
      h('div', { class: 'heading' }, h('div', null, crumbs, h('h1', { tabindex: -1 }, title)), h('div', { class: 'actions' }, actions)),
      below,
      this.failure,
    ];
  }

  /** Show these as the page. */
  show(...children) {
    // Not patched: what the page goes on to change must be what is shown.
    if (!this.isLeft) this.main.replaceChildren(...h('div', null, ...children).childNodes);
  }

  /** Read and show something while the page is open; see `watch` in live.js. A problem is shown below the heading. */
  watch(what) {
    if (this.isLeft) return { refresh() {}, stop() {} };
    const started = watch({
      fail: (problem) => patch(this.failure, problemBox(problem)),
      ...what,
      show: (data) => {
        if (!what.fail) patch(this.failure);
        what.show(data);
      },
    });
    this.watches.push(started);
    return started;
  }

  onLeave(action) {
    this.watches.push({ stop: action });
  }

  leave() {
    this.isLeft = true;
    for (const each of this.watches) each.stop();
  }
}

/** Go to an address of the console. */
export function go(address) {
  history.pushState(null, '', address);
  showAddress();
}

/** Change the address without showing the page anew. `isNew`: the button "back" leads to the one before. */
export function setAddress(query, { isNew = false } = {}) {
  const address = withQuery(location.pathname, query);
  if (isNew) history.pushState(null, '', address);
  else history.replaceState(null, '', address);
}

/** Show the page of the address that the browser has now. */
export async function showAddress({ isFirst = false } = {}) {
  const main = document.getElementById('main');
  current?.leave();
  const found = find(location.pathname);
  const isSamePage = current !== null && current.path === location.pathname;
  const page = new Page(found?.params ?? {}, new URLSearchParams(location.search), main);
  page.path = location.pathname;
  current = page;
  markEntry(found?.entry);
  if (!found) {
    page.show(page.heading('No such page'), h('p', null, 'There is nothing at this address. ', h('a', { href: '/' }, 'Overview')));
  } else {
    try {
      const module = await found.load();
      if (page.isLeft) return;
      module.default(page);
    } catch (error) {
      if (page.isLeft) return;
      page.show(page.heading('This page cannot be shown'), problemBox(error instanceof Problem ? error : NOT_LOADED));
      throw error;
    }
  }
  // A new page begins at its heading, for the eye and for a screen reader; another filter of a page stays where it is.
  if (isFirst || isSamePage) return;
  scrollTo(0, 0);
  main.querySelector('h1')?.focus({ preventScroll: true });
}

/** Load the module of the address, while something else is waited for. What fails is tried again by `showAddress`. */
export function loadAhead() {
  find(location.pathname)?.load().catch(() => {});
}

/** Stop what the page reads: something else is shown in its place. */
export function leavePage() {
  current?.leave();
}

export function startRouter() {
  addEventListener('popstate', () => showAddress());
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('a[href]');
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
    if (link.origin !== location.origin || link.getAttribute('href').startsWith('#')) return;
    if (link.pathname.startsWith('/api/') || link.pathname.startsWith('/console/')) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

function find(pathname) {
  const given = pathname.split('/').filter(Boolean);
  for (const { parts, entry, load } of ROUTES) {
    if (parts.length !== given.length) continue;
    const params = {};
    const isMatch = parts.every((part, index) => {
      if (!part.startsWith(':')) return part === given[index];
      params[part.slice(1)] = decode(given[index]);
      return params[part.slice(1)] !== null;
    });
    if (isMatch) return { params, entry, load };
  }
  return null;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

function markEntry(entry) {
  for (const link of document.querySelectorAll('#navigation a')) {
    if (link.getAttribute('href') === entry) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}
