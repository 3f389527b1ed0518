"use strict";
// The script of a report's page: theme, tables and learning curves. Names of runs are inserted as text, never as HTML.

const make = (tag, about = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), about);
  element.append(...children);
  return element;
};

// --- theme, folding, print

const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  root.dataset.theme = dark ? "light" : "dark";
  curves?.redraw();
});
system.addEventListener("change", () => curves?.redraw());

function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const inside = target.querySelector("details");
  if (inside && target.tagName === "SECTION") inside.open = true;
  for (let outer = target.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);

let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

// --- tables: sort, filter, and fold columns to the width of the screen

const rowsOf = table => [...table.tBodies[0].rows].filter(row => row.className !== "detail");
const closeDetails = table => {
  for (const row of table.querySelectorAll("tr.detail")) row.remove();
  for (const more of table.querySelectorAll("button.more[aria-expanded=true]")) more.setAttribute("aria-expanded", "false");
};

function fit(table) {
  const room = table.parentElement.clientWidth, heads = [...table.tHead.rows[0].cells];
  if (!room) return;  // inside a closed details element
  closeDetails(table);
  const rows = [table.tHead.rows[0], ...rowsOf(table)];
  const show = (column, shown) => { for (const row of rows) row.cells[column].hidden = !shown; };
  heads.forEach((_, column) => show(column, true));
  // The name and the verdict stay; the other columns are ordered by importance.
  for (let column = heads.length - 1; column > 1 && table.offsetWidth > room; column--) show(column, false);
  table.classList.toggle("narrowed", heads.some(isFolded) || Boolean(table.detailOf));
}
const isFolded = cell => cell.hidden || cell.classList.contains("folded");

function toggleDetail(more) {
  const row = more.closest("tr"), table = row.closest("table"), expanded = more.getAttribute("aria-expanded") === "true";
  more.setAttribute("aria-expanded", String(!expanded));
  if (expanded) return row.nextElementSibling.remove();
  const list = make("dl"), cells = [...row.cells];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!isFolded(head) || !cells[column].textContent) return;
    const copies = [...cells[column].childNodes].map(node => node.cloneNode(true));
    const title = [...head.querySelector("button").childNodes].map(node => node.textContent).join(": ");
    list.append(make("dt", {}, title), make("dd", {}, ...copies));
  });
  const columns = cells.filter(cell => !isFolded(cell)).length, further = table.detailOf ? table.detailOf(row) : [];
  row.after(make("tr", {className: "detail"}, make("td", {colSpan: columns}, list, ...further)));
}

function sortBy(button) {
  const head = button.parentElement, table = head.closest("table"), heads = [...head.parentElement.children];
  const down = head.getAttribute("aria-sort") === "ascending", column = heads.indexOf(head);
  for (const other of heads) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  closeDetails(table);
  const key = row => row.cells[column].dataset.value || "";
  table.tBodies[0].append(...rowsOf(table).sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === "" || y === "") return (x === "") - (y === "");  // missing values stay last
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, {numeric: true}) : x - y;
    return down ? -order : order;
  }));
}

const resized = new ResizeObserver(entries => {
  for (const {target} of entries) {
    if (target.clientWidth === target.fittedTo) continue;
    target.fittedTo = target.clientWidth;
    fit(target.querySelector("table"));
  }
});

function addMore(row) {
  const more = make("button", {type: "button", className: "more", textContent: "+", title: "show the other columns of this row"});
  more.setAttribute("aria-expanded", "false");
  row.cells[0].prepend(more);
}

