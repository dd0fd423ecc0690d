// The data of a picture of a step: decoding, levels of detail, and what is found in them. Times are nanoseconds.

function decodePicture(data) {
  const starts = data.levels.map(({ start }) => {
    let sum = 0;
    return start.map((step) => (sum += step));
  });
  const rowCount = data.groups.reduce((sum, { lanes }) => sum + lanes.reduce((rows, lane) => rows + lane.rows, 0), 0);
  const levels = data.levels.map((level, number) => ({ ...level, start: starts[number], ...rowBounds(level.row, rowCount) }));
  const groupOfRow = data.groups.flatMap(({ lanes }, group) => lanes.flatMap((lane) => Array(lane.rows).fill(group)));
  const kinds = data.names.map(([, kind]) => blockColour(kind));
  const isIdle = data.names.map(([, kind]) => kind.startsWith("Idle: "));
  const memory = data.memory.map((curve) => ({ ...curve, most: Math.max(...curve.values, 0) }));
  return { ...data, levels, rowCount, groupOfRow, kinds, isIdle, memory };
}

// Blocks are ordered by row, in a row by start.
function rowBounds(rows, rowCount) {
  const starts = new Int32Array(rowCount);
  const ends = new Int32Array(rowCount);
  for (const row of rows) ends[row] += 1;
  for (let row = 0, sum = 0; row < rowCount; row += 1) {
    starts[row] = sum;
    sum += ends[row];
    ends[row] = sum;
  }
  return { starts, ends };
}

function finestLevel(data) {
  return data.levels[data.levels.length - 1];
}

// The coarsest level that merges nothing wider than a pixel.
function levelFor(data, nsPerPixel) {
  return data.levels.find(({ finest }) => finest <= 1.5 * nsPerPixel) ?? finestLevel(data);
}

// The first block of a row that may reach beyond a time; of a stream whose work overlaps, some more.
function firstFrom(level, row, ns) {
  let low = level.starts[row];
  let high = level.ends[row];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (level.start[middle] < ns) low = middle + 1;
    else high = middle;
  }
  return Math.max(low - 4, level.starts[row]);
}

function blockOf(level, at) {
  return { row: level.row[at], start: level.start[at], duration: level.duration[at], name: level.name[at],
    count: level.count[at], self: level.self[at], note: level.note[at], at };
}

function blockAt(data, level, row, ns, tolerance) {
  let nearest = null;
  let least = Infinity;
  for (let at = firstFrom(level, row, ns); at < level.ends[row] && level.start[at] <= ns + tolerance; at += 1) {
    const distance = Math.max(level.start[at] - ns, ns - level.start[at] - level.duration[at], 0);
    if (distance <= tolerance && distance <= least) {
      least = distance;
      nearest = blockOf(level, at);
    }
  }
  return nearest;
}

// The block before or after one in its row, or what is around it or inside it.
function neighbour(data, level, block, along, down, isShown) {
  if (!block) {
    const row = level.starts.findIndex((start, at) => isShown(at) && level.ends[at] > start);
    return row < 0 ? null : blockOf(level, level.starts[row]);
  }
  if (down) {
    const middle = block.start + block.duration / 2;
    for (let row = block.row + down; row >= 0 && row < level.starts.length; row += down) {
      const found = isShown(row) ? blockAt(data, level, row, middle, block.duration / 2) : null;
      if (found) return found;
    }
    return null;
  }
  const same = blockAt(data, level, block.row, block.start, 0) ?? blockAt(data, level, block.row, block.start, block.duration);
  const next = same ? same.at + along : -1;
  return next >= level.starts[block.row] && next < level.ends[block.row] ? blockOf(level, next) : null;
}

function ribbonAt(ribbon, ns) {
  const at = ribbon.start.findIndex((start, number) => start <= ns && ns < ribbon.end[number]);
  return at < 0 ? null : { title: ribbon.titles[ribbon.category[at]], start: ribbon.start[at], duration: ribbon.end[at] - ribbon.start[at] };
}

// --- words ---

function blockLabel(data, level, at) {
  const [name] = data.names[level.name[at]];
  return level.count[at] > 1 ? `${level.count[at]} × ${name}` : name;
}

function opOf(data, block) {
  const [, , , op] = data.names[block.name];
  return op || /(?:^|; )op (.*) \([^()]*\)(?:;|$)/.exec(data.notes[block.note] ?? "")?.[1] || "";
}

function blockLines(data, block) {
  const [name, kind, type] = data.names[block.name];
  const lines = [short(name, 120)];
  if (block.count > 1) {
    lines[0] = `${block.count.toLocaleString("en-US")} events, most of it ${lines[0]}`;
    lines.push(`${nsText(block.self)} in all, within ${nsText(block.duration)} from ${nsText(block.start)} on`);
  } else {
    lines.push(`${nsText(block.duration)} from ${nsText(block.start)} on, ${nsText(block.self)} of it itself`);
  }
  lines.push(type ? `${kind}, ${type}` : kind);
  if (block.note >= 0) lines.push(short(data.notes[block.note], 240));
  return lines;
}

function ribbonLines({ title, start, duration }) {
  return [title, `${nsText(duration)} from ${nsText(start)} on`];
}

// --- search and links ---

function matchingNames(data, text) {
  const wanted = text.toLowerCase();
  const found = data.names.flatMap((parts, number) => (parts.some((part) => part.toLowerCase().includes(wanted)) ? [number] : []));
  return new Set(found);
}

function countText(data, matches) {
  const level = finestLevel(data);
  let count = 0;
  let isAtLeast = false;
  for (let at = 0; at < level.name.length; at += 1) {
    if (level.count[at] > 1) isAtLeast = true;
    if (matches.has(level.name[at])) count += 1;
  }
  return `${isAtLeast ? "at least " : ""}${count.toLocaleString("en-US")} ${count === 1 ? "match" : "matches"}`;
}

function linksOf(data, block) {
  const { links } = data;
  const found = [];
  const isInside = (row, ns) => row === block.row && ns >= block.start && (ns < block.start + block.duration || ns === block.start);
  for (let at = 0; at < links.kind.length; at += 1) {
    const from = { row: links.fromRow[at], ns: links.from[at] };
    const to = { row: links.toRow[at], ns: links.to[at] };
    const isOutgoing = isInside(from.row, from.ns);
    if (isOutgoing || isInside(to.row, to.ns)) {
      found.push({ kind: links.kinds[links.kind[at]], from, to, isOutgoing, other: isOutgoing ? to : from });
    }
  }
  return found;
}
