// All steps of a run: their median, the band from p5 to p95 and how often each time occurs; and one step beside the median.

const BINS = 40;
const HISTOGRAM = 92;
const HISTOGRAM_FROM = 640;
const LEAST_DIFFERENCE = 0.005;
const stepCharts = [];

// Without work of devices, computing on the host is the computing; beside it, it is a lighter shade of the same.
function mixColours() {
  const hasDevice = allCharts().some(({ series }) => series?.some(({ name }) => name === "Device compute"));
  if (!hasDevice) document.documentElement.style.setProperty("--host", "var(--device)");
}

// The number of steps in each of `BINS` equal stretches of an axis from zero, as shares in percent.
function histogram(times, most) {
  const counts = Array(BINS).fill(0);
  for (const time of times) if (time <= most) counts[Math.min(Math.floor((time / most) * BINS), BINS - 1)] += 1;
  return counts.map((count) => (100 * count) / times.length);
}

// Add the median, the band, the selected step and the histogram to the chart of steps.
function withSpread(option, data) {
  const { usual } = data;
  const marks = { type: "line", name: "marks", data: [], silent: true, tooltip: { show: false }, markLine: { silent: true, symbol: "none", data: [] } };
  const lines = marks.markLine.data;
  const text = { color: colour("text"), backgroundColor: colour("surface"), padding: [1, 3], fontSize: 11 };
  if (usual) {
    lines.push({ yAxis: usual.median, lineStyle: { color: colour("text"), type: "solid", width: 1 },
      label: { ...text, position: "insideStartTop", formatter: `median ${timeText(usual.median)} ms` } });
    marks.markArea = { silent: true, itemStyle: { color: colour("text"), opacity: 0.12 }, data: [[{ yAxis: usual.p5 }, { yAxis: usual.p95 }]] };
  }
  const selected = data.labels.indexOf(view.step);
  if (view.step && selected >= 0) {
    lines.push({ xAxis: selected, lineStyle: { color: colour("link"), type: "solid", width: 3 },
      label: { ...text, position: "insideEndTop", rotate: 0, formatter: `step ${short(view.step, 12)}` } });
  }
  option.series = [...option.series, { ...marks, z: 6 }];
  const [start, end] = view.range.split("-").map(Number);
  if (end > start) option.dataZoom = option.dataZoom.map((zoomed) => ({ ...zoomed, start, end }));
  const most = option.yAxis.max;
  if (!usual || !(most > 0) || document.querySelector("main").clientWidth < HISTOGRAM_FROM) return option;
  const shares = histogram(usual.times, most);
  const size = most / BINS;
  option.dataZoom = option.dataZoom.map((zoomed) => ({ ...zoomed, xAxisIndex: 0, ...(zoomed.type === "slider" ? { right: HISTOGRAM + 48 } : {}) }));
  option.series.push({ type: "bar", name: "Histogram", data: shares, xAxisIndex: 1, yAxisIndex: 1, barCategoryGap: 0, color: colour("muted"),
    emphasis: { disabled: true } });
  const ofSteps = option.tooltip.formatter;
  option.tooltip = { ...option.tooltip, formatter: (points) => {
    const bin = points.find(({ seriesName }) => seriesName === "Histogram");
    if (!bin) return ofSteps(points);
    const from = bin.dataIndex * size;
    return `${timeText(from)} to ${timeText(from + size)} ms\n${percentText(shares[bin.dataIndex])}% of ${usual.count.toLocaleString("en-US")} averaged steps`;
  } };
  const { top, bottom } = option.grid;
  option.grid = [{ ...option.grid, right: HISTOGRAM + 24 }, { top, bottom, right: 12, width: HISTOGRAM, containLabel: true }];
  option.xAxis = [option.xAxis, valueAxis((value) => `${numberText(value, true)}%`, { gridIndex: 1, min: 0, splitNumber: 2, splitLine: { show: false },
    axisLabel: { color: colour("muted"), formatter: (value) => `${numberText(value, true)}%`, hideOverlap: true, showMinLabel: false },
    name: "of steps", nameLocation: "middle", nameGap: 28, nameTextStyle: { color: colour("muted") } })];
  option.yAxis = [option.yAxis, { type: "category", gridIndex: 1, data: shares.map((_, bin) => String(bin)), axisLabel: { show: false },
    axisTick: { show: false }, axisLine: { lineStyle: { color: colour("line") } } }];
  return option;
}

