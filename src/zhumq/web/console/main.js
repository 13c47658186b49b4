/** Starts the console: navigation, theme, who is logged in, and the state of the connection. */

import { currentSession, get, logOut, LOGIN_NEEDED, needsLogin, Problem, readSession } from './api.js';
import { h, patch } from './dom.js';
import { clock, visible } from './format.js';
import { observeConnection } from './live.js';
import { showLogin } from './login.js';
import { note, problemBox, sentence } from './parts.js';
import { leavePage, loadAhead, showAddress, startRouter } from './router.js';
import { setBootstrap } from './snippets.js';

const ENTRIES = [
  ['Overview', '/'],
  ['Cluster', '/cluster'],
  ['Topics', '/topics'],
  ['Groups', '/groups'],
  ['Producers', '/producers'],
  ['Follow a key', '/keys'],
  ['Dead letters', '/dead-letters'],
  ['Sessions', '/sessions'],
  ['Transactions', '/transactions'],
  ['Half messages', '/half-messages'],
  ['Pipelines', '/pipelines'],
  ['Schemas', '/schemas'],
  ['Users', '/users'],
  ['ACLs', '/acls'],
  ['Quotas', '/quotas'],
  ['Audit log', '/audit'],
];
const RETRY_MS = 2000;

function showNavigation() {
  const navigation = document.getElementById('navigation');
  patch(navigation, h('ul', null, ENTRIES.map(([text, href]) => h('li', null, h('a', { href }, text)))));
  const menu = document.getElementById('menu');
  const setOpen = (isOpen) => {
    menu.setAttribute('aria-expanded', String(isOpen));
    navigation.classList.toggle('open', isOpen);
  };
  menu.addEventListener('click', () => setOpen(menu.getAttribute('aria-expanded') !== 'true'));
  navigation.addEventListener('click', () => setOpen(false));
  navigation.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    setOpen(false);
    menu.focus();
  });
}

function startTheme() {
  const choice = document.getElementById('theme');
  choice.value = document.documentElement.dataset.theme ?? 'system';
  choice.addEventListener('change', () => {
    if (choice.value === 'system') {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem('zhumq-theme');
    } else {
      document.documentElement.dataset.theme = choice.value;
      localStorage.setItem('zhumq-theme', choice.value);
    }
  });
}

function startConnection() {
  const bar = document.getElementById('connection');
  let wasUp = true;
  observeConnection(({ isUp, since, who }) => {
    patch(bar, isUp ? null : `${who} does not answer since ${clock(since ?? new Date())}; trying again`);
    document.body.classList.toggle('disconnected', !isUp);
    if (isUp && !wasUp) {
      note('The broker answers again.');
      showCluster();
    }
    wasUp = isUp;
  });
}

async function showCluster() {
  try {
    const { cluster, bootstrap } = await get('/cluster/name');
    setBootstrap(bootstrap);
    patch(document.getElementById('cluster'), 'cluster ', h('code', null, visible(cluster)));
  } catch (error) {
    if (!(error instanceof Problem)) throw error; // A problem: the page says what is wrong.
  }
}

function showWho() {
  const { authentication, user } = currentSession();
  const who = document.getElementById('who');
  if (authentication === 'none' || needsLogin()) {
    patch(who);
    return;
  }
  const leave = async () => {
    await logOut();
    askForLogin();
  };
  patch(who, h('span', null, user ? visible(user) : 'logged in'), ' ', h('button', { type: 'button', onclick: leave }, 'Log out'));
}

function askForLogin() {
  leavePage();
  showWho();
  showLogin(document.getElementById('main'), () => {
    showWho();
    showCluster();
    showAddress();
  });
}

async function start() {
  showNavigation();
  startTheme();
  startConnection();
  document.addEventListener(LOGIN_NEEDED, askForLogin);
  // What a button asked for has failed, and nothing else on the page would say so.
  addEventListener('unhandledrejection', (event) => {
    if (!(event.reason instanceof Problem)) return;
    event.preventDefault();
    note(visible(sentence(event.reason.message)));
  });
  loadAhead();
  for (;;) {
    try {
      await readSession();
      break;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      patch(document.getElementById('main'), problemBox(error));
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  }
  startRouter();
  if (needsLogin()) {
    askForLogin();
    return;
  }
  showWho();
  showCluster();
  showAddress({ isFirst: true });
}

start();
