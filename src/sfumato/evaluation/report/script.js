"use strict";
// Everything on the page can be read without this script: it adds a search, other orders and a mark in the navigation.
(() => {
  const box = document.getElementById("column-cards");
  const find = document.getElementById("find-column");
  const order = document.getElementById("order-columns");
  const found = document.getElementById("found-columns");
  if (box && find && order && found) {
    const cards = Array.from(box.children);
    const keys = {
      order: (a, b) => a.dataset.order - b.dataset.order,
      distance: (a, b) => b.dataset.distance - a.dataset.distance || keys.order(a, b),
      name: (a, b) => a.dataset.name.localeCompare(b.dataset.name) || keys.order(a, b),
    };
    const filter = () => {
      const wanted = find.value.trim().toLowerCase();
      let shown = 0;
      for (const card of cards) {
        card.hidden = !card.dataset.name.toLowerCase().includes(wanted);
        shown += card.hidden ? 0 : 1;
      }
      found.textContent = wanted ? `${shown} of ${cards.length} columns` : "";
    };
    find.addEventListener("input", filter);
    order.addEventListener("change", () => box.append(...cards.slice().sort(keys[order.value])));
    // A browser may put back what was typed before a reload.
    find.value = "";
    order.value = "order";
    for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
  }

  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
  const mark = () => {
    let current = null;
    for (const section of document.querySelectorAll("main > section")) {
      if (!current || section.getBoundingClientRect().top < 120) current = section;
    }
    for (const [id, link] of links) {
      if (current && id === current.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  let waiting = false;
  document.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; mark(); });
  }, { passive: true });
  mark();

  // A box that has nothing to scroll need not be a stop of the keyboard.
  const boxes = document.querySelectorAll(".scroll");
  const stops = () => { for (const each of boxes) each.tabIndex = each.scrollWidth > each.clientWidth ? 0 : -1; };
  window.addEventListener("resize", stops);
  stops();

  // Paper cannot be clicked, so what is folded is opened for it.
  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) { fold.open = true; opened.push(fold); }
  });
  window.addEventListener("afterprint", () => { for (const fold of opened.splice(0)) fold.open = false; });
})();
