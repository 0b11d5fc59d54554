"use strict";
// Draws a plot as SVG: marks in the units of its axes become shapes. Colours by meaning are variables of the page's style,
// so they follow its scheme. Every text is set as text. What a mark tells is shown to who points at it, in one box.
const { drawPlot, makeTip } = (() => {
  const LETTER_PX = 6.9;  // of labels and ticks, whose widths are estimated, not measured
  const SMALL_LETTER_PX = 6.2;
  const LINE_PX = 14;
  const NARROW_PX = 560;
  const WIDE_PX = 720;
  const CAP_PX = 2.5;
  const NEAR_PX = 18;
  const MOST_FOR_WORDS = 0.6;
  const SVG = "http://www.w3.org/2000/svg";
  const ANCHORS = { left: "start", center: "middle", right: "end" };

  const ink = (colour) => (colour.startsWith("#") ? colour : `var(--${colour})`);
  const fine = (px) => Math.round(px * 100) / 100;

  const made = (name, attributes = {}, parent = null) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? fine(value) : value);
    if (parent) parent.append(element);
    return element;
  };

  // Lines of text whose middle is at y, or whose foot is where they stand above it.
  const write = (parent, kind, x, y, lines, attributes, above = false) => {
    const text = made("text", { class: kind, x, ...attributes }, parent);
    const first = above ? y - 3 - (lines.length - 1) * LINE_PX : y - ((lines.length - 1) * LINE_PX) / 2;
    lines.forEach((line, at) => {
      const part = made("tspan", { x, y: first + at * LINE_PX }, text);
      if (!above) part.setAttribute("dy", "0.35em");
      part.textContent = line;
    });
    return text;
  };

  // From a value to its place between two pixels; a logarithmic axis has none for what is below its low end.
  const placing = (ruler, from, to) => {
    const along = (value) => (ruler.log ? Math.log10(Math.max(value, ruler.low)) : value);
    const low = along(ruler.low);
    const span = along(ruler.high) - low || 1;
    return (value) => from + ((along(value) - low) / span) * (to - from);
  };

  // Every second or third tick where all would touch each other, always with the one at 0.
  const thinned = (ruler, width) => {
    const at = ruler.at || [];
    if (ruler.on_top) return at.map((_, place) => place);
    const longest = Math.max(1, ...ruler.texts.map(([text]) => text.length));
    const every = Math.ceil(at.length / Math.max(2, Math.floor(width / ((longest + 2) * LETTER_PX))));
    const zero = Math.max(0, at.indexOf(ruler.log ? 1 : 0));
    return at.map((_, place) => place).filter((place) => (place - zero) % every === 0);
  };

  // Where everything lies in a window of this width.
  const framed = (plot, window_px) => {
    const width = Math.max(window_px, plot.least_px);
    const labels = window_px < NARROW_PX ? plot.narrow_labels : plot.labels;
    const longest = Math.max(0, ...labels.flat().map((line) => line.length));
    const left = labels.length ? Math.ceil(longest * LETTER_PX) + 16 : plot.margin.left;
    const right = width - plot.margin.right;
    const [top, bottom] = [plot.margin.top, plot.height_px - plot.margin.bottom];
    const letters = plot.x.letters;
    const share = letters === undefined ? 0 : Math.min(MOST_FOR_WORDS, (letters * SMALL_LETTER_PX + 12) / (right - left));
    const end = left + (right - left) * (1 - share);
    return { width, labels, left, right, top, bottom, end, x: placing(plot.x, left, end), y: placing(plot.y, bottom, top) };
  };

  const drawAxes = (svg, plot, frame) => {
    const { x, y, left, right, top, bottom, end } = frame;
    const shown = thinned(plot.x, end - left);
    const line = (x1, y1, x2, y2, stroke) => made("line", { x1, y1, x2, y2, stroke }, svg);
    if (plot.x.grid !== false) for (const place of shown) line(x(plot.x.at[place]), top, x(plot.x.at[place]), bottom, "var(--grid)");
    if (plot.y.grid !== false) for (const at of plot.y.at || []) line(left, y(at), right, y(at), "var(--grid)");
    if (plot.reference !== null) made("line", { class: "reference", x1: x(plot.reference), y1: top, x2: x(plot.reference), y2: bottom, stroke: "var(--faint)", "stroke-width": 1.5 }, svg);
    if (plot.y.line) line(left, top, left, bottom, "var(--faint)");
    if (plot.x.line) line(left, bottom, right, bottom, "var(--faint)");
    for (const place of shown) {
      const lines = plot.x.texts[place];
      const at = plot.x.on_top ? top - 8 - ((lines.length - 1) * LINE_PX) / 2 : bottom + 13;
      write(svg, plot.x.on_top ? "xtick head" : "xtick", x(plot.x.at[place]), at, lines, { "text-anchor": "middle", fill: "var(--ink)" });
    }
    const rows = frame.labels.length ? frame.labels : plot.y.texts || [];
    rows.forEach((lines, row) => write(svg, "ytick", left - 7, y(plot.y.at[row]), lines, { "text-anchor": "end", fill: "var(--ink)" }));
    if (plot.x.title) write(svg, "title", (left + end) / 2, plot.height_px - 9, [plot.x.title], { "text-anchor": "middle", fill: "var(--ink)" });
    if (plot.y.title) {
      const title = write(svg, "title", 0, 0, [plot.y.title], { "text-anchor": "middle", fill: "var(--ink)" });
      title.setAttribute("transform", `translate(11 ${fine((top + bottom) / 2)}) rotate(-90)`);
    }
  };

  // Each draws one kind of mark; those that tell something say where they can be pointed at.
  const shapes = {
    box: (mark, { x, y }, svg, hatch) => {
      const [left, right] = [x(mark.x0), x(mark.x1)].sort((a, b) => a - b);
      const [top, bottom] = [y(mark.y0), y(mark.y1)].sort((a, b) => a - b);
      const size = { x: left, y: top, width: right - left, height: bottom - top };
      const style = mark.style || "filled";
      const fill = style === "filled" ? mark.colour : style === "hatched" ? hatch(mark.colour) : "none";
      const edge = style === "filled" ? {} : { stroke: mark.colour, "stroke-width": style === "framed" ? 2.5 : 1.5 };
      made("rect", { class: "box", ...size, fill, ...edge }, svg);
      return { left, right, top, bottom };
    },
    dot: (mark, { x, y }, svg) => {
      const [cx, cy, r] = [x(mark.x), y(mark.y), (mark.size_px || 8) / 2];
      const colour = ink(mark.colour);
      const look = { class: "dot", fill: mark.hollow ? "var(--paper)" : colour, stroke: colour, "stroke-width": mark.hollow ? 2 : 0.5 };
      const reach = r * 1.25;
      if (mark.symbol === "cross") made("path", { ...look, fill: "none", "stroke-width": 2, d: `M${fine(cx - r)} ${fine(cy - r)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}` }, svg);
      else if (mark.symbol === "diamond") made("path", { ...look, d: `M${fine(cx)} ${fine(cy - reach)}l${reach} ${reach}l${-reach} ${reach}l${-reach} ${-reach}z` }, svg);
      else made("circle", { ...look, cx, cy, r }, svg);
      return { left: cx, right: cx, top: cy, bottom: cy };
    },
    whisker: (mark, { x, y }, svg) => {
      const along = mark.upright ? y : x;
      const [at, low, high] = [mark.upright ? x(mark.at) : y(mark.at), along(mark.low), along(mark.high)].map(fine);
      const [from, to] = [fine(at - CAP_PX), fine(at + CAP_PX)];
      const d = mark.upright
        ? `M${at} ${low}V${high}M${from} ${low}H${to}M${from} ${high}H${to}`
        : `M${low} ${at}H${high}M${low} ${from}V${to}M${high} ${from}V${to}`;
      made("path", { class: "whisker", d, fill: "none", stroke: ink(mark.colour || "ink"), "stroke-width": 1.1 }, svg);
    },
    path: (mark, { x, y }, svg) => {
      const d = `M${mark.points.map(([across, up]) => `${fine(x(across))} ${fine(y(up))}`).join("L")}`;
      if (mark.area) made("path", { class: "band", d: `${d}z`, fill: ink(mark.colour), "fill-opacity": 0.2 }, svg);
      else made("path", { class: "curve", d, fill: "none", stroke: ink(mark.colour), "stroke-width": mark.width_px || 2, "stroke-dasharray": mark.dashed ? "7 4" : "none" }, svg);
    },
    words: (mark, { x, y, width }, svg) => {
      if (mark.wide && width < WIDE_PX) return;
      const [right, up] = mark.shift || [0, 0];
      const face = { bold: { "font-weight": 650 }, italic: { "font-style": "italic" } }[mark.face] || {};
      const look = { "text-anchor": ANCHORS[mark.side || "left"], fill: ink(mark.colour || "faint"), ...face };
      write(svg, "words", x(mark.x) + right, y(mark.y) - up, mark.lines, look, mark.above);
    },
  };

  // A filling of slanted lines for what others published, made once for each colour of a plot.
  const hatching = (svg, name) => {
    const known = new Map();
    const place = made("defs", {}, svg);
    return (colour) => {
      if (!known.has(colour)) {
        const id = `${name}-hatch-${known.size}`;
        const pattern = made("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, place);
        made("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: colour, "stroke-width": 3 }, pattern);
        known.set(colour, `url(#${id})`);
      }
      return known.get(colour);
    };
  };

  // The mark under the pointer, else the nearest within reach.
  const pointedAt = (spots, x, y) => {
    let [best, found] = [NEAR_PX, null];
    for (const spot of spots) {
      const away = Math.hypot(Math.max(spot.left - x, 0, x - spot.right), Math.max(spot.top - y, 0, y - spot.bottom));
      if (away < best || (away === 0 && best === 0)) [best, found] = [away, spot];
    }
    return found;
  };

  const drawPlot = (element, plot, window_px, hidden, tip) => {
    const frame = framed(plot, window_px);
    const svg = made("svg", { class: "drawing", width: frame.width, height: plot.height_px, viewBox: `0 0 ${frame.width} ${plot.height_px}`, "aria-hidden": "true" });
    const hatch = hatching(svg, element.id);
    const spots = [];
    drawAxes(svg, plot, frame);
    plot.groups.forEach((marks, place) => {
      if (hidden.has(place)) return;
      for (const mark of marks) {
        const spot = shapes[mark.is](mark, frame, svg, hatch);
        if (spot && mark.told) spots.push({ ...spot, told: mark.told });
      }
    });
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const found = pointedAt(spots, event.clientX - box.left, event.clientY - box.top);
      if (found) tip.show(found.told, event.clientX, event.clientY);
      else tip.hide();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", tip.hide);
    element.replaceChildren(svg);
  };

  // The box that says what is pointed at, beside the pointer and within the window.
  const makeTip = () => {
    const box = document.createElement("div");
    box.className = "tip";
    box.hidden = true;
    document.body.append(box);
    let shownAt = 0;
    const hide = () => { box.hidden = true; };
    const show = (lines, x, y) => {
      box.replaceChildren(...lines.map((line) => {
        const part = document.createElement("p");
        part.textContent = line;
        return part;
      }));
      box.hidden = false;
      shownAt = window.scrollY;
      const { width, height } = box.getBoundingClientRect();
      const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
      const left = x + 14 + width > wide ? x - 14 - width : x + 14;
      box.style.left = `${Math.max(4, Math.min(left, wide - width - 4))}px`;
      box.style.top = `${Math.max(4, y + 14 + height > high ? y - 10 - height : y + 14)}px`;
    };
    // The browser tells of a scroll a frame later: one from before the box was shown must not hide it.
    window.addEventListener("scroll", () => { if (window.scrollY !== shownAt) hide(); }, { passive: true });
    return { show, hide };
  };

  return { drawPlot, makeTip };
})();
