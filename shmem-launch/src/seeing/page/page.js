// The sections of the page, in their order.

const job = JSON.parse(document.getElementById("job").textContent);
const page = document.getElementById("page");

function section(title, ...inside) {
  page.append(make("section", "", make("h2", "", title), ...inside));
}

function headSection(head) {
  document.title = head.program + " – shmrun";
  const figures = [
    [plural(head.pes, "PE"), "on " + plural(head.nodes, "node")],
    ["status " + head.status, "of the job"],
    [time(head.wall), "from start to end"],
    head.start_up === null ? null : [time(head.start_up), "until all had left init"],
    [percent(head.waited, head.lived) || "–", "of the PEs' time in waits and collectives"],
    [size(head.bytes), "in " + plural(head.operations, "one-sided operation")],
    [count(head.calls), "calls"],
  ];
  const box = ([value, what]) => make("div", "figure", make("b", "", value), make("span", "", what));
  const ends = head.ends.length > 1 || head.status !== 0 ? head.ends : [];
  page.append(
    make("h1", "", head.program || "a job"),
    make("div", "figures", ...figures.filter((figure) => figure).map(box)),
    ...ends.map((end) => make("p", "faint", end)),
  );
  if (head.recorded === 0) page.append(make("p", "", "No PE recorded anything: the program may not have called init."));
  if (job.advice.length > 0) {
    page.append(make("ul", "advice", ...job.advice.map((text) => make("li", "", unbroken(text)))));
  }
}

function startSection({ phases, steps }) {
  const most = Math.max(0, ...phases.map((phase) => phase.to));
  section("Start and end", bars(phases.map(({ name, from, to }) => ({
    name,
    parts: [{ from, to, kind: "" }],
    value: time(to - from),
    tip: name + "\nfrom " + time(from) + " to " + time(to),
  })), most));
  if (steps.length === 0) return;
  const longest = Math.max(...steps.map((step) => step.max));
  page.lastChild.append(
    make("h3", "", "Steps of init: from the fastest PE to the slowest, and the mean"),
    bars(steps.map(({ name, min, mean, max, slowest }) => ({
      name: name.replace(/^init: /, ""),
      parts: [{ from: min, to: max, kind: "range" }, { from: mean, to: mean, kind: "mark" }],
      value: time(max) + " on PE " + slowest,
      tip: name + "\nleast " + time(min) + ", mean " + time(mean) + "\nmost " + time(max) + " on PE " + slowest,
    })), longest),
  );
}

const states = [["--good", "finalized"], ["--second", "did not finalize"], ["--bad", "did not come through init"]];

function placesSection({ folded, places }) {
  if (places.length === 0) return;
  const squares = places.map((place) => {
    const square = make("div", "pe");
    const share = percent(place.waited, place.lived);
    tip(square, () => place.name + (place.node === null ? "" : " on node " + place.node) + "\n" +
      time(place.waited) + " in waits and collectives" + (share && " (" + share + ")") +
      (folded ? "\nmost: PE " + place.most + ", " + time(place.most_waited) : "") +
      "\n" + states[place.state][1]);
    return square;
  });
  const share = (place) => (place.lived > 0 ? place.waited / place.lived : 0);
  const legend = make("div", "legend");
  const choose = choice(["time in waits and collectives", "how they ended"], (name) => {
    const byState = name !== "time in waits and collectives";
    places.forEach((place, at) => {
      squares[at].style.background = byState ? "var(" + states[place.state][0] + ")" : heat(share(place));
    });
    legend.replaceChildren(...(byState
      ? states.map(([variable, text]) => {
        const dot = make("i", "dot");
        dot.style.background = "var(" + variable + ")";
        return make("span", "", dot, text);
      })
      : scale("0 %", "100 %").slice(0, 3)));
  });
  let inside;
  if (folded) {
    inside = make("div", "plain", ...squares);
  } else {
    const nodes = new Map();
    places.forEach((place, at) => nodes.set(place.node, (nodes.get(place.node) || []).concat(squares[at])));
    inside = make("div", "nodes", ...[...nodes].map(([node, of]) => {
      const grid = make("div", "", ...of);
      grid.style.gridTemplateColumns = "repeat(" + Math.min(16, Math.ceil(Math.sqrt(of.length))) + ", 14px)";
      return make("div", "node", make("small", "", "node " + node), grid);
    }));
  }
  section(folded ? "Nodes" : "PEs by node", choose, inside, legend);
}