function equip(table) {
  rowsOf(table).forEach(addMore);
  if (rowsOf(table).length > 8) {
    const filter = make("input", {type: "search", className: "filter", placeholder: "filter rows"});
    filter.addEventListener("input", () => {
      closeDetails(table);
      const wanted = filter.value.toLowerCase();
      for (const row of rowsOf(table)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(filter);
  }
  resized.observe(table.parentElement);
}

document.addEventListener("click", event => {
  const {target} = event, more = target.closest("button.more"), sort = target.closest("th button"), code = target.closest("td code");
  if (more) toggleDetail(more);
  else if (sort) sortBy(sort);
  else if (code && navigator.clipboard) {
    navigator.clipboard.writeText(code.textContent).then(() => {
      code.classList.add("copied");
      setTimeout(() => code.classList.remove("copied"), 800);
    });
  }
});

// --- learning curves

const {streak, tasks} = JSON.parse(document.getElementById("returns").textContent);

/** Resolve a colour of the style sheet for a canvas. */
function colourOf(variable, alpha = 1) {
  const probe = make("i");
  probe.style.color = `var(--${variable})`;
  root.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return alpha < 1 ? colour.replace("rgb(", "rgba(").replace(")", `, ${alpha})`) : colour;
}

/** Score a run as `score` in runs/metrics.py does; without E_max, steps replace episodes. */
function score(run, limit, task) {
  const returns = task.e_max ? run.values.slice(0, task.e_max) : run.values;
  let first = -1;
  for (let k = 0, inRow = 0; k < returns.length && first < 0; k++) {
    inRow = returns[k] > limit ? inRow + 1 : 0;
    if (inRow === streak) first = k - streak + 1;
  }
  const solved = first >= 0, before = solved ? returns.slice(0, first) : returns;
  const regret = before.reduce((sum, value) => sum + Math.max(limit - value, 0), 0);
  if (task.e_max) return {solved, complete: solved || returns.length >= task.e_max, until: before.length, regret};
  return {solved, complete: run.status === "finished", until: solved ? [0, ...run.x][first] : task.steps || 0, regret: NaN};
}

/** Average the complete runs; no means while runs are in progress, because the first complete runs are the early solved ones. */
function scoreVariant(variant, limit, task) {
  const scores = variant.runs.map(run => score(run, limit, task));
  const underWay = variant.runs.some((run, k) => !scores[k].complete && run.status !== "diverged" && run.values.length);
  const complete = scores.filter(one => one.complete);
  const mean = name => underWay || !complete.length ? NaN : complete.reduce((sum, one) => sum + one[name], 0) / complete.length;
  const judged = variant.runs.filter((run, k) => scores[k].complete || run.values.length || run.status === "diverged").length;
  return {scores, solved: scores.filter(one => one.solved).length, judged, until: mean("until"), regret: mean("regret")};
}

function smooth(values, window) {
  let sum = 0;
  return values.map((value, k) => {
    sum += value - (k >= window ? values[k - window] : 0);
    return sum / Math.min(k + 1, window);
  });
}

/** Interpolate a curve with ascending steps at `x`, between its first and last step. */
function interpolate(places, values, x) {
  let low = 0, high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] <= x) low = middle; else high = middle;
  }
  if (places[high] === places[low]) return values[low];
  return values[low] + (values[high] - values[low]) * (x - places[low]) / (places[high] - places[low]);
}

const oneDecimal = value => Number.isNaN(value) ? "—" : value.toLocaleString("en", {minimumFractionDigits: 1, maximumFractionDigits: 1}).replace("-", "−");

const middles = {
  mean: values => values.reduce((sum, value) => sum + value, 0) / values.length,
  iqm: values => {
    const cut = Math.floor(values.length / 4);
    return middles.mean([...values].sort((a, b) => a - b).slice(cut, values.length - cut));
  },
};

