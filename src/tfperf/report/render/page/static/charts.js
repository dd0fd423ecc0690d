// Charts are options for ECharts and nothing else. Their texts are drawn on a canvas, so none is ever markup.

const COLOURS = {
  "input": "input", "input wait": "input", "host to device": "to-device", "kernel launch": "launch",
  "host compute": "host", "device compute": "device", "compilation": "compilation", "output": "output",
  "device collectives": "collectives", "collectives": "collectives", "device to device": "between",
  "all others": "others", "rest of the step": "others",
};
const OTHER_COLOURS = ["accent", "host", "device", "launch", "input", "collectives", "compilation"];
const GROUP_COLOURS = ["others", "accent", "host", "device", "launch", "input", "collectives"];
const ZOOM_FROM = 80;
const LETTER_WIDTH = 7;
const MOST_MARKS = 7;
const drawn = [];

// A colour of the style sheet in the current theme.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function colourOf(name, number) {
  return colour(COLOURS[name.toLowerCase()] ?? OTHER_COLOURS[number % OTHER_COLOURS.length]);
}

// The distance of marks that are round numbers: 1, 2 or 5 and a power of ten; none on an axis of no length.
function roundInterval(span) {
  if (!(span > 0)) return undefined;
  const power = 10 ** Math.floor(Math.log10(span / MOST_MARKS));
  return [1, 2, 5, 10].map((step) => step * power).find((size) => size * MOST_MARKS >= span);
}

// An axis from zero with such marks.
function roundAxis(most) {
  const interval = roundInterval(most);
  if (!interval) return { min: 0 };
  return { min: 0, max: interval * Math.ceil(most / interval - 1e-9), interval };
}

// The same unit at each mark: that of the largest, so that 200 MB stands below 1,000 MB.
function markText(most, unit) {
  if (unit === "ms" || unit === "us") return (value) => `${numberText(value, true)} ${unit === "us" ? "µs" : unit}`;
  if (unit === "%") return (value) => `${numberText(value, true)}%`;
  if (unit !== "bytes") return (value) => measureText(value, unit);
  const place = Math.min(Math.max(Math.floor(Math.log10(most) / 3), 0), BYTE_UNITS.length - 1);
  return (value) => (value ? `${numberText(value / 1000 ** place, true)} ${BYTE_UNITS[place]}` : "0");
}

// --- names ---

// Names of at most `limit` characters. What most of them share is cut first, so that they still differ: the number of a
// layer stays, the scope around it goes.
function shortApart(names, limit) {
  const sharedBy = new Map();
  for (const name of new Set(names)) for (const part of new Set(partsOf(name))) sharedBy.set(part, (sharedBy.get(part) ?? 0) + 1);
  return names.map((name) => {
    if (name.length <= limit) return name;
    const parts = partsOf(name).map((text, place) => ({ text, place, shared: sharedBy.get(text), cut: false }));
    const middle = (parts.length - 1) / 2;
    // The first part and the last say what it is; between equals, those in the middle go first.
    const order = parts.slice(0, -1).sort((a, b) => b.shared - a.shared || Math.abs(a.place - middle) - Math.abs(b.place - middle));
    const shown = () => parts.map(({ text, cut }, at) => (cut ? (parts[at - 1]?.cut ? "" : "…") : text)).join("");
    for (const part of order) {
      part.cut = true;
      if (shown().length <= limit) return shown();
    }
    return short(name, limit);
  });
}

// Text on up to two lines of about equal length, broken where a word ends.
function twoLines(text, limit) {
  if (text.length <= limit) return text;
  let before = "";
  for (const part of partsOf(text)) {
    if (before && (before + part).length > Math.max(limit, text.length / 2)) break;
    before += part;
  }
  return [before, text.slice(before.length)].filter(Boolean).map((line) => short(line, limit)).join("\n");
}

// At most `limit` characters: a longer text loses its middle, as in the other formats.
function short(text, limit) {
  const head = Math.floor(limit / 3);
  return text.length <= limit ? text : `${text.slice(0, head)}…${text.slice(text.length - (limit - head - 1))}`;
}

function basics() {
  const text = { color: colour("text"), fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 12 };
  return {
    animation: false,
    textStyle: text,
    tooltip: {
      renderMode: "richText", confine: true, backgroundColor: colour("raised"), borderColor: colour("line"),
      textStyle: text, axisPointer: { type: "shadow", shadowStyle: { color: colour("muted"), opacity: 0.12 } },
    },
  };
}

