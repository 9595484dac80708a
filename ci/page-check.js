// Put into a page by ci/pictures.sh: says in attributes of the root what cannot be read there, after it was drawn.
addEventListener("load", () => {
  const found = [];
  // Lines of text that are shown, each with the element that it is in.
  const lines = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    const inside = node.parentElement;
    if (!node.data.trim() || inside.closest("script, noscript, [hidden]")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    // What is scrolled out of a table that is too wide is not seen.
    const clip = inside.closest(".wide");
    const edge = clip ? clip.getBoundingClientRect().right : Infinity;
    for (const box of range.getClientRects()) {
      if (box.width > 0 && box.left < edge) lines.push({ box, text: node.data.trim().slice(0, 40), clip });
    }
  }
  lines.forEach((a, at) => lines.slice(at + 1).forEach((b) => {
    const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
    const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    // Boxes of lines are higher than their letters.
    if (wide > 1 && high > 4) found.push(a.text + " | " + b.text);
  }));
  for (const { box, text, clip } of lines) {
    if (!clip && (box.right > innerWidth + 1 || box.left < -1)) found.push("beyond the window: " + text);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  const root = document.documentElement.dataset;
  root.lines = lines.length;
  root.unreadable = found.slice(0, 10).join("; ");
  root.loaded = performance.getEntriesByType("resource").map((entry) => entry.name).join(" ");
  root.width = innerWidth;
});