class Curves {
  constructor(place) {
    // A reloaded page, as of a study in training, keeps its settings.
    this.remembered = {task: tasks[0].title, smoothing: "smoothed", middle: "mean", ...JSON.parse(sessionStorage.getItem("curves") || "{}")};
    const choose = (title, name, options, chosen) => {
      const select = make("select", {name}, ...options.map(([value, text]) => make("option", {value}, text)));
      select.value = this.remembered[name];
      select.addEventListener("change", () => { this.remember({[name]: select.value}); chosen(); });
      return make("label", {}, `${title} `, select);
    };
    const chosenTask = () => tasks.find(task => task.title === this.remembered.task) || tasks[0];
    this.slider = make("input", {type: "range", name: "limit", step: "any"});
    this.slider.addEventListener("input", () => this.setLimit(Number(this.slider.value)));
    this.limitText = make("output");
    const own = make("button", {type: "button", textContent: "reset"});
    own.addEventListener("click", () => this.setLimit(this.usualLimit));
    this.legend = make("div");
    this.hover = make("div", {className: "hover", hidden: true});
    this.mark = make("div", {className: "mark", hidden: true});
    this.plot = make("div", {className: "plot"}, this.hover, this.mark);
    this.table = make("table", {id: "scores"}, make("thead", {}, make("tr")), make("tbody"));
    this.limitLabel = make("label", {}, "return threshold ", this.slider, " ", this.limitText, " ", own);
    this.table.createCaption();
    this.table.detailOf = row => this.runsOf(row.variant);
    place.append(
      make("div", {className: "controls"},
        choose("task", "task", tasks.map(task => [task.title, task.title]), () => this.setTask(chosenTask())),
        choose("returns", "smoothing", [["smoothed", "smoothed"], ["raw", "raw"]], () => this.draw()),
        choose("bold line", "middle", [["mean", "mean"], ["iqm", "interquartile mean"]], () => this.draw()),
        this.limitLabel),
      this.legend, make("div", {className: "beside"}, make("div", {}, this.plot), make("div", {className: "scroll"}, this.table)));
    equip(this.table);
    let width = 0;
    const around = this.plot.parentElement;
    new ResizeObserver(() => { if (around.clientWidth !== width) { width = around.clientWidth; this.draw(); } }).observe(around);
    this.setTask(chosenTask());
  }

  remember(change) {
    Object.assign(this.remembered, change);
    sessionStorage.setItem("curves", JSON.stringify(this.remembered));
  }

  setTask(task) {
    this.task = task;
    const known = this.remembered.shown?.[task.title];
    for (const variant of task.variants) variant.shown = known ? known.includes(variant.label) : variant.shown;
    for (const run of task.variants.flatMap(variant => variant.runs)) {
      run.values ??= run.returns.map(whole => whole === null ? NaN : whole / task.scale);
      run.x ??= run.steps || run.values.map((_, k) => (k + 1) * (task.horizon || 1));
    }
    const values = task.variants.flatMap(variant => variant.runs.flatMap(run => run.values)).filter(isFinite);
    const low = values.reduce((a, b) => Math.min(a, b), 0), high = values.reduce((a, b) => Math.max(a, b), task.limit ?? -Infinity);
    this.usualLimit = task.limit;
    Object.assign(this.slider, {min: low, max: high});
    this.limitLabel.hidden = task.limit === null;
    const titles = task.limit === null ? ["runs", ...task.metrics] : ["solved", "until solved", "regret"];
    this.table.tHead.rows[0].replaceChildren(...["Variant", ...titles].map((title, k) => {
      const head = make("th", {className: k ? "n" : "t", scope: "col"}, make("button", {}, title));
      head.setAttribute("aria-sort", "none");
      return head;
    }));
    this.drawLegend();
    this.setLimit(this.usualLimit);
    this.draw();
  }

  setLimit(limit) {
    this.limit = limit;
    this.slider.value = limit;
    this.limitText.value = limit === null ? "" : oneDecimal(limit) + (limit === this.task.limit ? " (the task's)" : "");
    this.drawScores();
    this.chart?.redraw();
  }

  drawLegend() {
    const families = new Map();
    for (const variant of this.task.variants) {
      const button = make("button", {type: "button", title: variant.family}, variant.name);
      button.style.setProperty("--colour", `var(--series-${variant.colour})`);
      button.style.setProperty("--dash", ["solid", "dashed", "dotted"][Math.min(variant.line.length, 4) / 2]);
      button.setAttribute("aria-pressed", String(variant.shown));
      button.addEventListener("click", () => {
        variant.shown = !variant.shown;
        button.setAttribute("aria-pressed", String(variant.shown));
        const shown = this.task.variants.filter(one => one.shown).map(one => one.label);
        this.remember({shown: {...this.remembered.shown, [this.task.title]: shown}});
        this.drawScores();
        this.draw();
      });
      if (!families.has(variant.family)) families.set(variant.family, []);
      families.get(variant.family).push(button);
    }
    const [first, ...others] = [...families].map(([title, buttons]) => [title, make("div", {className: "legend"}, ...buttons)]);
    const count = others.reduce((sum, [, legend]) => sum + legend.children.length, 0);
    const folded = make("details", {hidden: !count}, make("summary", {}, `${count} further variants`));
    for (const [title, legend] of others) folded.append(make("small", {}, title), legend);
    this.legend.replaceChildren(first[1], folded);
  }