function valueAxis(format, more = {}) {
  return {
    type: "value", axisLabel: { color: colour("muted"), formatter: format, hideOverlap: true },
    splitLine: { lineStyle: { color: colour("line") } }, axisLine: { show: false }, axisTick: { show: false }, ...more,
  };
}

function nameAxis(labels, more = {}) {
  const line = { lineStyle: { color: colour("line") } };
  return { type: "category", data: labels, axisLine: line, axisTick: { show: false }, ...more };
}

function legend(more = {}) {
  return { type: "scroll", top: 0, left: 0, itemWidth: 14, itemHeight: 10, pageIconColor: colour("text"),
    pageTextStyle: { color: colour("muted") }, textStyle: { color: colour("text"), lineHeight: 18 }, ...more };
}

// --- steps ---

function totalsOf(data) {
  return data.labels.map((_, step) => data.series.reduce((sum, { values }) => sum + (values[step] ?? 0), 0));
}

function stepTooltip(data, totals) {
  return (points) => {
    const step = points[0].dataIndex;
    const parts = data.series.filter(({ values }) => values[step])
      .map(({ name, values }) => `${name}  ${timeText(values[step])} ms`);
    const flag = data.flags[step] ? `  (${data.flags[step]})` : "";
    const kind = data.kinds.length ? ` ${data.kinds[step]}` : "";
    return [`Step ${data.labels[step]}${kind}${flag}: ${timeText(totals[step])} ms`, ...parts.reverse()].join("\n");
  };
}

// A mark above each flagged step; where the bar is cut at the limit, its duration too.
function flagSeries(data, totals) {
  const limit = data.limit ?? Infinity;
  const heights = totals.map((total, step) => (data.flags[step] ? Math.min(total, limit) : null));
  const label = { show: true, position: "top", color: colour("text"), fontSize: 11, distance: 8,
    formatter: ({ dataIndex }) => (totals[dataIndex] > limit ? `${timeText(totals[dataIndex])} ms` : "") };
  return { type: "scatter", name: "Flagged", data: heights, symbol: "triangle", symbolSize: 8, symbolOffset: [0, -7],
    symbolRotate: 180, itemStyle: { color: colour("text") }, z: 5, clip: false, label, labelLayout: { hideOverlap: true } };
}

function zoom(count) {
  if (count < ZOOM_FROM) return [];
  const slider = { type: "slider", height: 22, bottom: 8, borderColor: colour("line"), textStyle: { color: colour("muted") } };
  return [slider, { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }];
}

// A colour with white stripes, so that kinds of steps differ without colour.
function striped(plain) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const context = canvas.getContext("2d");
  context.fillStyle = plain;
  context.fillRect(0, 0, 8, 8);
  context.strokeStyle = colour("surface");
  context.lineWidth = 2;
  for (const shift of [-8, 0, 8]) {
    context.beginPath();
    context.moveTo(shift - 1, 9);
    context.lineTo(shift + 9, -1);
    context.stroke();
  }
  return { image: canvas, repeat: "repeat" };
}

function stepOption(data) {
  const totals = totalsOf(data);
  // The slider draws its first series, and of a long one only some points: this one holds each total on both sides.
  const outline = { type: "line", name: "Step time", silent: true, symbol: "none", lineStyle: { opacity: 0 }, clip: true,
    data: totals.map((total, step) => Math.min(Math.max(total, totals[step - 1] ?? 0, totals[step + 1] ?? 0), data.limit ?? Infinity)) };
  const bars = data.series.map(({ name, values }, number) => {
    const plain = colourOf(name, number);
    const stripes = data.kinds.length ? { color: striped(plain) } : {};
    const items = values.map((value, step) => (data.kinds[step] === data.kinds[0] ? value : { value, itemStyle: stripes }));
    return { type: "bar", stack: "step", name, data: items, color: plain, barCategoryGap: "12%", barMaxWidth: 60,
      large: false, emphasis: { disabled: true } };
  });
  const isLong = data.labels.length >= ZOOM_FROM;
  const flagged = data.flags.some(Boolean) ? [flagSeries(data, totals)] : [];
  const series = [...(isLong ? [outline] : []), ...bars, ...flagged];
  const named = [...bars, ...flagged].map(({ name }) => name);
  const base = basics();
  return {
    ...base, series, legend: legend({ data: named }), dataZoom: zoom(data.labels.length),
    tooltip: { ...base.tooltip, trigger: "axis", formatter: stepTooltip(data, totals) },
    grid: { top: data.limit ? 62 : 44, left: 8, right: 12, bottom: isLong ? 56 : 24, containLabel: true },
    xAxis: nameAxis(data.labels, { name: "step", nameLocation: "middle", nameGap: 28, nameTextStyle: { color: colour("muted") },
      axisLabel: { color: colour("muted"), hideOverlap: true, formatter: (text) => short(text, 12) } }),
    yAxis: valueAxis(markText(0, "ms"), roundAxis(data.limit ?? Math.max(...totals))),
  };
}

