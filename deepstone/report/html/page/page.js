"use strict";
// Draws the plots of the page for the width of the window and the colours of the scheme, again when either changes.
(() => {
  const LETTER_PX = 6.9;
  const NARROW_PX = 560;
  const WIDE_PX = 720;
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
    if (trace.mode === "text" && trace.meta !== "own colours") changed.textfont = { ...trace.textfont, color: colour.faint };
    if (trace.mode === "markers" && !trace.error_x) changed.marker = { ...trace.marker, line: { width: 0.5, color: colour.paper } };
    return changed;
  };

  // Every second or third tick where all would touch each other, always with the one at 0.
  const thinned = (ruler, width) => {
    const longest = Math.max(1, ...ruler.texts.map((text) => text.length));
    const fit = Math.max(2, Math.floor(width / ((longest + 2) * LETTER_PX)));
    const every = Math.ceil(ruler.at.length / fit);
    const zero = Math.max(0, ruler.at.indexOf(0));
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
      font: { color: colour.ink, size: 12, family: 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif' },
      hovermode: "closest",
      dragmode: false,
      showlegend: false,
      hoverlabel: { bgcolor: colour.raised, bordercolor: colour.faint, font: { color: colour.ink, size: 12 }, align: "left" },
      xaxis: { ...axis, ...plot.layout.xaxis },
      yaxis: { ...axis, ...plot.layout.yaxis },
      margin: { ...plot.layout.margin },
    };
    if (plot.labels.length) {
      const labels = window_px < NARROW_PX ? plot.narrow_labels : plot.labels;
      layout.yaxis = { ...layout.yaxis, ticktext: labels, showgrid: false, showline: true };
      layout.margin.l = Math.ceil(Math.max(...labels.map((text) => text.length)) * LETTER_PX) + 16;
    }
    if (plot.ruler) {
      const { low, high, letters, title } = plot.ruler;
      const room = width - layout.margin.l - layout.margin.r;
      const share = Math.min(0.6, (letters * 6.2 + 12) / room);
      layout.xaxis = {
        ...layout.xaxis,
        ...thinned(plot.ruler, room),
        range: [low, low + (high - low) / (1 - share)],
        title: { text: title, standoff: 6, font: { size: 12 } },
      };
    }
    if (plot.wide_only.length && width >= WIDE_PX) {
      layout.annotations = [...(layout.annotations || []), ...plot.wide_only];
    }
    return layout;
  };

  const draw = (number) => {
    const plot = plots[number];
    const element = elements[number];
    const colour = colours();
    const traces = plot.traces.map((trace) => coloured(trace, colour));
    Plotly.react(element, traces, layoutFor(plot, element.parentElement.clientWidth, colour), config);
  };
  const drawAll = () => plots.forEach((_, number) => draw(number));

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
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
