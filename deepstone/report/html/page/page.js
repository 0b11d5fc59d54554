"use strict";
// Draws the plots of the page for the width of the window and the colours of the scheme, again when either changes.
(() => {
  const LETTER_PX = 6.9;
  const NARROW_PX = 560;
  const WIDE_PX = 720;
  const PAPER_PX = 680;
  const AT_ONCE = 8;
  const FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const elements = plots.map((_, number) => document.getElementById(`plot-${number}`));
  const config = { displayModeBar: false, doubleClick: false, showTips: false, responsive: false };

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    return { ink: named("ink"), faint: named("faint"), grid: named("grid"), paper: named("paper"), raised: named("raised") };
  };

  const coloured = (trace, colour) => {
    const changed = { ...trace, showlegend: false };
    if (trace.meta === "ink") changed.line = { ...trace.line, color: colour.ink };
    if (trace.error_x) changed.error_x = { ...trace.error_x, color: colour.ink };
    if ((trace.mode || "").endsWith("text") && trace.meta !== "own colours") changed.textfont = { ...trace.textfont, color: colour.faint };
    if (trace.meta === "gap") changed.marker = { color: colour.faint, ...trace.marker, line: { width: trace.marker.color ? 0 : 1.5, color: colour.faint } };
    else if (trace.mode === "markers" && !trace.error_x && trace.meta !== "point") changed.marker = { ...trace.marker, line: { width: 0.5, color: colour.paper } };
    return changed;
  };

  // Every second or third tick where all would touch each other, always with the one at 0.
  const thinned = (ruler, width) => {
    const longest = Math.max(1, ...ruler.texts.map((text) => text.length));
    const fit = Math.max(2, Math.floor(width / ((longest + 2) * LETTER_PX)));
    const every = Math.ceil(ruler.at.length / fit);
    const zero = Math.max(0, ruler.at.indexOf(ruler.log ? 1 : 0));
    const kept = ruler.at.map((_, place) => place).filter((place) => (place - zero) % every === 0);
    return { tickvals: kept.map((place) => ruler.at[place]), ticktext: kept.map((place) => ruler.texts[place]) };
  };

  const layoutFor = (plot, window_px, colour) => {
    const width = Math.max(window_px, plot.least_px);
    const axis = { gridcolor: colour.grid, linecolor: colour.faint, zeroline: false, fixedrange: true, ticks: "", ticklabelstandoff: 3, automargin: false };
    const layout = {
      ...plot.layout,
      width,
      height: plot.height_px,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour.ink, size: 12, family: FONT },
      hovermode: "closest",
      dragmode: false,
      showlegend: false,
      hoverlabel: { bgcolor: colour.raised, bordercolor: colour.faint, font: { color: colour.ink, size: 12, family: FONT }, align: "left" },
      xaxis: { ...axis, ...plot.layout.xaxis },
      yaxis: { ...axis, ...plot.layout.yaxis },
      margin: { ...plot.layout.margin },
    };
    if (plot.labels.length) {
      const labels = window_px < NARROW_PX ? plot.narrow_labels : plot.labels;
      layout.yaxis = { ...layout.yaxis, ticktext: labels, showgrid: false, showline: true };
      const longest = Math.max(...labels.flatMap((text) => text.split("<br>")).map((line) => line.length));
      layout.margin.l = Math.ceil(longest * LETTER_PX) + 16;
    }
    if (plot.ruler) {
      const { letters, title, log } = plot.ruler;
      const [low, high] = [plot.ruler.low, plot.ruler.high].map((end) => (log ? Math.log10(end) : end));
      const room = width - layout.margin.l - layout.margin.r;
      const share = plot.ruler.room ? Math.min(0.6, (letters * 6.2 + 12) / room) : 0;
      layout.xaxis = {
        ...layout.xaxis,
        ...thinned(plot.ruler, room * (1 - share)),
        range: [low, low + (high - low) / (1 - share)],
        title: { text: title, standoff: 6, font: { size: 12 } },
      };
    }
    if (plot.wide_only.length && width >= WIDE_PX) {
      layout.annotations = [...(layout.annotations || []), ...plot.wide_only];
    }
    return layout;
  };

  const draw = (number, width_px = 0) => {
    const plot = plots[number];
    const element = elements[number];
    const colour = colours();
    const traces = plot.traces.map((trace) => coloured(trace, colour));
    Plotly.react(element, traces, layoutFor(plot, width_px || element.parentElement.clientWidth, colour), config);
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
      for (const place of button.dataset.traces.split(" ")) plots[number].traces[Number(place)].visible = shown;
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
  const change = () => { offer(); drawAll(); };
  system.addEventListener("change", change);
  scheme.addEventListener("click", () => { root.dataset.scheme = isDark() ? "light" : "dark"; change(); });
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
