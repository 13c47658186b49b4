// Not a module: it runs before the first paint, so that a dark page does not flash white.
(() => {
  const choice = localStorage.getItem('zhumq-theme');
  if (choice === 'light' || choice === 'dark') document.documentElement.dataset.theme = choice;
})();
