// Cards of causes: code is copied, and ticked cards have a combined estimate.

function openCards() {
  document.querySelectorAll(".snippet").forEach(addCopyButton);
  const cards = [...document.querySelectorAll(".card[data-most]")].filter((card) => Number(card.dataset.most) > 0);
  if (cards.length < 2) return;
  const place = element("div", { className: "combined", role: "status" });
  document.querySelector(".cards").before(place);
  const ticks = cards.map((card) => tickOf(card, () => combine(place, cards.filter((each, at) => ticks[at].checked))));
  combine(place, []);
}

function addCopyButton(snippet) {
  const button = element("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const isCopied = await copyText(codeIn(snippet.querySelector("code").textContent.trimEnd()));
    button.textContent = isCopied ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  snippet.append(button);
}

// Of a change, what is in the program after it, without the marks of a diff.
function codeIn(change) {
  const lines = change.split("\n");
  const kept = lines.filter((line) => !line.startsWith("- "));
  return (kept.length ? kept : lines).map((line) => line.slice(2)).join("\n");
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function tickOf(card, onChange) {
  const box = element("input", { type: "checkbox" });
  box.addEventListener("change", onChange);
  const label = element("label", { className: "tick" });
  label.append(box, " combine");
  box.setAttribute("aria-label", `Combine: ${card.querySelector("h3").textContent.trim()}`);
  card.prepend(label);
  return box;
}

// Costs of causes do not overlap, so what changes save of them adds up.
function combine(place, cards) {
  const lines = [...grouped(cards)].map(([whole, of]) => element("p", { textContent: combinedText(whole, of) }));
  const rests = cards.length > 1
    ? "Based on the costs of these causes, which do not overlap: no time is counted twice. At best, the rest also gets faster, by as much as with one of these changes."
    : "Tick \u201ccombine\u201d on several causes to see what their first changes save together.";
  place.replaceChildren(...lines, element("p", { className: "rests", textContent: rests }));
}

function grouped(cards) {
  const wholes = new Map();
  for (const card of cards) wholes.set(card.dataset.whole, [...(wholes.get(card.dataset.whole) ?? []), card]);
  return wholes;
}

function combinedText(whole, cards) {
  if (cards.length === 1) return cards[0].querySelector(".effect").textContent;
  const before = Number(cards[0].dataset.before);
  const all = (key) => cards.map((card) => Number(card.dataset[key]));
  const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
  const [own, best] = [all("most"), all("best")];
  // At best, the time that no change touches gets faster, too, as much as with one of them.
  const untouched = Math.max(before - sum(own), 0);
  const faster = Math.min(1, ...own.map((saved, at) => best[at] / (before - saved)).filter(Number.isFinite));
  const least = Math.max(sum(all("least")), ...all("worst").map((worst) => before - worst));
  const [low, high] = [untouched * faster, before - least];
  const percent = (time) => Math.round(100 * (1 - time / before));
  const range = (from, to) => (from === to ? from : `${from} to ${to}`);
  const times = range(timeText(low), timeText(high));
  return `${cards.length} changes, ${whole}: ${timeText(before)} \u2192 ${times} ms, ${range(percent(high), percent(low))}% less`;
}

openCards();
