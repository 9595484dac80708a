// Bars and lines.

/** Bars from a moment or value to another: each {name, parts: [{from, to, kind}], value, tip}. */
function bars(rows, most) {
  const place = (value) => (most > 0 ? Math.min(100, (100 * value) / most) : 0);
  const list = make("div", "bars");
  for (const row of rows) {
    const track = make("div", "track");
    for (const part of row.parts) {
      const bar = make("i", part.kind);
      // A bar that is too short to be seen at the right edge is moved into the track.
      bar.style.left = "min(" + place(part.from) + "%, 100% - 2px)";
      if (part.kind !== "mark") bar.style.width = place(part.to) - place(part.from) + "%";
      if (part.colour) bar.style.background = part.colour;
      track.append(bar);
    }
    tip(track, () => row.tip);
    list.append(make("div", "name", row.name), track, make("div", "value", row.value));
  }
  return list;
}

/** A round number of about a quarter of `most`: the distance of lines. */
function step(most, integer) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const round = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  return integer ? Math.max(1, Math.round(round)) : round;
}

/** A line over time, between two moments, filled, as wide as the page. */
function line(title, points, from, to, variable) {
  const place = make("div");
  const paint = () => place.replaceChildren(linePicture(title, points, from, to, variable));
  redraws.push(paint);
  paint();
  return make("div", "", make("h3", "", title), place);
}

function linePicture(title, points, from, to, variable) {
  const [width, height, left, bottom] = [Math.max(260, page.clientWidth - 32), 150, 50, 22];
  const most = Math.max(1, ...points);
  const top = most * 1.05;
  const x = (at) => left + ((width - left) * at) / Math.max(1, points.length - 1);
  const y = (value) => (height - bottom) * (1 - value / top);
  const picture = draw("svg", { viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": title });
  const text = (x, y, anchor, what) => draw("text", { x, y, "text-anchor": anchor }, what);
  for (let value = 0, each = step(most, true); value <= most; value += each) {
    picture.append(
      draw("line", { x1: left, x2: width, y1: y(value), y2: y(value), stroke: "var(--line)" }),
      text(left - 8, y(value) + 4, "end", count(value)),
    );
  }
  const corners = points.map((value, at) => x(at).toFixed(1) + "," + y(value).toFixed(1)).join(" ");
  const floor = y(0).toFixed(1);
  picture.append(
    draw("polygon", { points: left + "," + floor + " " + corners + " " + width + "," + floor, fill: "var(" + variable + ")", opacity: 0.15 }),
    draw("polyline", { points: corners, fill: "none", stroke: "var(" + variable + ")", "stroke-width": 2 }),
  );
  const marks = width < 500 ? 2 : 4;
  for (let mark = 0; mark <= marks; mark++) {
    const at = from + ((to - from) * mark) / marks;
    const anchor = mark === 0 ? "start" : mark === marks ? "end" : "middle";
    picture.append(text(left + ((width - left) * mark) / marks, height - 4, anchor, time(at)));
  }
  tip(picture, (event) => {
    const box = picture.getBoundingClientRect();
    const inside = ((event.clientX - box.left) / box.width) * width - left;
    const at = Math.round((inside / (width - left)) * (points.length - 1));
    if (!(at >= 0 && at < points.length)) return "";
    return time(from + ((to - from) * at) / Math.max(1, points.length - 1)) + "\n" + count(points[at]) + " queue pairs";
  });
  return picture;
}
