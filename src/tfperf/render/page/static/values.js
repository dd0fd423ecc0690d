// Values as the other formats show them: units.py and render/values.py in JavaScript. A test compares the two.

const UNKNOWN = "-";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// toFixed rounds a tie away from zero, Python to the even digit. Only a multiple of a power of two can be a tie.
function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const isTie = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (isTie ? (2 * Math.round(scaled / 2)) / 10 ** digits : value).toFixed(digits);
}

function timeText(value) {
  const magnitude = Math.abs(value);
  if (magnitude > 0 && magnitude < 0.0005) return value > 0 ? "<0.001" : ">-0.001";
  return fixed(value + 0, magnitude >= 1000 ? 0 : magnitude >= 10 ? 1 : magnitude >= 1 ? 2 : 3);
}

function percentText(value) {
  const magnitude = Math.abs(value);
  const sign = value < 0 ? "-" : "";
  const text = fixed(magnitude, 1);
  if (text === "0.0" && magnitude > 0) return sign ? ">-0.1" : "<0.1";
  if (text === "100.0" && magnitude < 100) return sign ? "<-99.9" : ">99.9";
  return sign + text;
}

function bytesText(value) {
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  if (!unit && Number.isInteger(size)) return `${size} B`;
  const digits = Math.abs(size) >= 99.95 ? 0 : Math.abs(size) >= 9.995 ? 1 : 2;
  return `${fixed(size, digits)} ${BYTE_UNITS[unit]}`;
}

function numberText(value, grouped) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) {
    return grouped ? (value + 0).toLocaleString("en-US") : String(value);
  }
  if (grouped && Math.abs(value) >= 100) {
    return Number(fixed(value, 1)).toLocaleString("en-US", { minimumFractionDigits: 1 });
  }
  const [digits, power] = value.toExponential(5).split("e");
  if (power >= -4 && power < 6) return String(Number(value.toPrecision(6)));
  return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

function valueText(value, unit) {
  if (value === null) return UNKNOWN;
  if (unit === "ms" || unit === "us") return timeText(value);
  if (unit === "%") return percentText(value);
  return unit === "bytes" ? bytesText(value) : numberText(value, unit === "count");
}

// With its unit, for charts, which have no heading that names it.
function measureText(value, unit) {
  const text = valueText(value, unit);
  if (value === null || ["", "count", "bytes"].includes(unit)) return text;
  return unit === "%" ? `${text}%` : `${text} ${unit}`;
}