// --- selecting a step ---

function followSteps(chart, data, place) {
  const panel = element("div", { className: "compare" });
  panel.setAttribute("aria-live", "polite");
  const box = element("input", { type: "search", inputMode: "numeric", autocomplete: "off" });
  box.ariaLabel = "Step to compare with the median step";
  box.addEventListener("change", () => {
    const step = box.value.trim();
    const isKnown = !step || data.labels.includes(step);
    box.setCustomValidity(isKnown ? "" : "The chart does not show a step with this number.");
    if (isKnown) selectStep(step, place);
    else box.reportValidity();
  });
  const tools = element("div", { className: "tools step-tools" }, [element("label", {}, ["Click a step, or type its number", box])]);
  const button = (text, pick) => {
    const made = element("button", { type: "button", textContent: text });
    made.addEventListener("click", () => selectStep(pick(), place));
    tools.append(made);
  };
  const totals = totalsOf(data);
  const beside = (by) => data.labels[Math.min(Math.max(data.labels.indexOf(view.step) + by, 0), data.labels.length - 1)];
  button("Slowest", () => data.labels[totals.indexOf(Math.max(...totals))]);
  button("Previous", () => beside(-1));
  button("Next", () => beside(1));
  button("Close", () => "");
  const { usual } = data;
  const spread = usual
    ? [element("p", { className: "words", textContent: `Line: median, ${timeText(usual.median)} ms. Band: p5 to p95, ${[...new Set([timeText(usual.p5), timeText(usual.p95)])].join(" to ")} ms, of ${usual.count.toLocaleString("en-US")} averaged steps.` })]
    : [];
  tools.hidden = data.labels.length < 2;
  place.after(...spread, tools, panel);
  const zr = chart.getZr();
  const stepAt = ({ offsetX, offsetY }) => {
    if (!chart.containPixel({ gridIndex: 0 }, [offsetX, offsetY])) return undefined;
    return data.labels[Math.round(chart.convertFromPixel({ xAxisIndex: 0 }, offsetX))];
  };
  zr.on("click", (event) => {
    const step = stepAt(event);
    if (step !== undefined) selectStep(step, place);
  });
  zr.on("mousemove", (event) => stepAt(event) !== undefined && zr.setCursorStyle("pointer"));
  chart.on("datazoom", () => {
    const { start, end } = chart.getOption().dataZoom[0];
    const isWhole = start < 0.05 && end > 99.95;
    remember({ range: isWhole ? "" : `${numberText(start, true)}-${numberText(end, true)}` });
  });
  stepCharts.push({ chart, data, panel, box, tools, place });
  showComparison(stepCharts.at(-1));
}

function selectStep(step, place) {
  const section = place.closest("details.section");
  remember({ step, ids: section ? [idOf(section)] : view.ids }, true);
  showStep();
}

// Mark a step in all charts of steps, and compare it with the median step.
function showStep() {
  for (const each of stepCharts) {
    const { series, ...rest } = OPTIONS.steps(each.data);
    each.chart.setOption({ series, tooltip: rest.tooltip });
    showComparison(each);
  }
}

function difference(value) {
  return `${value < 0 ? "−" : "+"}${timeText(Math.abs(value))} ms`;
}

function showComparison({ data, panel, box, tools, place }) {
  const { usual } = data;
  const at = data.labels.indexOf(view.step);
  const isShown = Boolean(view.step) && at >= 0;
  box.value = isShown ? view.step : "";
  tools.querySelectorAll("button").forEach((button) => (button.hidden = !isShown && button.textContent !== "Slowest"));
  panel.replaceChildren();
  if (!isShown) return;
  const total = totalsOf(data)[at];
  const parts = data.series.map(({ name, values }, number) => ({ name, number, value: values[at] ?? 0, median: usual?.parts[name] ?? 0 }));
  const median = usual ? parts.reduce((sum, part) => sum + part.median, 0) : 0;
  const which = [data.kinds[at], data.flags[at]].filter(Boolean).join(", ");
  const name = `Step ${data.labels[at]}${which ? ` (${which})` : ""}`;
  panel.append(element("p", { className: "gap", textContent: usual ? comparedText(name, total, usual, median) : `${name} takes ${timeText(total)} ms.` }));
  const scale = Math.max(total, median);
  panel.append(scaleBar(name, parts, "value", total, scale));
  if (usual && usual.step !== view.step) {
    panel.append(scaleBar(`Step ${usual.step} (median)`, parts, "median", median, scale));
    panel.append(differences(parts, median));
  }
  panel.append(...pictureLinks(data.labels[at], place));
}

