// Charts are options for ECharts and nothing else. Texts in them are drawn on a canvas, so none is ever markup.

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
const drawn = [];

// A colour of the style sheet as it is in the theme of now.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function colourOf(name, at) {
  return colour(COLOURS[name.toLowerCase()] ?? OTHER_COLOURS[at % OTHER_COLOURS.length]);
}

function short(text, most) {
  const head = Math.floor(most / 3);
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(text.length - (most - head - 1))}`;
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
  return data.labels.map((_, at) => data.series.reduce((sum, own) => sum + (own.values[at] ?? 0), 0));
}

function stepTooltip(data, totals) {
  return (points) => {
    const at = points[0].dataIndex;
    const parts = data.series.filter((own) => own.values[at]).map((own) => `${own.name}  ${timeText(own.values[at])} ms`);
    const flag = data.flags[at] ? `  (${data.flags[at]})` : "";
    return [`Step ${data.labels[at]}${flag}: ${timeText(totals[at])} ms`, ...parts.reverse()].join("\n");
  };
}

// A step that is cut at the limit has its length above it.
function flagSeries(data, totals) {
  const most = data.limit ?? Infinity;
  const places = totals.map((total, at) => (data.flags[at] ? Math.min(total, most) : null));
  const label = { show: true, position: "top", color: colour("text"), fontSize: 11, distance: 8,
    formatter: ({ dataIndex }) => (totals[dataIndex] > most ? `${timeText(totals[dataIndex])} ms` : "") };
  return { type: "scatter", name: "With a flag", data: places, symbol: "triangle", symbolSize: 8, symbolOffset: [0, -7],
    symbolRotate: 180, itemStyle: { color: colour("text") }, z: 5, clip: false, label, labelLayout: { hideOverlap: true } };
}

function zoom(count) {
  if (count < ZOOM_FROM) return [];
  const slider = { type: "slider", height: 22, bottom: 8, borderColor: colour("line"), textStyle: { color: colour("muted") } };
  return [slider, { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }];
}

function stepOption(data) {
  const totals = totalsOf(data);
  const bars = data.series.map((own, at) => ({
    type: "bar", stack: "step", name: own.name, data: own.values, color: colourOf(own.name, at), barCategoryGap: "12%",
    barMaxWidth: 60, large: false, emphasis: { disabled: true },
  }));
  const series = data.flags.some(Boolean) ? [...bars, flagSeries(data, totals)] : bars;
  const base = basics();
  const hasZoom = data.labels.length >= ZOOM_FROM;
  return {
    ...base, series, legend: legend(), dataZoom: zoom(data.labels.length),
    tooltip: { ...base.tooltip, trigger: "axis", formatter: stepTooltip(data, totals) },
    grid: { top: data.limit ? 62 : 44, left: 8, right: 12, bottom: hasZoom ? 56 : 24, containLabel: true },
    xAxis: nameAxis(data.labels, { name: "step", nameLocation: "middle", nameGap: 28, nameTextStyle: { color: colour("muted") },
      axisLabel: { color: colour("muted"), hideOverlap: true, formatter: (text) => short(text, 12) } }),
    yAxis: valueAxis((value) => `${numberText(value, true)} ms`, data.limit ? { max: data.limit } : {}),
  };
}

// --- bars ---

function longestLabel() {
  return Math.min(440, Math.round(document.querySelector("main").clientWidth * 0.42));
}

function barOption(data) {
  const series = data.series ?? [{ name: "", values: data.values }];
  const base = basics();
  const isGroup = Boolean(data.series);
  const label = { show: true, position: "right", color: colour("text"),
    formatter: (point) => measureText(series[point.seriesIndex].values[point.dataIndex], data.unit) };
  return {
    ...base,
    tooltip: { ...base.tooltip, formatter: (point) => `${short(data.labels[point.dataIndex], 120)}\n${point.seriesName ? `${point.seriesName}: ` : ""}${measureText(point.value, data.unit)}` },
    legend: isGroup ? legend() : { show: false },
    grid: { top: isGroup ? 34 : 4, left: 8, right: 76, bottom: 4, containLabel: true },
    xAxis: valueAxis(null, { axisLabel: { show: false }, splitLine: { show: false } }),
    yAxis: nameAxis(data.labels, { inverse: true, axisLabel: { color: colour("text"), width: longestLabel(),
      overflow: "truncate", formatter: (text) => short(text, Math.floor(longestLabel() / LETTER_WIDTH)), interval: 0 } }),
    series: series.map((own, at) => ({
      type: "bar", name: own.name, data: own.values, label, barMaxWidth: 18, emphasis: { disabled: true },
      color: isGroup ? colour(GROUP_COLOURS[at % GROUP_COLOURS.length]) : undefined,
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
  const points = data.times.map((time, at) => [time, data.values[at]]);
  return {
    ...base,
    tooltip: { ...base.tooltip, trigger: "axis", axisPointer: { type: "line" },
      formatter: ([point]) => `${timeText(point.value[0])} ms\n${measureText(point.value[1], data.unit)}` },
    grid: { top: 12, left: 8, right: 24, bottom: 8, containLabel: true },
    xAxis: valueAxis((time) => `${numberText(time, true)} ms`, { min: "dataMin", max: "dataMax", splitLine: { show: false } }),
    yAxis: valueAxis((value) => measureText(value, data.unit), data.high > data.low ? { min: data.low, max: data.high } : {}),
    series: [{ type: "line", step: "end", data: points, symbol: "none", color: colour("accent"),
      lineStyle: { width: 1.5 }, areaStyle: { opacity: 0.18 } }],
  };
}

// --- drawing ---

const OPTIONS = { steps: stepOption, bars: barOption, groups: barOption, line: lineOption };

function heightOf(data) {
  if (data.kind === "steps") return data.labels.length >= ZOOM_FROM ? 360 : 320;
  if (data.kind === "line") return 180;
  const each = data.series ? 10 + 20 * data.series.length : 26;
  return Math.max(data.labels.length * each, 40) + (data.series ? 44 : 10);
}

function isEmpty(data) {
  return (data.labels ?? data.times).length === 0;
}

function drawChart(data, at) {
  const place = document.getElementById(`chart-${at}`);
  if (isEmpty(data)) return;
  place.style.height = `${heightOf(data)}px`;
  // Filled, so that the style sheet shows it, and has its width, before it is drawn.
  place.append(document.createElement("div"));
  const chart = echarts.init(place, null, { renderer: "canvas", devicePixelRatio: Math.max(devicePixelRatio, 2) });
  chart.setOption(OPTIONS[data.kind](data));
  drawn.push({ chart, data });
  new ResizeObserver(() => chart.resize()).observe(place);
}

function redrawCharts(size = undefined) {
  for (const { chart, data } of drawn) {
    if (size) chart.resize(size);
    chart.setOption(OPTIONS[data.kind](data), { notMerge: true });
    chart.getZr().flush();
  }
}
