// The page around the plots: draws them for the width of the window, again when it changes; and its buttons and tables.
(() => {
  const PAPER_PX = 680;
  const AT_ONCE = 8;
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const elements = plots.map((_, number) => document.getElementById(`plot-${number}`));
  const hidden = plots.map(() => new Set());
  const tip = makeTip();

  const draw = (number, width_px = 0) => {
    const element = elements[number];
    drawPlot(element, plots[number], width_px || element.parentElement.clientWidth, hidden[number], tip);
  };

  // The first few at once, the others one after the other, so that a long page can be read and scrolled meanwhile.
  let turn = 0;
  const drawFrom = (number, own) => {
    if (own !== turn) return;
    if (number >= plots.length) {
      document.documentElement.dataset.drawn = "all";
      return;
    }
    draw(number);
    setTimeout(drawFrom, 0, number + 1, own);
  };
  const drawAll = () => {
    turn += 1;
    delete document.documentElement.dataset.drawn;
    const first = Math.min(AT_ONCE, plots.length);
    for (let number = 0; number < first; number += 1) draw(number);
    drawFrom(first, turn);
  };

  for (const button of document.querySelectorAll("button.key")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      const number = Number(button.dataset.plot);
      for (const place of button.dataset.groups.split(" ")) hidden[number][shown ? "delete" : "add"](Number(place));
      draw(number);
    });
  }

  let waiting = 0;
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });

  // Light, dark, or as the system has it until someone chooses.
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const scheme = document.querySelector("button.scheme");
  const isDark = () => (root.dataset.scheme || (system.matches ? "dark" : "light")) === "dark";
  const offer = () => { scheme.textContent = isDark() ? "Light" : "Dark"; };
  system.addEventListener("change", offer);
  scheme.addEventListener("click", () => { root.dataset.scheme = isDark() ? "light" : "dark"; offer(); });
  scheme.hidden = false;
  offer();

  // On paper everything is light, and as wide as the paper.
  let chosen;
  window.addEventListener("beforeprint", () => {
    chosen = root.dataset.scheme;
    root.dataset.scheme = "light";
    turn += 1;
    plots.forEach((_, number) => draw(number, PAPER_PX));
  });
  window.addEventListener("afterprint", () => {
    if (chosen === undefined) delete root.dataset.scheme;
    else root.dataset.scheme = chosen;
    drawAll();
  });

  const copy = async (button) => {
    const code = button.parentElement.querySelector("code");
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch {
      const range = document.createRange();  // a file may not be allowed to copy; then it is selected for who reads
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.matches("button.copy")) copy(event.target);
  });
  for (const button of document.querySelectorAll("button.copy")) button.hidden = false;

  // The table of runs: what is known of each stands in the page once, as data, and is shown when asked for.
  const table = document.getElementById("run-table");
  if (table) {
    const known = JSON.parse(document.getElementById("runs-data").textContent);
    const rows = [...table.querySelectorAll("tr.run")];
    const more = document.getElementById("more-runs");
    const field = document.getElementById("find-runs");
    const told = document.getElementById("found-runs");
    let all = rows.length <= known.at_once;

    const element = (name, text = "", kind = "") => {
      const made = document.createElement(name);
      made.textContent = text;
      if (kind) made.className = kind;
      return made;
    };
    const described = (number) => {
      const list = element("dl");
      for (const [label, text] of known.runs[number]) {
        list.append(element("dt", known.labels[label]));
        const value = element("dd");
        if (known.labels[label] === "command") {
          const box = element("div", "", "command");
          const pre = element("pre");
          pre.tabIndex = 0;
          pre.append(element("code", known.texts[text]));
          const button = element("button", "Copy", "copy");
          button.type = "button";
          box.append(pre, button);
          value.append(box);
        } else value.textContent = known.texts[text];
        list.append(value);
      }
      return list;
    };
    const setOpen = (row, open) => {
      const button = row.querySelector("button");
      if ((button.getAttribute("aria-expanded") === "true") === open) return;
      button.setAttribute("aria-expanded", String(open));
      if (!open) { row.nextElementSibling.remove(); return; }
      const below = element("tr", "", "told");
      const cell = element("td");
      cell.colSpan = row.children.length;
      cell.append(described(Number(row.dataset.run)));
      below.append(cell);
      row.after(below);
    };
    const show = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = 0;
      for (const row of rows) {
        const fits = words.every((word) => row.textContent.toLowerCase().includes(word));
        found += fits ? 1 : 0;
        row.hidden = !fits || (!all && found > known.at_once);
        if (row.hidden) setOpen(row, false);
      }
      told.textContent = words.length ? `${found.toLocaleString("en")} of ${rows.length.toLocaleString("en")} runs` : "";
      more.hidden = all || found <= known.at_once;
    };
    const visit = () => {
      const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!row || !row.matches("tr.run")) return;
      row.hidden = false;
      setOpen(row, true);
      row.scrollIntoView({ block: "center" });
      row.querySelector("button").focus({ preventScroll: true });
    };
    for (const button of table.querySelectorAll("tr.run button")) button.disabled = false;
    table.addEventListener("click", (event) => {
      const button = event.target instanceof Element && event.target.closest("tr.run button");
      if (button) setOpen(button.closest("tr"), button.getAttribute("aria-expanded") !== "true");
    });
    more.addEventListener("click", () => { all = true; show(); });
    field.addEventListener("input", show);
    field.closest("form").addEventListener("submit", (event) => event.preventDefault());
    field.closest("form").hidden = rows.length < 2;
    show();
    window.addEventListener("hashchange", visit);
    visit();
  }

  drawAll();
})();
