"use strict";
// The curves of the page: filters, hover, keyboard. Reads the data beside it, asks nobody, and
// writes texts only as text.
(async () => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse(
    $("data").dataset.packed ? await unpacked($("data").textContent) : $("data").textContent
  );
  hintAtMore();
  if (!data.curves.length) { document.documentElement.dataset.ready = "yes"; return; }
  const chart = $("chart"), tip = $("tip");
  const SIZE = 0, TIME = 1, LOW = 2, HIGH = 3, BUS = 4, ALG = 5; // places in a point
  const CEILING = 6, NOTE = 7, USED = 8, ANSWER = 9, REPEATS = 10, RIVAL = 11, BASE = 12;
  // circles that a browser draws at ease; pixels from a point that still count
  const MOST_DOTS = 1500, REACH = 40;
  const GREY = "f-other"; // a class of the style
  // with more nobody tells them apart: then the fastest are shown unless all are asked for
  const MOST_LINES = 40;
  const PAPER = 720; // pixels of a sheet's width, so that letters keep their size there
  const RIVAL_NAME = data.rival.toUpperCase();
  const AXES = {
    change: {
      name: "Time, new / base", unit: "above 1 is slower", one: 1, of: (p) => p[TIME] / p[BASE]
    },
    peer: {
      name: `Speed, times ${RIVAL_NAME}'s best`,
      unit: "above 1 is faster",
      one: 1,
      of: (p) => p[RIVAL] / p[TIME]
    },
    wire: {
      name: "Percent of the ceiling",
      unit: "of what the links allow",
      one: 100,
      of: (p) => (100 * p[BUS]) / p[CEILING]
    },
    busbw: { name: "Bus bandwidth", unit: "GB/s", of: (p) => p[BUS], ceiling: (p) => p[CEILING] },
    algbw: {
      name: "Algorithm bandwidth",
      unit: "GB/s",
      of: (p) => p[ALG],
      ceiling: (p) => (p[CEILING] * p[ALG]) / p[BUS]
    },
    time: {
      name: "Time", unit: "us", of: (p) => p[TIME], ceiling: (p) => (p[TIME] * p[BUS]) / p[CEILING]
    },
  };
  const LINEAR = ["busbw", "algbw"]; // at first; ratios, shares and times are logarithmic
  const isGood = (value) => typeof value === "number" && Number.isFinite(value) && value > 0;
  decode();
  const KNOWN = Object.keys(AXES).filter(
    (key) => data.curves.some((curve) => curve.p.some((p) => isGood(AXES[key].of(p))))
  );
  const OP = data.dims.findIndex((dim) => dim.key === "op");
  const opened = data.curves[data.open.curve];
  const start = () => ({
    op: data.dims[OP].values[opened ? opened.k[OP] : 0],
    axis: data.open.axis || KNOWN[0] || "time",
    y: "", x: "log", lines: "", color: data.color, only: {}, at: "",
  });
  let state = start(), view = null, here = null, isPaper = false;

  // Small helpers
  const make = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const draw = (parent, name, attributes, text) => {
    const made = document.createElementNS(chart.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const sizeText = (bytes) => {
    for (const [suffix, unit] of [["T", 2 ** 40], ["G", 2 ** 30], ["M", 2 ** 20], ["K", 2 ** 10]])
      if (bytes >= unit && bytes % unit === 0) return `${bytes / unit}${suffix}`;
    return String(bytes);
  };
  const numberText = (value) => {
    if (value === 0) return "0";
    return Math.abs(value) >= 1000
      ? value.toFixed(0)
      : String(Number(value.toPrecision(Math.abs(value) >= 100 ? 4 : 3)));
  };
  const isLogY = () => (state.y || (LINEAR.includes(state.axis) ? "linear" : "log")) === "log";
  const value = (curve, key) => {
    const place = data.dims.findIndex((dim) => dim.key === key);
    return place < 0 || curve.k[place] < 0 ? "" : data.dims[place].values[curve.k[place]];
  };

  // A point as the rest of the script reads it, from its repeats: see data.py
  function decode() {
    const dropped = (n) => { // of each side of an interval: see statistics.py
      let drop = 0, ways = n, missed = (2 * (1 + n)) / 2 ** n;
      while (missed <= 0.05) {
        drop += 1;
        ways = (ways * (n - drop)) / (drop + 1);
        missed += (2 * ways) / 2 ** n;
      }
      return drop;
    };
    const file = data.dims.findIndex((dim) => dim.key === "file");
    const isNew = (curve) => file < 0 || data.dims[file].values[curve.k[file]] === "new";
    const rivals = new Map(), bases = new Map();
    const rest = (curve) => curve.k.filter((_, place) => place !== file).join(",");
    for (const curve of data.curves) {
      curve.p = curve.p.map(([size, ceiling, note, used, answer, rates, ...repeats]) => {
        const bytes = data.sizes[size], ordered = [...repeats].sort((a, b) => a - b);
        const n = ordered.length, half = Math.floor(n / 2), drop = dropped(n);
        const time = rates ? rates[0] : n % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2;
        const alg = rates ? rates[1] : bytes / time / 1e3;
        return [
          bytes,
          time,
          n > 1 ? ordered[drop] : null,
          n > 1 ? ordered[n - 1 - drop] : null,
          rates ? rates[2] : curve.f === null ? null : alg * curve.f,
          alg,
          ceiling < 0 ? null : data.ceilings[ceiling],
          note, used, answer, repeats, null, null
        ];
      });
      for (const p of curve.p) {
        const key = `${file < 0 ? 0 : curve.k[file]} ${p[SIZE]} ${curve.title}`;
        if (curve.own && backendOf(curve) === data.rival)
          if (!rivals.has(key) || p[TIME] < rivals.get(key)[0]) rivals.set(key, [p[TIME], curve, p]);
        if (!isNew(curve)) bases.set(`${p[SIZE]} ${rest(curve)}`, [p[TIME], curve, p]);
      }
    }
    for (const curve of data.curves) for (const p of curve.p) {
      const rival = rivals.get(`${file < 0 ? 0 : curve.k[file]} ${p[SIZE]} ${curve.title}`);
      const base = isNew(curve) ? bases.get(`${p[SIZE]} ${rest(curve)}`) : undefined;
      if (rival) { p[RIVAL] = rival[0]; p.rival = rival; }
      if (base) { p[BASE] = base[0]; p.base = base; }
      curve.isBase = !isNew(curve);
    }
    for (const best of data.best)
      best.p = best.at.map(([curve, point]) => data.curves[curve].p[point]);
  }
  function backendOf(curve) {
    const place = data.dims.findIndex((dim) => dim.key === "backend");
    return data.dims[place].values[curve.k[place]];
  }

  // The address keeps the filters
  function readAddress() {
    state = start();
    for (const part of location.hash.slice(1).split("&")) {
      const at = part.indexOf("=");
      if (at < 0) continue;
      let key, words;
      try {
        key = decodeURIComponent(part.slice(0, at));
        words = part.slice(at + 1).split(",").map(decodeURIComponent);
      } catch { continue; }
      const dim = data.dims.find((one) => one.key === key);
      if (key === "op") {
        if (words[0] === "*" || dim.values.includes(words[0])) state.op = words[0];
      }
      else if (key === "axis") { if (KNOWN.includes(words[0])) state.axis = words[0]; }
      else if (key === "at") { if (/^\d+\.\d+$/.test(words[0])) state.at = words[0]; }
      else if (key === "x" || key === "y") {
        if (["log", "linear"].includes(words[0])) state[key] = words[0];
      }
      else if (key === "lines") {
        if (["all", "fastest"].includes(words[0])) state.lines = words[0];
      }
      else if (key === "color") {
        if (data.dims.some((one) => one.key === words[0])) state.color = words[0];
      }
      else if (dim) {
        const known = words.filter((word) => dim.values.includes(word));
        if (known.length) state.only[key] = known;
      }
    }
  }
  function writeAddress() {
    const plain = start(), parts = [];
    for (const key of ["op", "axis", "x", "y", "lines", "color", "at"])
      if (state[key] !== plain[key]) parts.push(`${key}=${encodeURIComponent(state[key])}`);
    for (const [key, words] of Object.entries(state.only))
      if (words.length)
        parts.push(`${encodeURIComponent(key)}=${words.map(encodeURIComponent).join(",")}`);
    history.replaceState(
      null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search
    );
  }

  // Filters
  const inOperation = (curve) => state.op === "*" || data.dims[OP].values[curve.k[OP]] === state.op;
  // a value that a curve does not have, such as the protocol of a library's own choice, hides
  // nothing
  function isShown(curve) {
    return inOperation(curve) && data.dims.every((dim, place) => {
      const wanted = state.only[dim.key];
      return !wanted
        || !wanted.length
        || curve.k[place] < 0
        || wanted.includes(dim.values[curve.k[place]]);
    });
  }
  const matching = () => data.curves.filter(isShown);
  const isFastest = () =>
    (state.lines || (matching().length > MOST_LINES ? "fastest" : "all")) === "fastest";
  // those that match the filters; on demand only those that are the fastest of them at some size,
  // and libraries
  function lines() {
    const able = matching().filter((curve) => curve.p.some((p) => isGood(AXES[state.axis].of(p))));
    if (!isFastest()) return able;
    const least = new Map(), file = data.dims.findIndex((dim) => dim.key === "file");
    for (const curve of able) for (const p of curve.peer ? [] : curve.p) {
      const key = `${file < 0 ? "" : curve.k[file]} ${p[SIZE]} ${curve.title}`;
      if (!least.has(key) || p[TIME] < least.get(key)[0]) least.set(key, [p[TIME], curve]);
    }
    const fast = new Set([...least.values()].map(([, curve]) => curve));
    return able.filter((curve) => curve.peer || fast.has(curve) || curve === asked());
  }
  // the curve that a link leads to, and at first that of the widest gap
  const asked = () => data.curves[state.at ? Number(state.at.split(".")[0]) : data.open.curve];
  function selection(key, title, options) {
    const field = make("label", undefined, { class: "field" }),
      list = make("select", undefined, { id: `f-${key}` });
    for (const [word, text] of options) list.append(make("option", text, { value: word }));
    list.value = key === "y"
      ? (isLogY() ? "log" : "linear")
      : key === "lines"
      ? (isFastest() ? "fastest" : "all")
      : state[key];
    list.addEventListener(
      "change",
      () => {
        state[key] = list.value;
        if (key === "axis") state.y = "";
        if (key === "op") state.at = "";
        show(key);
      }
    );
    field.append(make("span", title), list);
    return field;
  }
  function buildFilters(focus) {
    const form = $("filters");
    form.replaceChildren();
    const ops = data.dims[OP].values;
    if (ops.length > 1)
      form.append(
        selection("op", "Operation", [...ops.map((op) => [op, op]), ["*", "all operations"]])
      );
    form.append(
      selection("axis", "Show", KNOWN.map((key) => [key, AXES[key].name]))
    );
    form.append(selection("y", "Value axis", [["linear", "linear"], ["log", "logarithmic"]]));
    form.append(selection("x", "Size axis", [["log", "logarithmic"], ["linear", "linear"]]));
    form.append(
      selection("lines", "Lines", [["all", "all"], ["fastest", "fastest and libraries"]])
    );
    const able = data.curves.filter(inOperation), telling = [];
    data.dims.forEach((dim, place) => {
      const found = new Set(able.map((curve) => curve.k[place]).filter((k) => k >= 0));
      if (place !== OP && (found.size > 1 || state.only[dim.key]))
        telling.push([dim, [...found].sort((a, b) => a - b)]);
    });
    const colourful = data.dims.filter(
      (dim, place) => dim.key === state.color
        || (place === OP && state.op === "*")
        || telling.some(([one]) => one === dim)
    );
    if (colourful.length > 1)
      form.append(selection("color", "Colours", colourful.map((dim) => [dim.key, dim.label])));
    for (const [dim, places] of telling) {
      const group = make("fieldset"), chips = make("div", undefined, { class: "chips" });
      group.append(make("legend", dim.label), chips);
      for (const word of places.map((place) => dim.values[place])) {
        const chip = make("label", undefined, { class: "chip" }),
          box = make("input", undefined, { type: "checkbox", value: word, "data-key": dim.key });
        box.checked = (state.only[dim.key] || []).includes(word);
        box.addEventListener("change", () => {
          const rest = (state.only[dim.key] || []).filter((one) => one !== word);
          state.only[dim.key] = box.checked ? [...rest, word] : rest;
          if (!state.only[dim.key].length) delete state.only[dim.key];
          show();
        });
        chip.append(box, make("span", word, { title: word }));
        chips.append(chip);
      }
      form.append(group);
    }
    const reset = make("button", "Show all", { type: "button" });
    reset.addEventListener("click", () => { state.only = {}; show("op"); });
    if (Object.keys(state.only).length) form.append(reset);
    if (focus && $(`f-${focus}`)) $(`f-${focus}`).focus();
  }

  // The drawing
  function ticks(low, high, isLog, most) {
    if (!isLog || high / low < 8) {
      const rough = (high - low) / most,
        power = 10 ** Math.floor(Math.log10(rough)),
        step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
      const found = [];
      for (let k = Math.ceil(low / step); k * step <= high * 1.0001; k++)
        found.push(Number((k * step).toPrecision(6)));
      return found;
    }
    const decades = Math.log10(high / low), found = [], each = decades < 2.5 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / most));
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++)
      if (k % every === 0)
        for (const one of each)
          if (one * 10 ** k >= low * 0.999 && one * 10 ** k <= high * 1.001)
            found.push(Number((one * 10 ** k).toPrecision(3)));
    return found;
  }
  function scale(low, high, from, to, isLog) {
    const [a, b] = isLog ? [Math.log(low), Math.log(high)] : [low, high];
    return (number) =>
      from + (((isLog ? Math.log(number) : number) - a) / (b - a || 1)) * (to - from);
  }
  function colourOf(curve) {
    const place = data.dims.findIndex((dim) => dim.key === state.color);
    if (curve.k[place] >= 0) return data.dims[place].colors[curve.k[place]];
    if (!curve.peer) return GREY;
    const backend = data.dims.findIndex((dim) => dim.key === "backend");
    return data.dims[backend].colors[curve.k[backend]];
  }
  function render() {
    const axis = AXES[state.axis], isLog = isLogY(), isLogX = state.x === "log";
    const shown = lines(), place = data.dims.findIndex((dim) => dim.key === state.color);
    const envelopes = state.axis === "change" ? [] : data.best.filter(isShown);
    view = {
      shown: [],
      used: [
        ...new Set(shown.map((curve) => curve.k[place]).filter((k) => k >= 0))
      ].sort((a, b) => a - b)
    };
    const width = isPaper ? PAPER : Math.max(280, $("plot").clientWidth),
      height = Math.round(Math.max(300, Math.min(500, width * 0.5)));
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.replaceChildren();
    const able = (curve) => curve.p.filter((p) => isGood(axis.of(p)) && (p[SIZE] > 0 || !isLogX));
    const all = shown.flatMap(able), ceiling = new Map();
    for (const p of all) {
      const limit = p[CEILING] && axis.ceiling ? axis.ceiling(p) : NaN;
      if (isGood(limit))
        ceiling.set(
          p[SIZE],
          state.axis === "time"
            ? Math.min(limit, ceiling.get(p[SIZE]) ?? Infinity)
            : Math.max(limit, ceiling.get(p[SIZE]) ?? 0)
        );
    }
    const sizes = [...new Set(all.map((p) => p[SIZE]))].sort((a, b) => a - b);
    $("shown").textContent = all.length
      ? `${shown.length} of ${data.curves.length} curves, ${all.length} points${narrowed()}`
      : `Nothing to show: no curve has a ${axis.name.toLowerCase()} with these filters`
        + narrowed();
    legend(shown, envelopes, ceiling.size > 0, place);
    if (!all.length) {
      chart.setAttribute("height", 40);
      chart.setAttribute("viewBox", `0 0 ${width} 40`);
      return;
    }
    chart.setAttribute("height", height);
    let low = Infinity, high = 0;
    for (const p of all) { low = Math.min(low, axis.of(p)); high = Math.max(high, axis.of(p)); }
    for (const limit of ceiling.values()) if (state.axis !== "time") high = Math.max(high, limit);
    if (axis.one) { low = Math.min(low, axis.one); high = Math.max(high, axis.one); }
    if (isLog) {
      const spare = Math.max(1.08, Math.sqrt(Math.max(1, 1.25 / (high / low))));
      low /= spare; high *= spare;
    } else { low = 0; high *= 1.04; }
    const left = 54, right = width - 14, top = 26, bottom = height - 42;
    const x = scale(sizes[0], sizes.at(-1), left + 4, right, isLogX),
      y = scale(low, high, bottom, top, isLog);
    view.x = x; view.y = y; view.of = axis.of;
    for (const tick of ticks(low, high, isLog, 7)) {
      draw(chart, "line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) });
      draw(chart, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, numberText(tick));
    }
    draw(chart, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    let free = -Infinity;
    for (const size of sizes) { // as many names as have room
      if (x(size) - free < 16) continue;
      draw(
        chart,
        "text",
        { x: Math.min(x(size), right - 6), y: bottom + 17, "text-anchor": "middle" },
        sizeText(size)
      );
      free = x(size) + 4 * sizeText(size).length + 14;
    }
    draw(chart, "text", { x: left, y: 13 }, `${axis.name}, ${axis.unit}`);
    if (axis.one && axis.one >= low && axis.one <= high)
      draw(chart, "path", { class: "one", d: `M${left},${y(axis.one)}L${right},${y(axis.one)}` });
    draw(
      chart, "text", { x: right, y: height - 6, "text-anchor": "end" }, "Size of the message, bytes"
    );
    const line = (points, of) => points
      .map((p, k) => `${k ? "L" : "M"}${x(p[SIZE]).toFixed(1)},${y(of(p)).toFixed(1)}`)
      .join("");
    if (ceiling.size) {
      const known = sizes.filter(
        (size) => ceiling.has(size) && (!isLog || ceiling.get(size) >= low)
      );
      draw(
        chart,
        "path",
        {
          class: "ceiling",
          d: known
            .map(
              (size, k) =>
                `${k ? "L" : "M"}${x(size).toFixed(1)},${y(ceiling.get(size)).toFixed(1)}`
            )
            .join("")
        }
      );
    }
    for (const curve of envelopes)
      draw(chart, "path", { class: "envelope", d: line(able(curve), axis.of) });
    const dots = all.length <= MOST_DOTS;
    for (const curve of [...shown].sort((a, b) => a.peer - b.peer)) {
      const points = able(curve),
        colour = colourOf(curve),
        path = draw(
          chart,
          "path",
          {
            class: `l-${colour}${curve.peer ? " peer" : ""}${curve.isBase ? " base" : ""}`,
            d: line(points, axis.of)
          }
        );
      const circles = dots || points.length === 1
        ? points.map(
          (p) =>
            draw(
              chart,
              "circle",
              {
                class: `m-${colour}`, r: 2.4, cx: x(p[SIZE]).toFixed(1), cy: y(axis.of(p)).toFixed(1)
              }
            )
        )
        : [];
      view.shown.push({ curve, points, path, circles });
    }
    view.marks = draw(chart, "g", {});
  }
  function narrowed() {
    const parts = data.dims
      .filter((dim) => state.only[dim.key])
      .map((dim) => `${dim.label.toLowerCase()} ${state.only[dim.key].join(" or ")}`);
    parts.unshift(state.op === "*" ? "all operations" : state.op);
    if (isFastest()) parts.push("the fastest at some size, and libraries");
    return `: ${parts.join("; ")}`;
  }
  function legend(shown, envelopes, hasCeiling, place) {
    const list = $("legend");
    list.replaceChildren();
    const add = (name, text) => {
      const item = make("li"),
        picture = draw(item, "svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
      draw(picture, "line", { class: name, x1: 0, x2: 26, y1: 5, y2: 5 });
      item.append(text);
      list.append(item);
    };
    for (const k of view.used) {
      const those = shown.filter((curve) => curve.k[place] === k);
      add(
        `l-${colourOf(those[0])}${those.every((curve) => curve.peer) ? " peer" : ""}`,
        data.dims[place].values[k]
      );
    }
    const rest = shown.filter((curve) => curve.k[place] < 0);
    if (rest.length)
      add(
        `l-${colourOf(rest[0])}${rest.every((curve) => curve.peer) ? " peer" : ""}`,
        rest.every((curve) => curve.peer)
          ? `${[...new Set(rest.map((curve) => curve.name))].join(", ")} (library, dashed)`
          : "others"
      );
    else if (shown.some((curve) => curve.peer) && !shown.every((curve) => curve.peer))
      add(`l-${GREY} peer`, "libraries are dashed");
    if (shown.some((curve) => curve.isBase)) add(`l-${GREY} base`, "base, dotted");
    if (envelopes.length)
      add("envelope", [...new Set(envelopes.map((curve) => curve.name))].join(", "));
    if (hasCeiling) add("ceiling", "what the links allow, highest of the curves shown");
    const one = AXES[state.axis].one;
    if (one)
      add("one", {
        change: "1: as the base", peer: `1: as fast as ${RIVAL_NAME}`, wire: "all that the links allow"
      }[state.axis]);
  }

  // Hover, tap and keyboard
  function point(at, isQuiet = false) {
    here = at;
    chart.classList.toggle("dim", at !== null && !isQuiet);
    for (const { path, circles } of view.shown) {
      path.classList.remove("on");
      for (const one of circles) one.classList.remove("on");
    }
    if (view.marks) view.marks.replaceChildren();
    tip.replaceChildren();
    $("repeats").hidden = at === null;
    if (at === null) return;
    const { curve, points, path, circles } = view.shown[at[0]],
      p = points[at[1]],
      px = view.x(p[SIZE]),
      py = view.y(view.of(p));
    path.classList.add("on");
    for (const one of circles) one.classList.add("on");
    if (isGood(p[LOW]) && isGood(p[HIGH])) {
      const ends = [p[LOW], p[HIGH]].map(
        (time) => ["time", "change"].includes(state.axis)
          ? (view.of(p) * time) / p[TIME]
          : (view.of(p) * p[TIME]) / time
      );
      draw(
        view.marks,
        "line",
        { class: "span", x1: px, x2: px, y1: view.y(ends[0]), y2: view.y(ends[1]) }
      );
    }
    draw(view.marks, "circle", { class: "here", r: 5, cx: px, cy: py });
    tip.classList.toggle("below", isQuiet); // where it hides no curve
    describe(curve, p);
    drawRepeats(curve, p);
    if (getComputedStyle(tip).position === "absolute") {
      const room = $("plot").clientWidth,
        beside = px + 16 + tip.offsetWidth > room ? px - 16 - tip.offsetWidth : px + 16;
      tip.style.left = `${Math.max(0, beside)}px`;
      const lowest = chart.clientHeight - tip.offsetHeight;
      tip.style.top = `${Math.max(0, Math.min(py - tip.offsetHeight / 2, lowest))}px`;
    }
  }
  function describe(curve, p) {
    const list = make("dl"), add = (name, text) => list.append(make("dt", name), make("dd", text));
    tip.append(make("b", `${curve.name}, ${sizeText(p[SIZE])}`), make("span", curve.title));
    const bounds = (low, high) =>
      isGood(p[LOW]) ? ` (${numberText(low)} to ${numberText(high)})` : "";
    const rate = p[BUS] * p[TIME];
    add("Time", `${numberText(p[TIME])} us${bounds(p[LOW], p[HIGH])}`);
    if (isGood(p[BUS]))
      add("Bus bandwidth", `${numberText(p[BUS])} GB/s${bounds(rate / p[HIGH], rate / p[LOW])}`);
    if (isGood(p[ALG])) add("Algorithm bandwidth", `${numberText(p[ALG])} GB/s`);
    add(
      "Ceiling",
      isGood(p[CEILING]) && isGood(p[BUS])
        ? `${numberText(p[CEILING])} GB/s, ${numberText((100 * p[BUS]) / p[CEILING])}% reached`
        : "not known"
    );
    if (p.rival && p.rival[2] !== p)
      add(`${RIVAL_NAME}'s best`, `${numberText(p[RIVAL])} us: ${numberText(p[RIVAL] / p[TIME])}x`);
    if (p.base)
      add("Base", `${numberText(p[BASE])} us: ${numberText(100 * (p[TIME] / p[BASE] - 1))}%`);
    for (
      const [name, text] of [
        ["Knobs", data.used[p[USED]]],
        ["Notes", data.notes[p[NOTE]]],
        ["Best", data.answers[p[ANSWER]]]
      ]
    )
      if (text) { add(name, text); list.lastChild.className = "wrap"; }
    tip.append(list);
  }
  // The repeats of a point beside those that it is held against, on one axis
  function drawRepeats(curve, p) {
    const held = [[curve.isBase ? `base: ${curve.name}` : curve.name, p[REPEATS]]];
    if (p.base) held.push([`base: ${p.base[1].name}`, p.base[2][REPEATS]]);
    if (p.rival && p.rival[2] !== p) held.push([p.rival[1].name, p.rival[2][REPEATS]]);
    const times = held.flatMap(([, repeats]) => repeats), box = $("repeats");
    box.replaceChildren();
    if (times.length < 2) { box.hidden = true; return; }
    box.hidden = false;
    box.append(make("span", `Repeats at ${sizeText(p[SIZE])}, us, each a dot (logarithmic)`));
    const width = isPaper ? PAPER : Math.max(280, $("plot").clientWidth),
      height = 26 * held.length + 22,
      left = Math.min(260, width * 0.42),
      picture = draw(box, "svg", { viewBox: `0 0 ${width} ${height}`, height });
    let low = Math.min(...times), high = Math.max(...times);
    const spare = Math.max(1.01, Math.sqrt(Math.max(1, 1.1 / (high / low))));
    low /= spare; high *= spare;
    const x = scale(low, high, left + 8, width - 20, true);
    for (const tick of ticks(low, high, true, Math.max(2, Math.floor((width - left) / 90)))) {
      draw(picture, "line", { x1: x(tick), x2: x(tick), y1: 4, y2: height - 20 });
      draw(picture, "text", { x: x(tick), y: height - 5, "text-anchor": "middle" }, numberText(tick));
    }
    held.forEach(([name, repeats], row) => {
      const y = 18 + 26 * row, room = Math.floor(left / 7);
      draw(
        picture,
        "text",
        { class: "name", x: left, y: y + 4, "text-anchor": "end" },
        name.length > room ? `${name.slice(0, room - 1)}\u2026` : name
      );
      for (const time of repeats) draw(picture, "circle", { r: 4, cx: x(time).toFixed(1), cy: y });
    });
  }
  function nearest(event) {
    const box = chart.getBoundingClientRect(),
      px = event.clientX - box.left,
      py = event.clientY - box.top;
    let found = null, least = REACH ** 2;
    view.shown.forEach(({ points }, c) => points.forEach((p, k) => {
      const far = (view.x(p[SIZE]) - px) ** 2 + (view.y(view.of(p)) - py) ** 2;
      if (far < least) { least = far; found = [c, k]; }
    }));
    return found;
  }
  const isSame = (one, other) => one === other
    || (one !== null && other !== null && one[0] === other[0] && one[1] === other[1]);
  const follow = (event) => {
    if (!view.shown.length) return;
    const at = nearest(event);
    if (!isSame(at, here)) point(at);
  };
  chart.addEventListener(
    "pointermove", (event) => { if (event.pointerType === "mouse") follow(event); }
  );
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener(
    "pointerleave",
    (event) => {
      if (event.pointerType === "mouse" && document.activeElement !== chart) point(null);
    }
  );
  chart.addEventListener("blur", () => point(null));
  chart.addEventListener("keydown", (event) => {
    if (!view.shown.length) return;
    if (event.key === "Escape") { point(null); return; }
    const step = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0]
    }[event.key];
    if (!step) return;
    event.preventDefault();
    if (here === null) { point([0, 0]); return; }
    const [c, k] = here, size = view.shown[c].points[k][SIZE];
    if (step[1]) {
      point([c, Math.max(0, Math.min(view.shown[c].points.length - 1, k + step[1]))]);
      return;
    }
    const order = view.shown
      .map(({ points }, at) => [at, points.findIndex((p) => p[SIZE] === size)])
      .filter(([, at]) => at >= 0)
      .sort(
        ([a, i], [b, j]) => view.of(view.shown[a].points[i]) - view.of(view.shown[b].points[j])
      );
    const now = order.findIndex(([at]) => at === c);
    point(order[Math.max(0, Math.min(order.length - 1, now + step[0]))]);
  });

  // The tables follow the operation; a click on a heading sorts
  function filterTables() {
    for (const one of document.querySelectorAll("[data-op]"))
      one.hidden = state.op !== "*" && one.dataset.op !== state.op;
    for (const one of document.querySelectorAll(".follows")) {
      one.hidden = state.op === "*" || data.dims[OP].values.length < 2;
      one.textContent = `Of ${state.op}, as chosen above the curves.`;
    }
    const named = [
      ...document.querySelectorAll("#best tbody tr:not([hidden]) > :first-child")
    ].map((cell) => cell.textContent);
    // a phone has no room for what is the same in every row
    document.body.classList.toggle("one", new Set(named).size === 1);
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const [place, head] of [...table.tHead.rows[0].cells].entries()) {
      const button = make("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const isUp = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
        const key = (row) => row.cells[place].dataset.v ?? row.cells[place].textContent;
        const compare = (a, b) => {
          const [one, other] = [key(a), key(b)];
          // what is not known stays at the end
          if (one === "" || other === "") return (one === "") - (other === "");
          const difference = isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other;
          return isUp ? difference : -difference;
        };
        body.append(...[...body.rows].sort(compare));
      });
    }
  }

  function show(focus) {
    const active = document.activeElement,
      box = active && active.dataset && active.dataset.key
        ? [active.dataset.key, active.value]
        : null;
    here = null;
    tip.replaceChildren();
    buildFilters(focus);
    if (box)
      for (const one of $("filters").querySelectorAll("input"))
        if (one.dataset.key === box[0] && one.value === box[1]) one.focus();
    render();
    filterTables();
    writeAddress();
    mark();
  }
  // The point that a link leads to, or that matters most
  function mark() {
    const size = state.at ? Number(state.at.split(".")[1]) : data.open.size;
    if (!state.at && state.axis !== data.open.axis) return;
    const c = view.shown.findIndex(({ curve }) => curve === asked());
    const k = c < 0 ? -1 : view.shown[c].points.findIndex((p) => p[SIZE] === size);
    if (k >= 0) point([c, k], true);
  }
  $("live").hidden = false;
  readAddress();
  show();
  addEventListener("hashchange", () => {
    readAddress();
    show();
    if (state.at) $("curves").scrollIntoView();
  });
  for (const [name, isIt] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(name, () => { isPaper = isIt; point(null); render(); });
  let wide = $("plot").clientWidth;
  const onResize = () => {
    if (isPaper || $("plot").clientWidth === wide) return;
    wide = $("plot").clientWidth;
    here = null;
    tip.replaceChildren();
    render();
    mark();
  };
  new ResizeObserver(onResize).observe($("plot"));
  document.documentElement.dataset.ready = "yes";

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }
  // A table that is wider than its place says so in words, too
  function hintAtMore() {
    const boxes = [...document.querySelectorAll(".scroll")];
    const look = () => {
      for (const box of boxes) {
        const isWide = box.scrollWidth > box.clientWidth + 2, next = box.nextElementSibling;
        const hint = next && next.classList.contains("more") ? next : null;
        if (isWide && !hint) {
          const made = document.createElement("span");
          made.className = "more";
          made.textContent = "There is more to the right: scroll the table sideways \u2192";
          box.after(made);
        } else if (!isWide && hint) hint.remove();
      }
    };
    look();
    addEventListener("resize", look);
  }
})();
