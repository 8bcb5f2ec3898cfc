// Makes pages live: when something changed, the parts that show it are fetched and swapped. Nothing needs it:
// without it a page shows the same, as of when it was loaded.
(() => {
  "use strict";
  const root = document.documentElement;
  const THEME = "holdfast-theme";

  // --- light and dark: before anything is painted ------------------------------------------------
  const kept = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(kept());
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  function toggleTheme() {
    const theme = isDark() ? "light" : "dark";
    apply(theme);
    try { localStorage.setItem(THEME, theme); } catch { /* It lasts until the page is left. */ }
    nameTheme();
  }
  function nameTheme() {
    const button = document.querySelector("[data-theme-toggle]");
    button.hidden = false;
    const words = button.querySelector("span");
    words.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `Show it ${words.textContent}`);
  }

  // --- times -------------------------------------------------------------------------------------
  function sayAgo(seconds) {
    if (seconds < 5) return "just now";
    if (seconds < 120) return `${Math.round(seconds)} s ago`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
    return `${Math.round(seconds / 86400)} d ago`;
  }
  let skew = 0; // Of the reader's clock against the server's.
  const secondsSince = (at) => (Date.now() - skew - Date.parse(at)) / 1000;
  function tellTimes() {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const words = sayAgo(Math.max(0, secondsSince(time.dateTime)));
      if (time.textContent !== words) time.textContent = words;
    }
    const header = document.querySelector("[data-heard]");
    if (header && header.dataset.heard) {
      header.querySelector("[data-silent]").hidden = secondsSince(header.dataset.heard) <= 30;
    }
  }

  // --- parts -------------------------------------------------------------------------------------
  const last = new Map();
  const isBusy = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input:not([type=hidden]),select,textarea")) return true;
    const selected = getSelection();
    return !selected.isCollapsed && part.contains(selected.anchorNode);
  };
  function swap(part, html) {
    const box = document.createElement("template");
    box.innerHTML = html.trim();
    const fresh = box.content.firstElementChild;
    if (!fresh || fresh.dataset.part !== part.dataset.part) return;
    for (const old of part.querySelectorAll("details[id]")) {
      const twin = box.content.getElementById(old.id);
      if (twin) twin.open = old.open;
    }
    const active = document.activeElement;
    const focused = part.contains(active) ? active : null;
    const home = focused && !focused.id && focused.closest("details[id]");
    const scrolled = [...part.querySelectorAll(".scroll,.figure,.blocks")].map((each) => [each.scrollLeft, each.scrollTop]);
    part.replaceWith(fresh);
    fresh.querySelectorAll(".scroll,.figure,.blocks").forEach((each, index) => {
      if (scrolled[index]) [each.scrollLeft, each.scrollTop] = scrolled[index];
    });
    if (focused) {
      const twin = focused.id ? document.getElementById(focused.id)
        : home && document.getElementById(home.id) && document.getElementById(home.id).querySelector("summary");
      if (twin) twin.focus({ preventScroll: true });
    }
    tellTimes();
  }
  const opened = new Map(); // What a reader has opened inside a part: an address of its own.
  const find = (name) => document.querySelector(`[data-part="${name}"]`);
  const sourceOf = (name) => opened.get(name) || find(name).dataset.source || `${location.pathname}/part/${name}`;
  async function refresh(name) {
    if (isBusy(find(name))) return;
    const source = sourceOf(name);
    const response = await fetch(source, { headers: { Accept: "text/html" } });
    if (!response.ok) throw new Error(`${response.status}`);
    const html = await response.text();
    // Meanwhile somebody may have opened something else, or begun to write.
    if (last.get(name) === html || source !== sourceOf(name) || isBusy(find(name))) return;
    last.set(name, html);
    swap(find(name), html);
    retry(name);
  }
  function retry(name) {
    if (find(name).hasAttribute("data-retry")) setTimeout(() => refresh(name).catch(() => {}), 1500);
  }
  let isRefreshing = false;
  let wanted = null;
  async function refreshAll(which) {
    if (isRefreshing) { wanted = wanted === "all" ? "all" : which; return; }
    isRefreshing = true;
    const began = performance.now();
    try {
      const chosen = which === "step" ? '[data-part][data-follows="step"]' : "[data-part]";
      const names = [...document.querySelectorAll(chosen)].map((part) => part.dataset.part);
      for (const name of names) await refresh(name);
    } catch { /* The stream says when the server is away. */ }
    // Where it takes the server long, it is asked less often.
    setTimeout(() => {
      isRefreshing = false;
      const next = wanted;
      wanted = null;
      if (next) refreshAll(next);
    }, 300 + 3 * (performance.now() - began));
  }

  // --- the connection ----------------------------------------------------------------------------
  let awaySince = null;
  function tellAway(isAway) {
    const banner = document.getElementById("away");
    if (!isAway) {
      awaySince = null;
      banner.hidden = true;
      document.body.classList.remove("is-away");
      return;
    }
    if (awaySince) return;
    awaySince = new Date();
    banner.textContent = `Not connected since ${awaySince.toISOString().slice(11, 19)} UTC, trying again. What is shown is old.`;
    banner.hidden = false;
    document.body.classList.add("is-away");
  }
  function listen(address) {
    const isOne = address !== "/api/v1/live";
    let number = isOne ? Number(document.getElementById("main").dataset.number) : null;
    let isFirst = isOne; // It only says how things are, and the page has just been made.
    let wasAway = false;
    const stream = new EventSource(address);
    stream.addEventListener("open", () => {
      tellAway(false);
      if (wasAway) refreshAll("all");
      wasAway = false;
    });
    stream.addEventListener("changed", (message) => {
      const now = JSON.parse(message.data);
      const isNew = !isOne || now.number !== number;
      if (isNew || !isFirst) refreshAll(isNew ? "all" : "step");
      number = now.number;
      isFirst = false;
    });
    stream.addEventListener("gone", () => { stream.close(); location.reload(); });
    stream.addEventListener("error", () => {
      wasAway = true;
      tellAway(true);
      if (stream.readyState === EventSource.CLOSED) { // Refused, not lost: browsers give up then.
        stream.close();
        setTimeout(() => listen(address), 3000);
      }
    });
    addEventListener("pagehide", () => stream.close());
  }

  // --- what lies under the pointer -----------------------------------------------------------------
  const sayStep = (seconds) => (seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(1000 * seconds).toPrecision(3)} ms`);
  function point(event) {
    const plot = event.target.closest && event.target.closest(".pace[data-points]");
    for (const each of document.querySelectorAll("[data-readout]")) each.hidden = !plot;
    for (const each of document.querySelectorAll(".pace .cursor")) each.setAttribute("visibility", plot ? "visible" : "hidden");
    if (!plot) return;
    const points = plot.dataset.points.split(";").map((words) => words.split(",").map(Number));
    const first = points[0][0];
    const length = points[points.length - 1][0] - first || 1;
    const box = plot.getBoundingClientRect();
    const at = first + length * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const near = points.reduce((best, each) => (Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best));
    const cursor = plot.querySelector(".cursor");
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, `${(100 * (near[0] - first)) / length}%`);
    const time = new Date(1000 * near[0]).toISOString().slice(11, 19);
    const words = `${time} UTC, step ${near[1].toLocaleString("en")}: ${sayStep(near[2])}, slowest ${sayStep(near[3])} (rank ${near[4]})`;
    plot.closest("[data-part]").querySelector("[data-readout]").textContent = words;
  }

  // --- keys --------------------------------------------------------------------------------------
  function move(by) {
    const stops = [...document.querySelectorAll("[data-stop]")];
    if (!stops.length) return;
    const at = stops.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(stops.length - 1, Math.max(0, at + by));
    stops[next].focus();
    stops[next].scrollIntoView({ block: "nearest" });
  }
  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input,select,textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const dialog = document.getElementById("keys");
    const search = document.querySelector("input[type=search]");
    const deeds = {
      j: () => move(1),
      k: () => move(-1),
      t: toggleTheme,
      "?": () => (dialog.open ? dialog.close() : dialog.showModal()),
      "/": () => (search ? search.focus() : location.assign("/")),
    };
    if (!Object.hasOwn(deeds, event.key)) return;
    event.preventDefault();
    deeds[event.key]();
  }

  // --- blocks of workers, pages of events, large pictures: fetched in place -------------------------
  async function openInPlace(event) {
    const link = event.target.closest(".blocks a, .pager a, [data-fetch]");
    const part = link && link.closest("[data-part]");
    if (!part || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const query = new URL(link.href).search;
    opened.set(part.dataset.part, `${location.pathname}/part/${part.dataset.part}${query}`);
    await refresh(part.dataset.part).catch(() => location.assign(link.href));
  }

  function openNamed() {
    const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = named && named.closest("details");
    if (details) { details.open = true; details.scrollIntoView({ block: "start" }); }
  }

  addEventListener("DOMContentLoaded", () => {
    nameTheme();
    skew = Date.now() - Date.parse(document.getElementById("main").dataset.now);
    tellTimes();
    setInterval(tellTimes, 5000);
    openNamed();
    addEventListener("hashchange", openNamed);
    document.querySelector("[data-theme-toggle]").addEventListener("click", toggleTheme);
    const keys = document.querySelector("[data-keys-open]");
    keys.hidden = false;
    keys.addEventListener("click", () => document.getElementById("keys").showModal());
    document.addEventListener("keydown", press);
    document.addEventListener("click", openInPlace);
    document.addEventListener("pointermove", point, { passive: true });
    const main = document.getElementById("main");
    if (main.dataset.live) listen(main.dataset.live);
    if (main.dataset.reload) setTimeout(() => location.reload(), 1000 * Number(main.dataset.reload));
    for (const part of document.querySelectorAll("[data-part]")) retry(part.dataset.part);
  });
})();