function comparedText(name, total, usual, median) {
  if (usual.step === view.step) return `${name} is the median step: ${timeText(total)} ms.`;
  const more = total - median;
  const share = median ? ` (${percentText((100 * Math.abs(more)) / median)}% ${more < 0 ? "less" : "more"})` : "";
  return `${name} takes ${timeText(total)} ms, the median step ${timeText(median)} ms: ${difference(more)}${share}.`;
}

// The parts of a step as one bar; two of them share a scale.
function scaleBar(title, parts, key, total, scale) {
  const bar = element("div", { className: "bar" }, parts.filter((part) => part[key] > 0).map((part) => {
    const piece = element("span", { title: `${part.name} ${timeText(part[key])} ms` });
    piece.style.width = `${(100 * part[key]) / scale}%`;
    piece.style.background = colourOf(part.name, part.number);
    return piece;
  }));
  bar.role = "img";
  bar.ariaLabel = `${title}: ${parts.filter((part) => part[key] > 0).map((part) => `${part.name} ${timeText(part[key])} ms`).join(", ")}`;
  return element("div", { className: "scale" }, [element("span", { textContent: title }), bar, element("span", { textContent: `${timeText(total)} ms` })]);
}

// The causes that a category of step time belongs to.
function causesOf(category) {
  const { causes } = allCharts().find((data) => data.causes) ?? { causes: [] };
  return causes.filter(([, categories]) => categories.includes(category)).map(([title]) => title);
}

// What differs, the largest difference first.
function differences(parts, median) {
  const rows = parts.map((part) => ({ ...part, more: part.value - part.median }))
    .filter(({ more }) => Math.abs(more) >= LEAST_DIFFERENCE * median).sort((a, b) => Math.abs(b.more) - Math.abs(a.more));
  if (!rows.length) return element("p", { textContent: "No category differs by 0.5% of the median step or more." });
  const cells = (kind, texts) => element("tr", {}, texts.map((text, at) => element(kind, { textContent: text, className: at ? "number" : "" })));
  const head = element("thead", {}, [cells("th", ["Category (causes)", `Step ${view.step}`, "Median step", "Difference"])]);
  const body = element("tbody", {}, rows.map(({ name, number, value, median: usual, more }) => {
    const row = cells("td", ["", `${timeText(value)} ms`, `${timeText(usual)} ms`, difference(more)]);
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = colourOf(name, number);
    const causes = causesOf(name).join(", ");
    row.firstChild.append(swatch, ` ${name}${causes ? ` (${causes})` : ""}`);
    return row;
  }));
  return element("table", {}, [head, body]);
}

// Where the page has the step as a picture, its events.
function pictureLinks(step) {
  const drawnAs = allCharts().flatMap((data, number) => (data.kind === "picture" && data.step === step ? [`chart-${number}`] : []));
  if (!drawnAs.length) return [element("p", { className: "remark", textContent: `To see the events of this step, add --step ${step} to the command that wrote this page.` })];
  return drawnAs.map((id) => {
    const figure = document.getElementById(id).closest("figure");
    const button = element("button", { type: "button", textContent: `Show the events: ${short(figure.querySelector("figcaption").textContent, 90)}` });
    button.addEventListener("click", () => {
      remember({ ids: [id] }, true);
      land(document.getElementById(id));
    });
    return element("p", {}, [button]);
  });
}

// A page of a requested step opens on it.
function showRequested() {
  const number = allCharts().findIndex(({ opens }) => opens);
  if (number < 0) return;
  remember({ ids: [`chart-${number}`], step: allCharts()[number].step });
  showView();
  landOnView();
}