// --- bars ---

function longestLabel() {
  return Math.min(440, Math.round(document.querySelector("main").clientWidth * 0.42));
}

// The names of bars, apart, on one line or two.
function barNames(data) {
  const limit = Math.floor(longestLabel() / LETTER_WIDTH);
  return shortApart(data.labels, 2 * limit - 4).map((text) => twoLines(text, limit));
}

function barOption(data) {
  const series = data.series ?? [{ name: "", values: data.values }];
  const base = basics();
  const isGroup = Boolean(data.series);
  const names = barNames(data);
  const most = Math.max(0, ...series.flatMap(({ values }) => values));
  const label = { show: true, position: "right", color: colour("text"),
    formatter: (point) => measureText(series[point.seriesIndex].values[point.dataIndex], data.unit) };
  return {
    ...base,
    tooltip: { ...base.tooltip, formatter: (point) => `${short(data.labels[point.dataIndex], 120)}\n${point.seriesName ? `${point.seriesName}: ` : ""}${measureText(point.value, data.unit)}` },
    legend: isGroup ? legend() : { show: false },
    grid: { top: isGroup ? 34 : 4, left: 8, right: 76, bottom: 4, containLabel: true },
    xAxis: valueAxis(markText(most, data.unit), roundAxis(most)),
    yAxis: nameAxis(data.labels, { inverse: true, axisLabel: { color: colour("text"), lineHeight: 14,
      formatter: (_, row) => names[row], interval: 0 } }),
    series: series.map(({ name, values }, number) => ({
      type: "bar", name, data: values, label, barMaxWidth: 18, emphasis: { disabled: true },
      color: isGroup ? colour(GROUP_COLOURS[number % GROUP_COLOURS.length]) : undefined,
      itemStyle: isGroup ? {} : { color: (point) => barColour(data.labels[point.dataIndex]) },
    })),
  };
}

function barColour(label) {
  return colour(COLOURS[label.toLowerCase()] ?? "accent");
}

// --- values over time ---

function lineOption(data) {
  const base = basics();
  const [from, to] = data.span ?? [data.times[0], data.times.at(-1)];
  const points = data.times.map((time, number) => [time, data.values[number]]);
  // The last value lasts until the end of the axis.
  if (to > data.times.at(-1)) points.push([to, data.values.at(-1)]);
  const most = Math.max(...data.values, 0);
  const interval = roundInterval(to - from);
  // Marks are counted from the start of the axis, so both ends are round.
  const times = interval ? { min: Math.floor(from / interval + 1e-9) * interval, max: Math.ceil(to / interval - 1e-9) * interval, interval } : {};
  const mark = data.x ? markText(0, "") : markText(0, "ms");
  const placeText = (place) => (data.x ? `${place}` : `${timeText(place)} ms`);
  const named = data.x ? { name: data.x, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: colour("muted") } } : {};
  return {
    ...base,
    tooltip: { ...base.tooltip, trigger: "axis", axisPointer: { type: "line" },
      formatter: ([point]) => `${placeText(point.value[0])}\n${measureText(point.value[1], data.unit)}` },
    grid: { top: 12, left: 8, right: 24, bottom: data.x ? 28 : 8, containLabel: true },
    xAxis: valueAxis(mark, { ...times, ...named, splitLine: { show: false },
      axisLabel: { color: colour("muted"), formatter: mark, hideOverlap: true } }),
    yAxis: valueAxis(markText(most, data.unit), roundAxis(most)),
    series: [{ type: "line", step: "end", data: points, symbol: "none", color: colour("accent"),
      lineStyle: { width: 1.5 }, areaStyle: { opacity: 0.18 } }],
  };
}

// --- points on logarithmic axes ---

