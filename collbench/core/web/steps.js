"use strict";
// The player of a schedule: ranks around an ellipse, messages on their way between them. Reads the
// data beside it, asks nobody, and writes texts only as text. Times are those of the data: any
// unit, any distance between two stops.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const stage = $("stage"), slider = $("time");
  const stops = [0, ...data.stops], end = stops[stops.length - 1];
  const usual = end / data.stops.length; // the length of a step, on average
  const FLY_S = 1.2, REST_S = 0.6; // of such a step: on the way, and then to look
  const MOST_LABELS = 26, MOST_PILLS = 64; // at once; of more only the chunks, or dots, are shown
  const FIRST_DARK = 5; // of the levels: from here on texts are light
  const HEAD = 20, GAP = 3, PAD = 6; // pixels in the box of a rank
  const ROUNDS = [0.6, 0.45, 0.3, 0.8]; // of the way the ranks stand: 1 an ellipse, 0 a rectangle
  const TINY = 17; // pixels of a cell too small for a strip
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const steps = [...document.querySelectorAll("#transcript h3")].map((title) => ({
    title: title.textContent,
    deeds: [...title.nextElementSibling.children].map((one) => one.textContent),
  }));
  let now = 0, target = null, isPlaying = false, rest = 0, last = 0, shown = -1;
  let boxes = [], cells = [], flights = [], size = 0, tall = 0;

  const draw = (parent, name, attributes, text) => {
    const made = document.createElementNS(stage.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const count = (mask) => { let found = 0; for (; mask; mask &= mask - 1) found++; return found; };
  const levelOf = (mask) => data.levels[count(mask)];
  const toneOf = (level) => (level >= FIRST_DARK ? "far" : "near");
  // how many stops are over, and which step is under way or was the last one
  const passed = (time) => stops.filter((stop) => stop <= time).length - 1;
  const stepAt = (time) => (time <= 0 ? 0 : stops.findIndex((stop) => stop >= time));

  // Where the ranks are
  const most = Math.max(...data.ranks.map((rank) => rank.cells.length));
  const isAllWanted = data.ranks.every((rank) => rank.cells.every((one) => one.wants));
  let columns = 1, rows = 1;
  function boxSize(cell) {
    return {
      w: Math.max(columns * (cell + GAP) - GAP + 2 * PAD, 44),
      h: HEAD + rows * (cell * 0.86 + GAP) - GAP + PAD,
      cell,
    };
  }
  // equal distances along a rounded rectangle, clockwise, the first at the top or beside it
  function around(width, height, box, round) {
    const rx = (width - box.w) / 2 - 5, ry = (height - box.h) / 2 - 5, fine = 1440;
    const shift = data.n === 2 ? -Math.PI / 2 : data.n % 2 ? 0 : -Math.PI / data.n;
    const lengths = [0];
    const point = (place) => {
      const angle = (2 * Math.PI * place) / fine - Math.PI / 2;
      const [x, y] = [Math.cos(angle), Math.sin(angle)].map(
        (part) => Math.sign(part) * Math.abs(part) ** round
      );
      return { x: width / 2 + rx * x, y: height / 2 + ry * y };
    };
    for (let place = 1; place <= fine; place++) {
      const a = point(place - 1), b = point(place);
      lengths.push(lengths[place - 1] + Math.hypot(b.x - a.x, b.y - a.y));
    }
    const whole = lengths[fine];
    return data.ranks.map((_, rank) => {
      const want = (((rank / data.n + shift / (2 * Math.PI)) * whole) + whole) % whole;
      return point(lengths.findIndex((length) => length >= want));
    });
  }
  // room is left for what flies between neighbours
  function collide(places, box, isNarrow) {
    const room = (data.n <= 4 ? 110 : data.n <= 8 ? 64 : 16) * (isNarrow ? 0.6 : 1);
    return places.some((a, i) => places.some(
      (b, j) => j > i && Math.abs(a.x - b.x) < box.w + room
        && Math.abs(a.y - b.y) < box.h + Math.max(6, room / 2)
    ));
  }

  function layOut() {
    const width = Math.max(300, stage.parentElement.clientWidth
      - (innerWidth >= 1000 ? 388 : 0));
    if (width === size) return;
    size = width;
    const isNarrow = width < 560;
    columns = Math.min(most, isNarrow && most <= 4 ? 2 : data.columns);
    rows = Math.ceil(most / columns);
    const height = Math.round(isNarrow
      ? width * (data.n <= 4 ? 1 : data.n <= 8 ? 1.4 : 1.95) * Math.max(1, rows / 5)
      : Math.max(Math.min(Math.max(width * 0.62, 400), data.n <= 4 ? 480 : 640),
        data.n > 8 ? 90 * rows : 0));
    tall = height;
    stage.replaceChildren();
    stage.setAttribute("viewBox", `0 0 ${width} ${height}`);
    stage.setAttribute("height", height);
    let box = boxSize(isNarrow ? 41 : 57), places = null;
    while (!places && box.cell > 10) {
      box = boxSize(box.cell - 1);
      places = ROUNDS.map((round) => around(width, height, box, round))
        .find((found) => !collide(found, box, isNarrow)) ?? null;
    }
    places ??= around(width, height, box, ROUNDS[0]);
    const under = draw(stage, "g", {}), middle = draw(stage, "g", {}), over = draw(stage, "g", {});
    boxes = places.map((place) => ({ ...place, w: box.w, h: box.h }));
    cells = data.ranks.map((rank, number) => drawRank(middle, rank, boxes[number], box.cell));
    const seen = new Map();
    flights = data.flights.map((flight) => {
      const key = [flight.source, flight.target, flight.start].join();
      const lane = seen.get(key) ?? 0;
      seen.set(key, lane + 1);
      return { ...flight, lane, under, over, points: null, path: null, pill: null, pillSize: null };
    });
    render();
  }

  function drawRank(parent, rank, box, cell) {
    const left = box.x - box.w / 2, top = box.y - box.h / 2;
    draw(parent, "rect", { class: "rank", x: left, y: top, width: box.w, height: box.h, rx: 7 });
    const fits = rank.name.length * 6.6 < box.w + 4;
    const name = fits ? rank.name : rank.name.replace("rank ", "").replace(", host ", "·h");
    const title = draw(
      parent, "text",
      { x: box.x, y: top + 14, "font-size": 12, "font-weight": 600 },
      name.length * 6.6 < box.w + 4 ? name : name.split(/[,·]/)[0]
    );
    draw(title, "title", {}, rank.name);
    const inRow = Math.min(columns, rank.cells.length), high = cell * 0.86;
    const start = box.x - (inRow * (cell + GAP) - GAP) / 2;
    return rank.cells.map((one, place) => {
      const x = start + (place % columns) * (cell + GAP);
      const y = top + HEAD + Math.floor(place / columns) * (high + GAP);
      return drawCell(parent, one, { x, y, w: cell, h: high });
    });
  }
  function drawCell(parent, one, at) {
    const made = { one, at, mask: -1, isDone: null };
    made.ring = draw(parent, "rect", {
      class: `ring off l-${data.color}`,
      x: at.x - 2, y: at.y - 2, width: at.w + 4, height: at.h + 4, rx: 5,
    });
    made.area = draw(parent, "rect", { x: at.x, y: at.y, width: at.w, height: at.h, rx: 3 });
    made.name = draw(parent, "text", {}, one.name);
    made.count = draw(parent, "text", {
      x: at.x + at.w / 2 + (at.w > 20 ? (one.name.length > 2 && at.w < 36 ? 6 : 3) : 0),
      y: at.y + at.h / 2 + (at.w > 20 ? at.h * 0.16 : at.h * 0.2),
      "font-size": Math.max(7, at.w * (at.w > 20 ? 0.4 : 0.5)),
      "font-weight": 700,
    });
    made.strip = draw(parent, "g", {});
    made.title = draw(made.area, "title", {});
    return made;
  }
  function showCell(cell, mask, isDone, isNew) {
    cell.ring.classList.toggle("off", !isNew);
    if (cell.mask === mask && cell.isDone === isDone) return;
    cell.mask = mask;
    cell.isDone = isDone;
    const level = levelOf(mask), tone = mask ? toneOf(level) : "faint";
    const isCounted = data.isReduction && mask;
    const kind = isDone ? "done" : !mask ? "empty" : cell.one.wants && !isAllWanted ? "wanted" : "";
    const at = cell.at, isSmall = at.w <= 20;
    cell.area.setAttribute("class", `cell k${level} ${kind} ${at.w < TINY ? "tiny" : ""}`);
    cell.name.setAttribute("class", tone);
    cell.name.setAttribute("x", isCounted ? at.x + 3 : at.x + at.w / 2);
    cell.name.style.textAnchor = isCounted ? "start" : "";
    cell.name.setAttribute("y", isCounted ? at.y + at.h * 0.3 : at.y + at.h / 2 + at.w * 0.13);
    const letters = Math.max(2, cell.one.name.length);
    cell.name.setAttribute(
      "font-size",
      isCounted ? Math.max(8, at.w * 0.24) : Math.min(at.w * 0.38, (at.w * 1.3) / letters)
    );
    cell.name.setAttribute("visibility", isCounted && isSmall ? "hidden" : "visible");
    cell.count.setAttribute("class", tone);
    cell.count.textContent = isCounted ? count(mask) : "";
    cell.strip.replaceChildren();
    if (isCounted && at.w >= TINY) {
      const high = Math.max(2.5, at.h * 0.11), x = at.x + 2.5, wide = at.w - 5;
      const y = at.y + at.h - high - 2;
      draw(cell.strip, "rect", { class: `strip ${tone}`, x, y, width: wide, height: high });
      for (let rank = 0, next; rank < data.n; rank = next + 1) {
        for (next = rank; (mask >> next) & 1; next++);
        if (next > rank)
          draw(cell.strip, "rect", {
            class: `share ${tone}`, y, height: high,
            x: x + (wide * rank) / data.n, width: (wide * (next - rank)) / data.n,
          });
      }
    }
    const ranks = data.ranks.map((_, rank) => rank).filter((rank) => (mask >> rank) & 1);
    cell.title.textContent = mask
      ? `${cell.one.name}: of rank ${ranks.join(", ")}${isDone ? "; in the output" : ""}`
      : `${cell.one.name}: not here yet`;
  }

  // Messages on their way
  function pointsOf(flight) {
    const a = boxes[flight.source], b = boxes[flight.target];
    const others = boxes.filter((box) => box !== a && box !== b);
    const dx = b.x - a.x, dy = b.y - a.y, far = Math.hypot(dx, dy);
    const curve = (bend) => {
      const c = { x: (a.x + b.x) / 2 - (dy / far) * bend, y: (a.y + b.y) / 2 + (dx / far) * bend };
      return Array.from({ length: 91 }, (_, k) => {
        const t = k / 90, u = 1 - t;
        return {
          x: u * u * a.x + 2 * u * t * c.x + t * t * b.x,
          y: u * u * a.y + 2 * u * t * c.y + t * t * b.y,
        };
      });
    };
    const hidden = (points) => points.filter((p) =>
      p.x < 4 || p.x > size - 4 || p.y < 4 || p.y > tall - 4 || others.some((box) =>
        Math.abs(p.x - box.x) < box.w / 2 + 4 && Math.abs(p.y - box.y) < box.h / 2 + 4)).length;
    // to the right of where it flies, so that two that meet pass; round the boxes of others
    const least = 0.09 * far + 10 + flight.lane * 26;
    let best = curve(least), fewest = hidden(best);
    for (const more of [0.3, 0.6, 0.9, -0.45, -0.75, -1.05]) {
      if (!fewest) break;
      const points = curve(Math.sign(more) * least + more * far), found = hidden(points);
      if (found < fewest) [best, fewest] = [points, found];
    }
    return best;
  }
  // the points outside both boxes and their margins; what is left of a narrow gap is its middle
  function between(flight, points, from, to) {
    const isOutside = (p, box, margin) =>
      Math.abs(p.x - box.x) > box.w / 2 + margin.x || Math.abs(p.y - box.y) > box.h / 2 + margin.y;
    const free = points.filter((p) =>
      isOutside(p, boxes[flight.source], from) && isOutside(p, boxes[flight.target], to));
    return free.length > 1 ? free : null;
  }
  function along(points, part) {
    const place = Math.max(0, Math.min(1, part)) * (points.length - 1);
    const k = Math.min(Math.floor(place), points.length - 2), t = place - k;
    return {
      x: points[k].x + (points[k + 1].x - points[k].x) * t,
      y: points[k].y + (points[k + 1].y - points[k].y) * t,
    };
  }
  function launch(flight, atOnce) {
    const whole = pointsOf(flight);
    const middle = [whole[45], whole[46]];
    const points = between(flight, whole, { x: 2, y: 2 }, { x: 5, y: 5 }) ?? middle;
    const tip = points[points.length - 1];
    const before = points[Math.max(0, points.length - 4)];
    const angle = (Math.atan2(tip.y - before.y, tip.x - before.x) * 180) / Math.PI;
    flight.path = draw(flight.under, "g", {});
    draw(flight.path, "path", {
      class: `path l-${data.color}`,
      d: `M${points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join("L")}`,
    });
    draw(flight.path, "path", {
      class: `tip m-${data.color}`, d: "M3,0 L-8,-5 L-8,5 Z",
      transform: `translate(${tip.x.toFixed(1)} ${tip.y.toFixed(1)}) rotate(${angle.toFixed(1)})`,
    });
    const mask = flight.values[0][1], level = levelOf(mask);
    const pill = (flight.pill = draw(flight.over, "g", { class: "pill" }));
    const ends = `rank ${flight.source} to rank ${flight.target}, port ${flight.port}`;
    draw(pill, "title", {}, `${ends}: ${flight.label}`);
    if (atOnce > MOST_PILLS) {
      draw(pill, "circle", { class: `k${level} l-${data.color}`, r: 4.5 });
      flight.points = points;
      return;
    }
    const font = size < 560 ? 11 : 13;
    const room = (text) => {
      const wide = Math.max(text.length * font * 0.58 + 12, 22), high = font + 9;
      const from = { x: wide / 2 + 3, y: high / 2 + 3 }, to = { x: from.x + 13, y: from.y + 13 };
      return { text, wide, high, way: between(flight, whole, from, to) };
    };
    let at = room(atOnce > MOST_LABELS ? flight.short : flight.label);
    if (!at.way) at = room(flight.short);
    flight.points = at.way ?? middle;
    flight.pillSize = at;
    makeRoom(flight);
    draw(pill, "rect", {
      class: `k${level} l-${data.color}`,
      x: -at.wide / 2, y: -at.high / 2, width: at.wide, height: at.high, rx: at.high / 2,
    });
    const text = { class: toneOf(level), y: font * 0.36, "font-size": font, "font-weight": 600 };
    draw(pill, "text", text, at.text);
  }
  // of messages that arrive at the same place, later ones end before it
  function makeRoom(flight) {
    const { wide, high } = flight.pillSize, points = flight.points;
    const landed = flights.filter((other) => other !== flight && other.pill && other.pillSize
      && other.start === flight.start);
    const covers = (p) => landed.some((other) => {
      const q = other.points[other.points.length - 1];
      return Math.abs(p.x - q.x) < (wide + other.pillSize.wide) / 2 + 2
        && Math.abs(p.y - q.y) < (high + other.pillSize.high) / 2 + 2;
    });
    const free = points.findLastIndex((p) => !covers(p));
    if (free > points.length / 2) flight.points = points.slice(0, free + 1);
  }
  function land(flight) {
    flight.path.remove();
    flight.pill.remove();
    flight.path = flight.pill = null;
  }
  const eased = (part) => (part < 0 ? 0 : part > 1 ? 1 : part * part * (3 - 2 * part));

  function render() {
    const step = stepAt(now), over = passed(now);
    const begin = step ? stops[step - 1] : 0;
    const isUnderWay = (flight) => step > 0 && flight.start < now
      && (flight.end > begin || flight.taken > now);
    const atOnce = flights.filter((flight) => flight.start === begin).length;
    stage.classList.toggle("crowd", atOnce > MOST_PILLS);
    for (const flight of flights) {
      if (!isUnderWay(flight)) {
        if (flight.pill) land(flight);
        continue;
      }
      if (!flight.pill) launch(flight, atOnce);
      const part = eased((now - flight.start) / (flight.end - flight.start));
      const at = along(flight.points, part);
      flight.pill.setAttribute("transform", `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})`);
    }
    const states = data.ranks.map((rank) => rank.cells.map((one) => [one.has, 0, false]));
    const from = over ? stops[over - 1] : Infinity;
    for (const [time, rank, place, mask, isOutput] of data.updates)
      if (time <= now) states[rank][place] = [mask, isOutput, time > from];
    cells.forEach((mine, rank) => mine.forEach((cell, place) => {
      const [mask, isOutput, isNew] = states[rank][place];
      showCell(cell, mask, Boolean(isOutput && cell.one.wants === mask), isNew);
    }));
    showSlots();
    if (step !== shown) tell(step);
    slider.value = now;
    $("first").disabled = $("back").disabled = now <= 0;
    $("last").disabled = $("forward").disabled = now >= end;
  }

  // The slots of every connection, which its messages take in turn
  const ways = new Map();
  for (const flight of data.flights) {
    const key = `${flight.source} ${flight.target} ${flight.port}`;
    if (!ways.has(key)) ways.set(key, []);
    ways.get(key).push(flight);
  }
  const add = (parent, name, text, kind = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = kind;
    parent.append(made);
    return made;
  };
  const fifos = [...ways.values()].map((sent) => {
    const row = add($("slots"), "div", ""), [{ source, target, port }] = sent;
    add(row, "span", `${source} \u2192 ${target}`).title = `port ${port}`;
    const slots = Array.from({ length: data.slots }, () => add(row, "span", "", "slot"));
    return { sent, slots, counts: add(row, "span", "") };
  });
  function showSlots() {
    for (const { sent, slots, counts } of fifos) {
      const held = Array(data.slots).fill(["", ""]);
      let head = 0, tail = 0;
      for (const [place, flight] of sent.entries()) {
        head += flight.back !== null && flight.back <= now;
        tail += flight.end <= now;
        if (flight.start < now && flight.freed > now)
          held[place % data.slots] = [flight.end <= now ? "full" : "flying", place];
      }
      slots.forEach((slot, place) => {
        slot.className = `slot ${held[place][0]}`;
        slot.textContent = held[place][1];
      });
      counts.textContent = `head ${head}, tail ${tail}`;
    }
  }

  // What is said about it
  function tell(step) {
    shown = step;
    const isDone = step === steps.length;
    const title = step ? steps[step - 1].title : "Start";
    $("heading").textContent = title;
    slider.setAttribute("aria-valuetext", title);
    stage.dataset.step = step;
    const leads = [...document.querySelectorAll(".lead")].map((one) => one.textContent);
    const deeds = step ? steps[step - 1].deeds : leads;
    $("now").replaceChildren(...deeds.map((text) => {
      const made = document.createElement("li");
      made.textContent = text;
      return made;
    }));
    if (isDone) {
      const made = document.createElement("li");
      made.textContent = leads[1].replace("Goal: ", "The goal is reached: ");
      $("now").append(made);
    }
    history.replaceState(null, "", step ? `#step=${step}` : location.pathname + location.search);
  }

  // Time
  function tick(time) {
    const speed = Number($("speed").value);
    let left = Math.min((time - last) / 1000, 0.1) * (isPlaying ? speed : 1.6);
    last = time;
    if (rest > 0) { rest -= left; left = 0; }
    if (left > 0) {
      const next = stops.find((stop) => stop > now) ?? end;
      const length = next - stops[Math.max(0, stops.indexOf(next) - 1)];
      const pause = (length / usual) * REST_S;
      if (calm.matches && isPlaying) {
        now = next;
        rest = pause + (length / usual) * FLY_S;
      } else {
        now = Math.min(next, now + (left / FLY_S) * usual);
        if (now === next) rest = isPlaying ? pause : 0;
      }
      if (target !== null && now >= target) { now = target; target = null; }
      render();
    }
    if (isPlaying && now >= end) setPlaying(false);
    if (isPlaying || target !== null) requestAnimationFrame(tick);
  }
  function run() { last = performance.now(); requestAnimationFrame(tick); }
  function setPlaying(wanted) {
    if (wanted === isPlaying) return;
    if (wanted && now >= end) now = 0;
    const isMoving = target !== null;
    isPlaying = wanted;
    target = null;
    rest = 0;
    $("said").setAttribute("aria-live", wanted ? "off" : "polite");
    $("play").classList.toggle("on", wanted);
    $("play").setAttribute("aria-label", wanted ? "Pause (space)" : "Play (space)");
    if (wanted && !isMoving) run();
    render();
  }
  function goTo(time) {
    setPlaying(false);
    target = null;
    now = Math.max(0, Math.min(end, time));
    render();
  }
  function forward() {
    const from = target ?? now;
    const next = stops.find((stop) => stop > from) ?? end;
    goTo(from);
    if (calm.matches || next === from) { goTo(next); return; }
    target = next;
    now = Math.min(next, from + usual / 1000); // so that the step is told at once
    render();
    run();
  }
  function back() {
    const from = target ?? now;
    goTo(stops.filter((stop) => stop < from).pop() ?? 0);
  }

  // Hands
  const acts = {
    ArrowRight: forward, ArrowLeft: back, Home: () => goTo(0), End: () => goTo(end),
    " ": () => setPlaying(!isPlaying),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    if (event.key === " " && event.target.closest("summary, button:focus-visible")) return;
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  // a button that was clicked keeps the focus, and space shall still play
  addEventListener("keyup", (event) => {
    const isClicked = event.target.closest("button:not(:focus-visible)");
    if (event.key === " " && isClicked) event.preventDefault();
  });
  $("first").onclick = acts.Home;
  $("back").onclick = back;
  $("play").onclick = acts[" "];
  $("forward").onclick = forward;
  $("last").onclick = acts.End;
  slider.max = end;
  slider.oninput = () => goTo(Number(slider.value));
  let touch = null;
  stage.onpointerdown = (event) => { touch = { x: event.clientX, y: event.clientY }; };
  stage.onpointerup = (event) => {
    if (!touch) return;
    const dx = event.clientX - touch.x, dy = event.clientY - touch.y;
    touch = null;
    if (Math.abs(dx) > 40 && Math.abs(dx) > 2 * Math.abs(dy)) (dx < 0 ? forward : back)();
  };
  stage.onpointercancel = () => { touch = null; };

  $("player").hidden = false;
  $("transcript").open = false;
  const asked = Number((location.hash.match(/^#step=(\d+)$/) ?? [])[1] ?? 0);
  now = stops[Math.min(asked, stops.length - 1)];
  layOut();
  addEventListener("resize", layOut);
  document.documentElement.dataset.ready = "yes";
})();