  drawScores() {
    const {task, limit} = this, cell = (text, value, kind = "n") => {
      const made = make("td", {className: kind}, text);
      made.dataset.value = Number.isNaN(value) ? "" : value;
      return made;
    };
    const rows = task.variants.filter(variant => variant.shown).map(variant => {
      const row = make("tr", {}, cell(variant.name, variant.name, "t"));
      if (limit === null) {
        row.append(cell(String(variant.runs.length), variant.runs.length), ...variant.metrics.map(mean => cell(oneDecimal(mean ?? NaN), mean ?? NaN)));
      } else {
        const {solved, judged, until, regret} = scoreVariant(variant, limit, task);
        row.append(cell(`${solved} of ${judged}`, solved), cell(oneDecimal(until), until), cell(oneDecimal(regret), regret));
      }
      row.variant = variant;
      addMore(row);
      return row;
    });
    this.table.tBodies[0].replaceChildren(...rows);
    this.table.caption.textContent = limit === null ? "Means over seeds" :
      `Solved means ${streak} consecutive episodes above the threshold. Means over seeds for the threshold ${oneDecimal(limit)}:` +
      ` ${task.e_max ? "episodes" : "steps"} until solved, cumulative regret`;
    for (const head of this.table.querySelectorAll("th")) head.setAttribute("aria-sort", "none");
    fit(this.table);
  }

  runsOf(variant) {
    return variant.runs.map(run => {
      const {solved, until, regret} = this.limit === null ? {} : score(run, this.limit, this.task);
      const scored = `${solved ? "solved after" : "not solved in"} ${until} ${this.task.e_max ? "episodes" : "steps"}` +
        (Number.isNaN(regret) ? "" : `, regret ${oneDecimal(regret)}`);
      const text = `seed ${run.seed} (${run.status})` + (this.limit === null ? "" : `: ${scored}`);
      const film = run.film ? [", ", make("a", {href: run.film, className: "film"}, "video")] : [];
      return make("div", {title: run.run}, text, ...film);
    });
  }

