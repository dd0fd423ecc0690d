// Values as the other formats show them: units.py and render/values.py in JavaScript. A test compares the two.

const UNKNOWN = "-";
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

// toFixed rounds a tie away from zero, Python to the even digit. Only a multiple of a power of two can be a tie.
function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const isTie = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (isTie ? (2 * Math.round(scaled / 2)) / 10 ** digits : value).toFixed(digits);
}

// How many digits behind the point make three in all.
function digitsOf(magnitude) {
  return magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : magnitude >= 0.9995 ? 2 : 3;
}

function timeText(value) {
  const magnitude = Math.abs(value);
  if (magnitude > 0 && magnitude < 0.0005) return value > 0 ? "<0.001" : ">-0.001";
  return fixed(value + 0, digitsOf(magnitude));
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
    size /= 1000;
    unit += 1;
  }
  if (!unit && Number.isInteger(size)) return `${size} B`;
  return `${fixed(size, Math.min(digitsOf(Math.abs(size)), 2))} ${BYTE_UNITS[unit]}`;
}

function numberText(value, grouped) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) {
    return grouped ? (value + 0).toLocaleString("en-US") : String(value);
  }
  if (Math.abs(value) >= 99.95 && (grouped || Math.abs(value) < 1e6)) return Number(fixed(value, 0)).toLocaleString("en-US");
  const [digits, power] = value.toExponential(2).split("e");
  if (power >= -4 && power < 3) return String(Number(fixed(value, 2 - power)));
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
  return unit === "%" ? `${text}%` : `${text} ${unit === "us" ? "µs" : unit}`;
}
