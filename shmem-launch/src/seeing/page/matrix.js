// Who talked with whom: a canvas with a pixel or more for each cell.

function matrixSection(matrix) {
  const side = matrix.names.length;
  const measures = { bytes: [0, size], operations: [1, count], connections: [2, count] };
  const cells = matrix.rows.map((row) => {
    const found = new Map();
    for (let at = 0, column = 0; at < row.length; at += 4, column++) {
      column += row[at];
      found.set(column, row.slice(at + 1, at + 4));
    }
    return found;
  });
  // Square cells of whole pixels, and lines between nodes where there is room for them.
  const cell = Math.max(1, Math.floor(768 / Math.max(1, side)));
  const canvas = make("canvas");
  canvas.width = canvas.height = Math.max(1, side * cell);
  const legend = make("div", "legend");
  const any = (name) => cells.some((row) => [...row.values()].some((values) => values[measures[name][0]] > 0));
  let shown = Object.keys(measures).find(any) || "bytes";

  const paint = () => {
    const [which, text] = measures[shown];
    let [least, most] = [Infinity, 0];
    for (const row of cells) {
      for (const values of row.values()) {
        if (values[which] > 0) least = Math.min(least, values[which]);
        most = Math.max(most, values[which]);
      }
    }
    const share = (value) => (most > least ? Math.log(value / least) / Math.log(most / least) : 1);
    const context = canvas.getContext("2d");
    context.fillStyle = colour("--empty");
    context.fillRect(0, 0, canvas.width, canvas.height);
    cells.forEach((row, y) => row.forEach((values, x) => {
      if (!(values[which] > 0)) return;
      context.fillStyle = heat(share(values[which]));
      context.fillRect(x * cell, y * cell, cell, cell);
    }));
    if (matrix.nodes.length > 1 && matrix.nodes.length <= 64) {
      context.fillStyle = colour("--back");
      for (const bound of matrix.nodes.slice(1)) {
        context.fillRect(bound.at * cell, 0, 1, canvas.height);
        context.fillRect(0, bound.at * cell, canvas.width, 1);
      }
    }
    legend.replaceChildren(...(most > 0 ? scale(text(least), text(most)) : [make("span", "", "none")]));
  };

  const nodeOf = (at) => matrix.nodes.filter((bound) => bound.at <= at).pop();
  const who = (at) => {
    const bound = nodeOf(at);
    return matrix.names[at] + (bound && bound.node !== null ? " on node " + bound.node : "");
  };
  tip(canvas, (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left - 1) / (box.width - 2)) * side);
    const y = Math.floor(((event.clientY - box.top - 1) / (box.height - 2)) * side);
    if (!(x >= 0 && y >= 0 && x < side && y < side)) return "";
    const [bytes, operations, connections] = cells[y].get(x) || [0, 0, 0];
    return who(y) + " → " + who(x) + "\n" + size(bytes) + " in " + plural(operations, "operation") +
      "\n" + plural(connections, "connection") + " opened";
  });

  const choose = choice(Object.keys(measures), (name) => {
    shown = name;
    paint();
  }, shown);
  redraws.push(paint);
  const [first, last] = [matrix.names[0], matrix.names[side - 1]];
  const label = (text) => make("span", "", text);
  return [
    choose,
    make("div", "matrix",
      // This one is read upwards.
      make("div", "rows", ...[last, make("b", "", "who calls"), first].map(label)),
      canvas,
      make("div", "columns", ...[first, make("b", "", "whose memory it is"), last].map(label))),
    legend,
    matrix.folded ? make("p", "faint", "Each row and column stands for several PEs, in the order of their nodes.") : null,
  ];
}

/** A legend of the heat colours between two texts, on a logarithmic scale. */
function scale(least, most) {
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [160, 10];
  const context = canvas.getContext("2d");
  for (let x = 0; x < 160; x++) {
    context.fillStyle = heat(x / 159);
    context.fillRect(x, 0, 1, 10);
  }
  return [make("span", "", least), canvas, make("span", "", most), make("span", "", "logarithmic; grey: none")];
}