// An axis of whole powers of ten around the values, so that no point lies on its edge.
function logAxis(title, values, more = {}) {
  const powers = values.map(Math.log10);
  const [first, last] = [Math.floor(Math.min(...powers) - 0.2), Math.ceil(Math.max(...powers) + 0.2)];
  return { type: "log", name: title, nameLocation: "middle", nameTextStyle: { color: colour("muted") },
    min: 10 ** first, max: 10 ** last, interval: 1,
    axisLabel: { color: colour("muted"), formatter: (value) => powerText(value), hideOverlap: true },
    splitLine: { lineStyle: { color: colour("line") } }, axisTick: { show: false }, ...more };
}

// 0.001, 10, 10,000; further powers with an exponent.
function powerText(value) {
  const power = Math.round(Math.log10(value));
  return power >= 0 && power < 6 ? (10 ** power).toLocaleString("en-US") : power < 0 && power > -6 ? (10 ** power).toFixed(-power) : `1e${power}`;
}

function logOption(data) {
  const base = basics();
  const all = [...data.points, ...data.lines.flatMap((line) => line.points)];
  const share = (number) => (data.weights.length ? `\n${percentText(data.weights[number])}% of ${data.weight}` : "");
  const words = ({ value: [x, y], name, dataIndex }) => `${name}\n${numberText(y, true)} ${data.y}\n${numberText(x, true)} ${data.x}${share(dataIndex)}`;
  const lines = data.lines.map(({ name, points }, number) => ({ type: "line", name, data: points, symbol: "none",
    silent: true, color: colourOf(name, number), lineStyle: { width: 1.5 } }));
  const points = { type: "scatter", name: data.weights.length ? `ops (area: share of ${data.weight})` : "ops", color: colour("accent"),
    symbolSize: (_, { dataIndex }) => (data.weights.length ? Math.max(40 * Math.sqrt(data.weights[dataIndex] / 100), 5) : 9),
    itemStyle: { opacity: 0.75 }, data: data.points.map((value, number) => ({ value, name: data.labels[number] })) };
  return {
    ...base,
    tooltip: { ...base.tooltip, trigger: "item", formatter: words },
    legend: legend({ data: [...lines, points].map(({ name }) => name) }),
    grid: { top: 40, left: 30, right: 24, bottom: 34, containLabel: true },
    xAxis: logAxis(data.x, all.map(([x]) => x), { nameGap: 28 }),
    yAxis: logAxis(data.y, all.map(([, y]) => y), { nameGap: 48 }),
    series: [...lines, points],
  };
}

// --- drawing ---

const OPTIONS = { steps: (data) => withSpread(stepOption(data), data), bars: barOption, groups: barOption, line: lineOption, log: logOption };

function heightOf(data) {
  if (data.kind === "steps") return data.labels.length >= ZOOM_FROM ? 360 : 320;
  if (data.kind === "line") return 180;
  if (data.kind === "log") return 360;
  const single = barNames(data).some((name) => name.includes("\n")) ? 36 : 26;
  const rowHeight = data.series ? 10 + 20 * data.series.length : single;
  return Math.max(data.labels.length * rowHeight, 40) + (data.series ? 68 : 34);
}

function isEmpty(data) {
  return data.kind !== "picture" && (data.labels ?? data.times).length === 0;
}

let chartData;

function allCharts() {
  return (chartData ??= JSON.parse(document.getElementById("charts").textContent));
}

// Charts in a folded section have no width, so they are drawn when it is unfolded.
function drawChartsIn(section) {
  for (const place of section.querySelectorAll(".chart:empty")) drawChart(allCharts()[place.id.slice("chart-".length)], place);
}

function drawChart(data, place) {
  if (isEmpty(data)) return;
  if (data.kind === "picture") {
    drawPicture(data, place);
    return;
  }
  place.style.height = `${heightOf(data)}px`;
  // An element inside, so that the style sheet shows the place, which then has a width, before the chart is drawn.
  place.append(document.createElement("div"));
  const chart = echarts.init(place, null, { renderer: "canvas", devicePixelRatio: Math.max(devicePixelRatio, 2) });
  chart.setOption(OPTIONS[data.kind](data));
  drawn.push({ chart, data });
  if (data.kind === "steps") followSteps(chart, data, place);
  // It tells the first size as well, in which the chart is drawn already.
  new ResizeObserver(() => ![0, chart.getWidth()].includes(place.clientWidth) && chart.resize()).observe(place);
}

function redrawCharts(size = undefined) {
  for (const { chart, data } of drawn) {
    if (size) chart.resize(size);
    chart.setOption(OPTIONS[data.kind](data), { notMerge: true });
    chart.getZr().flush();
  }
  redrawPictures(size);
  stepCharts.forEach(showComparison);
}