  draw() {
    this.chart?.destroy();
    this.hover.hidden = this.mark.hidden = true;
    const {task} = this, width = Math.floor(this.plot.parentElement.clientWidth);
    const shown = task.variants.filter(variant => variant.shown);
    const runs = shown.flatMap(variant => variant.runs.map(run => ({run, variant})).filter(one => one.run.values.length));
    const longest = runs.reduce((most, {run}) => Math.max(most, run.values.length), 0);
    this.window = this.remembered.smoothing === "smoothed" ? 1 + Math.floor(longest / 100) : 1;
    for (const one of runs) one.y = smooth(one.run.values, this.window);
    this.runs = runs;
    const xs = [...new Set(runs.flatMap(({run}) => run.x))].sort((a, b) => a - b), placeOf = new Map(xs.map((x, k) => [x, k]));
    const aligned = (x, y) => {
      const column = new Array(xs.length);  // undefined values leave no gap in a line
      x.forEach((place, k) => { column[placeOf.get(place)] = y[k]; });
      return column;
    };
    const series = [{}], data = [xs];
    for (const {run, variant, y} of runs) {
      series.push({stroke: () => colourOf(`series-${variant.colour}`, 0.4), width: 0.8, points: {show: false}});
      data.push(aligned(run.x, y));
    }
    for (const variant of shown) {
      const begun = runs.filter(one => one.variant === variant && !["diverged", "failed"].includes(one.run.status));
      const ended = begun.filter(one => one.run.status === "finished"), sound = ended.length ? ended : begun;
      if (!sound.length) continue;
      const start = Math.max(...sound.map(({run}) => run.x[0])), end = Math.min(...sound.map(({run}) => run.x.at(-1)));
      const grid = xs.filter(x => x >= start && x <= end);
      const dash = variant.line.map(length => 2.4 * length);
      series.push({stroke: () => colourOf(`series-${variant.colour}`), width: 2.4, dash, points: {show: false}});
      data.push(aligned(grid, grid.map(x => middles[this.remembered.middle](sound.map(({run, y}) => interpolate(run.x, y, x))))));
    }
    const axis = (label, more) => ({
      label, stroke: () => colourOf("faint"), grid: {stroke: () => colourOf("grid"), width: 1}, ticks: {show: false}, labelFont: "13px system-ui",
      labelSize: 22, ...more,
    });
    const short = value => Math.abs(value) >= 1e6 ? `${value / 1e6}M` : Math.abs(value) >= 1e3 ? `${value / 1e3}k` : String(value);
    this.chart = new uPlot({
      width, height: Math.max(240, Math.min(420, Math.round(width * 0.45))), legend: {show: false}, series,
      scales: {x: {time: false}},
      axes: [axis("environment steps", {values: (_, at) => at.map(short), size: 30}),
        axis("return of a training episode" + (this.window > 1 ? `, mean of ${this.window}` : ""), {size: 60})],
      cursor: {points: {show: false}, y: false},
      hooks: {setCursor: [chart => this.tell(chart)], draw: [chart => this.drawLimit(chart)]},
    }, data, this.plot);
  }

  redraw() { this.chart?.redraw(); }

  drawLimit(chart) {
    if (this.limit == null) return;
    const y = chart.valToPos(this.limit, "y", true), {left, top, width, height} = chart.bbox;
    if (y < top || y > top + height) return;
    Object.assign(chart.ctx, {strokeStyle: colourOf("faint"), lineWidth: devicePixelRatio});
    chart.ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    chart.ctx.beginPath();
    chart.ctx.moveTo(left, y);
    chart.ctx.lineTo(left + width, y);
    chart.ctx.stroke();
    chart.ctx.setLineDash([]);
  }

  /** Show the values of the run nearest to the pointer. */
  tell(chart) {
    const {left, top} = chart.cursor;
    this.hover.hidden = this.mark.hidden = true;
    if (left < 0 || !this.runs.length) return;
    const x = chart.posToVal(left, "x");
    let best = null;
    for (const {run, variant, y} of this.runs) {
      let low = 0, high = run.x.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (run.x[middle] < x) low = middle + 1; else high = middle;
      }
      for (const k of [low - 1, low]) {
        if (k < 0 || !isFinite(y[k])) continue;
        const across = chart.valToPos(run.x[k], "x"), down = chart.valToPos(y[k], "y");
        const distance = Math.hypot(across - left, down - top);
        if (!best || distance < best.distance) best = {run, variant, k, across, down, distance};
      }
    }
    if (!best || best.distance > 60) return;
    const {run, variant, k} = best, dx = chart.over.offsetLeft, dy = chart.over.offsetTop;
    this.hover.replaceChildren(make("b", {}, variant.name), ` seed ${run.seed}, episode ${k}: return ${run.values[k]}`, make("br"), run.run);
    this.hover.hidden = this.mark.hidden = false;
    const far = best.across > chart.over.clientWidth / 2;
    Object.assign(this.mark.style, {left: `${best.across + dx}px`, top: `${best.down + dy}px`, background: `var(--series-${variant.colour})`});
    Object.assign(this.hover.style, {
      left: far ? "auto" : `${best.across + dx + 12}px`, right: far ? `${this.plot.clientWidth - best.across - dx + 12}px` : "auto",
      top: `${Math.max(0, best.down + dy - 30)}px`,
    });
  }
}

for (const table of document.querySelectorAll("table")) equip(table);
const place = document.getElementById("curves");
if (!tasks.length) place.remove();
var curves = tasks.length ? new Curves(place) : null;
openTarget();