function othersSection({ pes, operations, bytes, hottest }) {
  if (hottest.length === 0) return;
  const text = count(operations) + " operations, " + size(bytes) + ", on the memory of " + plural(pes, "PE") +
    " by others" + (hottest.length < pes ? ", of which those with the largest part:" : ":");
  section("Whose memory is used most", make("p", "", text),
    table([
      ["PE", false, (of) => String(of.pe)],
      ["operations", false, (of) => count(of.operations)],
      ["", false, (of) => percent(of.operations, operations)],
      ["bytes", false, (of) => size(of.bytes)],
      ["", false, (of) => percent(of.bytes, bytes)],
      ["by", false, (of) => plural(of.by, "PE")],
      ["most by", true, (of) => "PE " + of.most + " (" + count(of.most_operations) + ")"],
    ], hottest));
}

function routinesSection(rows, lived) {
  if (rows.length === 0) return;
  const most = Math.max(...rows.filter((row) => row.counts).map((row) => row.ns), 0);
  const bar = (row) => {
    const track = make("div", "track");
    if (!row.counts) return "";
    const part = make("i");
    part.style.width = (most > 0 ? (100 * row.ns) / most : 0) + "%";
    part.style.background = "var(" + groups[row.group] + ")";
    track.append(part);
    return track;
  };
  const name = (row) => {
    const dot = make("i", "dot");
    dot.style.background = "var(" + groups[row.group] + ")";
    return make("span", "", dot, row.name);
  };
  section("Time in each routine",
    table([
      ["routine", true, name],
      ["of the PEs' time", true, bar],
      ["", false, (row) => (row.counts ? percent(row.ns, lived) : "beside it")],
      ["calls", false, (row) => count(row.calls)],
      ["total", false, (row) => time(row.ns)],
      ["mean call", false, (row) => time(row.calls > 0 ? row.ns / row.calls : 0)],
      ["longest call", false, (row) => time(row.longest) + " (PE " + row.longest_pe + ")"],
      ["bytes", false, (row) => (row.bytes > 0 ? size(row.bytes) : "")],
      ["per PE: least", false, (row) => time(row.min)],
      ["mean", false, (row) => time(row.mean)],
      ["most", false, (row) => time(row.max) + " (PE " + row.max_pe + ")"],
    ], rows));
}

function waitsSection(waits) {
  if (waits.length === 0) return;
  section("Longest waits",
    table([
      ["PE", false, (wait) => String(wait.pe)],
      ["routine", true, (wait) => wait.routine],
      ["waited", false, (wait) => time(wait.took)],
      ["from", false, (wait) => time(wait.began)],
      ["ended by", true, (wait) => (wait.by === null ? "" : wait.by_routine + " of PE " + wait.by)],
      ["which began after", false, (wait) => (wait.by === null ? "" : time(Math.max(0, wait.by_began - wait.began)))],
    ], waits),
    make("p", "faint", "Who ended a wait is the PE that wrote to its word last. What a program stores without the library is not seen."));
}

function stragglersSection(all) {
  if (all.collectives === 0) return;
  const text = "Of " + plural(all.collectives, "collective") + " " + count(all.uneven) + " had members that came more than " +
    time(all.even_ns) + " after the first; PEs waited there " + time(all.cost) + " for the last, all together.";
  section("Who comes last to collectives", make("p", "", text));
  if (all.worst.length === 0) return;
  const most = all.worst[0].cost;
  page.lastChild.append(bars(all.worst.map((of) => ({
    name: "PE " + of.pe,
    parts: [{ from: 0, to: of.cost, kind: "", colour: "var(--g-collective)" }],
    value: time(of.cost) + ", last in " + percent(of.last, all.uneven),
    tip: "PE " + of.pe + " came last to " + count(of.last) + " of " + plural(all.uneven, "collective") +
      "\nthe others waited " + time(of.cost) + "\nmost in " + of.routine,
  })), most));
}

function networkSection(figures) {
  if (figures.length === 0) return;
  section("What was done again",
    table([
      ["figure", true, (of) => of.name],
      ["all PEs", false, (of) => count(of.sum)],
      ["PEs", false, (of) => count(of.pes)],
      ["most", false, (of) => count(of.max) + " (PE " + of.max_pe + ")"],
    ], figures));
}

headSection(job.head);
startSection(job.start);
placesSection(job.places);
if (job.matrix.rows.some((row) => row.length > 0)) {
  section("Who talked with whom", ...matrixSection(job.matrix));
}
othersSection(job.others);
routinesSection(job.routines, job.head.lived);
waitsSection(job.waits);
stragglersSection(job.stragglers);
if (job.connections) {
  const { from, to, sum, own, busiest, most } = job.connections;
  section("Queue pairs",
    line("all PEs", sum, from, to, "--accent"),
    line("PE " + busiest + ", which had most: " + most, own, from, to, "--second"));
}
networkSection(job.network);
document.documentElement.dataset.ready = "yes";
