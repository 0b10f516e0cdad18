"use strict";
/* The plots of sipstone's report, from the JSON that stands in the page. Without it the tables still say everything. */
(function () {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const papers = JSON.parse(document.getElementById("history-data").textContent);
  document.documentElement.classList.add("js");

  const HEIGHT = 240;
  const MIB = 1048576;
  const QUANTILES = [["p50", "p50_ms"], ["p90", "p90_ms"], ["p99", "p99_ms"], ["p99.9", "p999_ms"]];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const font = (size) => size + "px " + colour("sans");

  /* ---- numbers ---- */

  /* Three significant digits, no digits behind the point from 100 on, a comma every three digits. */
  function number(value) {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 99.95 || value % 1 === 0) return Math.round(value).toLocaleString("en-US");
    if (size < 5e-7) return "0";
    return value.toPrecision(3).includes("e") ? value.toExponential(2) : value.toPrecision(3);
  }

  /* Ticks of an axis: short. */
  function tick(value) {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + "k";
    if (size >= 1e3) return Math.round(value).toLocaleString("en-US");
    return String(+value.toPrecision(3));
  }

  function percent(share) {
    if (share === null || share === undefined) return "–";
    if (share === 1 || share === 0) return String(share * 100);
    const distance = Math.max(1e-9, Math.min(share * 100, 100 - share * 100));
    const digits = distance >= 0.95 ? 1 : Math.ceil(-Math.log10(distance) - 1e-6) + 1;
    return (share * 100).toFixed(Math.min(digits, 8));
  }

  const quantile = (value) => (value === null || value === undefined ? "∞" : number(value));
  const positive = (value) => (value > 0 ? value : null);
  /* The middle one of the values that are known: a number that one of the trials has, as it stands in the table. */
  const median = (values) => {
    const known = values.filter((value) => value !== null && value !== undefined).sort((one, other) => one - other);
    return known.length ? known[(known.length - 1) >> 1] : null;
  };

  /* ---- one plot ---- */

  /* Draws within the plot's area, in canvas pixels. */
  function inside(u, draw) {
    const { left, top, width, height } = u.bbox;
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, height);
    u.ctx.clip();
    draw(u.ctx, devicePixelRatio || 1);
    u.ctx.restore();
  }

  const place = (u, x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];

  function segment(u, from, to, stroke, width, dash) {
    inside(u, (ctx, ratio) => {
      ctx.strokeStyle = stroke;
      ctx.lineWidth = width * ratio;
      ctx.setLineDash((dash || []).map((part) => part * ratio));
      ctx.beginPath();
      ctx.moveTo(from[0], from[1]);
      ctx.lineTo(to[0], to[1]);
      ctx.stroke();
    });
  }

  const across = (u, y, stroke, width, dash) => {
    const [, at] = place(u, u.scales.x.min, y);
    segment(u, [u.bbox.left, at], [u.bbox.left + u.bbox.width, at], stroke, width, dash);
  };

  const upright = (u, x, stroke, width, dash) => {
    const [at] = place(u, x, u.scales.y.min);
    segment(u, [at, u.bbox.top], [at, u.bbox.top + u.bbox.height], stroke, width, dash);
  };

  function words(u, text, x, y, fill, align, base, italic) {
    inside(u, (ctx, ratio) => {
      ctx.font = (italic ? "italic " : "") + font(11 * ratio);
      ctx.fillStyle = fill;
      ctx.textAlign = align || "left";
      ctx.textBaseline = base || "bottom";
      ctx.fillText(text, x, y);
    });
  }

  /* A trial's point: its verdict is shape as well as colour. */
  function mark(u, x, y, verdict, large) {
    if (y === null || y === undefined) return;
    const [left, top] = place(u, x, y);
    if (!isFinite(left) || !isFinite(top)) return;
    u.ctx.save();
    const ratio = devicePixelRatio || 1;
    const radius = (large ? 6 : 3.4) * ratio;
    u.ctx.lineWidth = 1.5 * ratio;
    u.ctx.beginPath();
    if (verdict === "fail") {
      u.ctx.strokeStyle = colour("bad");
      u.ctx.moveTo(left - radius, top - radius);
      u.ctx.lineTo(left + radius, top + radius);
      u.ctx.moveTo(left + radius, top - radius);
      u.ctx.lineTo(left - radius, top + radius);
      u.ctx.stroke();
    } else {
      u.ctx.arc(left, top, radius, 0, 2 * Math.PI);
      u.ctx.strokeStyle = u.ctx.fillStyle = verdict === "pass" ? colour("good") : colour("soft");
      if (verdict === "pass" && !large) u.ctx.fill();
      u.ctx.stroke();
    }
    u.ctx.restore();
  }

  function axis(values, extra) {
    return Object.assign({
      stroke: colour("soft"), font: font(11), size: 46, gap: 4,
      grid: { stroke: colour("rule"), width: 0.5 }, ticks: { stroke: colour("rule"), width: 0.5, size: 4 },
      values: (u, splits) => splits.map(values),
    }, extra || {});
  }

  /* A scale on the logarithm, with a little room (`below`, `above`: shares of its length); `more` are values that it
     must show too. */
  function logarithmic(more, below, above) {
    return {
      distr: 3, log: 10,
      range: (u, min, max) => {
        const all = [min, max].concat(more || []).filter((value) => value > 0);
        if (!all.length) return [1, 10];
        const low = Math.min.apply(null, all), high = Math.max.apply(null, all);
        if (low === high) return [low / 2, high * 2];
        return [low / Math.pow(high / low, below || 0.06), high * Math.pow(high / low, above || 0.06)];
      },
    };
  }

  /* A scale that begins at zero. */
  const fromZero = (least) => ({ range: (u, min, max) => [0, Math.max((max || 0) * 1.1, least || 0)] });

  const ONE_TWO_FIVE = [1, 2, 5];

  /* Ticks of a logarithmic axis: 1, 2, 5 and so on, or the decades alone, as many as there is room for. */
  function logSplits(u, index, min, max) {
    const all = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) {
      for (const step of ONE_TWO_FIVE) all.push(+(step * Math.pow(10, power)).toPrecision(3));
    }
    const shown = all.filter((value) => value >= min * 0.999 && value <= max * 1.001);
    if (shown.length > 7) return shown.filter((value) => Math.abs(Math.log10(value) % 1) < 1e-9);
    if (shown.length > 1) return shown;
    const step = Math.pow(10, Math.floor(Math.log10(max - min)));
    const fine = [];
    for (let value = Math.ceil(min / step) * step; value <= max; value += step) fine.push(+value.toPrecision(4));
    return fine.length > 7 ? fine.filter((value, at) => at % 2 === 0) : fine;
  }

  const logAxis = (extra) => axis(tick, Object.assign({ splits: logSplits, filter: (u, splits) => splits }, extra || {}));

  function line(label, stroke, value, extra) {
    return Object.assign({
      label, stroke: colour(stroke), width: 1.5, spanGaps: false, value: (u, raw, series, at) => (at === null ? "" : value(raw, at)),
      points: { show: false },
    }, extra || {});
  }

  /* Puts a plot into its box: it follows the box's width, and the arrow keys move through its values. */
  function plot(box, options, data) {
    const settings = Object.assign({
      width: Math.max(220, box.clientWidth), height: HEIGHT, pxAlign: 0, padding: [10, 12, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 7, width: 1.5 }, y: false },
      legend: { live: true },
    }, options);
    settings.cursor = Object.assign({ drag: { x: false, y: false }, points: { size: 7, width: 1.5 }, y: false }, options.cursor || {});
    const u = new uPlot(settings, data, box);
    const caption = box.parentElement.querySelector("figcaption").textContent.trim().replace(/\s+/g, " ");
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Plot: " + caption + ". Arrow keys move through the values.");
    const spoken = document.createElement("div");
    spoken.className = "spoken";
    spoken.setAttribute("aria-live", "polite");
    box.appendChild(spoken);
    let at = -1;
    box.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined || !data[0].length) return;
      event.preventDefault();
      at = Math.max(0, Math.min(data[0].length - 1, at + step));
      u.setCursor({ left: u.valToPos(data[0][at], "x"), top: 10 });
      spoken.textContent = Array.from(u.root.querySelectorAll(".u-legend tr"))
        .map((row) => Array.from(row.children).map((cell) => cell.textContent.trim()).join(": ")).join(", ");
    };
    const observer = new ResizeObserver(() => {
      const width = Math.max(220, box.clientWidth);
      if (width !== u.width) u.setSize({ width, height: HEIGHT });
    });
    observer.observe(box);
    return { destroy() { observer.disconnect(); box.onkeydown = null; u.destroy(); spoken.remove(); } };
  }

  /* ---- plots over the rates of a subject ---- */

  /* The trials by offered rate: one row per rate that was asked for. */
  function byRate(subject) {
    const rates = Array.from(new Set(subject.trials.map((trial) => trial.rate))).sort((one, other) => one - other);
    return { rates, trials: rates.map((rate) => subject.trials.filter((trial) => trial.rate === rate)) };
  }

  /* A plot of one figure of each trial, with a line through the median of each rate. */
  function overRates(box, subject, figure, label, format, y, hooks, extraSeries) {
    const rows = byRate(subject);
    const values = rows.trials.map((trials) => median(trials.map(figure)));
    const series = [{ label: "offered 1/s", value: (u, raw) => number(raw) }, line(label, "one", format)];
    const data = [rows.rates, values];
    for (const extra of extraSeries || []) {
      series.push(extra.series);
      data.push(rows.trials.map((trials) => extra.value(trials)));
    }
    const points = (u) => subject.trials.forEach((trial) => mark(u, trial.rate, figure(trial), trial.verdict));
    return plot(box, {
      series, scales: { x: Object.assign({ time: false }, logarithmic()), y: y.scale }, axes: [logAxis({ size: 28 }), y.axis],
      hooks: { drawClear: hooks && hooks.under ? [hooks.under] : [], draw: [points].concat((hooks && hooks.over) || []) },
    }, data);
  }

  const verdicts = (trials) => {
    const counted = {};
    trials.forEach((trial) => { counted[trial.verdict || "–"] = (counted[trial.verdict || "–"] || 0) + 1; });
    return Object.keys(counted).map((word) => (counted[word] > 1 ? counted[word] + " × " : "") + word).join(", ");
  };

  /* A legend's row that is no line: what the trials at this rate came to. */
  function verdictRow(subject) {
    const rows = byRate(subject);
    return {
      series: { label: "verdict", class: "plain", stroke: "transparent", width: 0, scale: "none", auto: false, points: { show: false },
        value: (u, raw, series, at) => (at === null ? "" : verdicts(rows.trials[at])) },
      value: () => null,
    };
  }

  function throughput(box, subject, index) {
    const figures = papers[index] || [];
    const carried = subject.trials.map((trial) => trial.throughput).filter((value) => value > 0);
    const low = Math.min.apply(null, carried), high = Math.max.apply(null, carried);
    /* A figure more than a hundred times away would squeeze everything else. */
    const near = figures.filter((figure) => figure.rate > low / 100 && figure.rate < high * 100);
    const under = (u) => {
      const { min, max } = u.scales.x;
      segment(u, place(u, min, min), place(u, max, max), colour("faint"), 1, [2, 3]);
      const taken = [];
      near.forEach((figure) => {
        const [, top] = place(u, u.scales.x.min, figure.rate);
        across(u, figure.rate, colour("rule"), 1);
        const ratio = devicePixelRatio || 1;
        if (taken.some((other) => Math.abs(other - top) < 12 * ratio)) return;
        taken.push(top);
        words(u, figure.paper + (figure.what ? ", " + figure.what : ""), u.bbox.left + u.bbox.width - 3 * ratio, top - 1, colour("faint"), "right", "bottom", true);
      });
    };
    const over = (u) => {
      const peak = subject.peak;
      if (!peak || !(peak.rate > 0)) return;
      mark(u, peak.rate, peak.rate, "pass", true);
      const [left, top] = place(u, peak.rate, peak.rate);
      const ratio = devicePixelRatio || 1;
      words(u, "peak " + number(peak.rate), left + 4 * ratio, top + 9 * ratio, colour("ink"), "left", "top");
    };
    return overRates(box, subject, (trial) => positive(trial.throughput), "carried 1/s", number,
      { scale: logarithmic(near.map((figure) => figure.rate), 0.06, 0.12), axis: logAxis() }, { under, over: [over] }, [verdictRow(subject)]);
  }

  function success(box, subject) {
    const required = subject.required_success;
    const lowest = Math.min.apply(null, subject.trials.map((trial) => trial.all.success_low).concat(required || 1));
    const under = (u) => {
      if (!required) return;
      across(u, required, colour("bad"), 1, [5, 3]);
      const [, top] = place(u, u.scales.x.min, required);
      words(u, "required " + percent(required) + " %", u.bbox.left + 4, top + 3, colour("bad"), "left", "top");
    };
    const bounds = (name) => ({
      series: line(name === "success_low" ? "Wilson from %" : "to %", "faint", percent, { width: 0.75, dash: [1, 2] }),
      value: (trials) => median(trials.map((trial) => trial.all[name])),
    });
    const room = (1 - lowest) * 0.08 + 1e-4;
    return overRates(box, subject, (trial) => trial.all.success, "success %", percent, {
      scale: { range: () => [Math.max(0, lowest - room), 1 + room] },
      axis: axis((value) => (value > 1 ? "" : +(value * 100).toPrecision(5) + "")),
    }, { under }, [bounds("success_low"), bounds("success_high"), verdictRow(subject)]);
  }

  function latency(box, subject) {
    const rows = byRate(subject);
    const names = ["one", "three", "two", "four"];
    const series = [{ label: "offered 1/s", value: (u, raw) => number(raw) }];
    const data = [rows.rates];
    /* Where a quantile is infinite in most trials of a rate, it is infinite. */
    const middle = (trials, field) => {
      const known = trials.map((trial) => trial.all.latency_planned[field]).filter((value) => value !== null);
      return known.length * 2 > trials.length ? median(known) : null;
    };
    QUANTILES.forEach(([name, field], at) => {
      data.push(rows.trials.map((trials) => middle(trials, field)));
      series.push(line(name + " ms", names[at], quantile, { points: { show: true, size: 4, fill: colour(names[at]) } }));
    });
    const infinite = (u) => QUANTILES.forEach(([, field], at) => rows.rates.forEach((rate, row) => {
      if (data[at + 1][row] !== null || rows.trials[row].every((trial) => !trial.all.offered)) return;
      const [left] = place(u, rate, u.scales.y.min);
      const ratio = devicePixelRatio || 1;
      words(u, "∞", left, u.bbox.top + (2 + at * 9) * ratio, colour(names[at]), "center", "top");
    }));
    return plot(box, {
      series, scales: { x: Object.assign({ time: false }, logarithmic()), y: logarithmic() },
      axes: [logAxis({ size: 28 }), logAxis()], hooks: { draw: [infinite] },
    }, data);
  }

  function search(box, subject) {
    const steps = subject.peak.trace;
    const field = (pick) => ({
      class: "plain", stroke: "transparent", width: 0, scale: "none", auto: false, points: { show: false },
      value: (u, raw, series, at) => (at === null ? "" : pick(steps[at])),
    });
    const series = [
      { label: "step", value: (u, raw) => number(raw) }, line("rate 1/s", "faint", number, { width: 1 }),
      Object.assign({ label: "phase" }, field((step) => step.phase)), Object.assign({ label: "verdict" }, field((step) => step.verdict)),
      Object.assign({ label: "success %" }, field((step) => percent(step.success))),
    ];
    const none = steps.map(() => null);
    const draw = (u) => {
      steps.forEach((step, at) => mark(u, at + 1, step.rate, step.verdict));
      const ratio = devicePixelRatio || 1;
      steps.forEach((step, at) => {
        if (at > 0 && steps[at - 1].phase === step.phase) return;
        const [left] = place(u, at + 1, step.rate);
        words(u, step.phase, left - 3 * ratio, u.bbox.top + u.bbox.height - 3 * ratio, colour("soft"), "left", "bottom", true);
        if (at > 0) upright(u, at + 0.5, colour("rule"), 1);
      });
    };
    return plot(box, {
      series, hooks: { draw: [draw] },
      scales: { x: { time: false, range: () => [0.5, steps.length + 0.5] }, y: logarithmic([], 0.16) },
      axes: [axis((value) => (value % 1 ? "" : String(value)), { size: 28, incrs: [1, 2, 5, 10, 20, 50] }), logAxis()],
    }, [steps.map((step, at) => at + 1), steps.map((step) => step.rate), none, none, none]);
  }

  const linear = (least) => ({ scale: fromZero(least), axis: axis(tick) });
  const residentMax = (trial) => {
    const seen = trial.series.filter((second) => second.server).map((second) => second.server.resident_bytes);
    return seen.length ? Math.max.apply(null, seen) / MIB : null;
  };

  /* ---- plots of one trial ---- */

  /* From share to height: every ninety per cent of what is left is as high as the last. */
  const height = (share) => -Math.log10(Math.max(1e-7, 1 - share));

  function distribution(box, subject, trial) {
    const points = trial.cdf;
    const last = points.length ? points[points.length - 1] : null;
    /* The last point of a trial without failures is all of it: drawn where the last of so many attempts is. */
    const finest = (of) => 1 - 1 / (2 * Math.max(1, of.all.offered));
    const heights = (of) => of.cdf.map((point) => height(Math.min(point[1], finest(of))));
    const others = subject.trials.filter((other) => other !== trial && other.cdf.length);
    const everyX = subject.trials.flatMap((each) => (each.cdf.length ? [each.cdf[0][0], each.cdf[each.cdf.length - 1][0]] : [])).map((us) => us / 1000);
    const top = Math.max.apply(null, subject.trials.filter((each) => each.cdf.length).map((each) => Math.max.apply(null, heights(each))).concat(1));
    const under = (u) => {
      const ratio = devicePixelRatio || 1;
      others.forEach((other) => inside(u, (ctx) => {
        ctx.strokeStyle = colour("rule");
        ctx.lineWidth = ratio;
        ctx.beginPath();
        const at = heights(other);
        other.cdf.forEach((point, index) => ctx.lineTo.apply(ctx, place(u, point[0] / 1000, at[index])));
        ctx.stroke();
      }));
      [1, 2, 3, 7, 15, 31, 63].forEach((multiple) => {
        const ms = multiple * trial.t1_ms;
        if (!(ms > u.scales.x.min && ms < u.scales.x.max)) return;
        upright(u, ms, colour("faint"), 1, [3, 3]);
        const [left] = place(u, ms, 0);
        words(u, multiple === 1 ? "T1" : multiple + "", left + 2 * ratio, u.bbox.top + u.bbox.height - 3 * ratio, colour("soft"), "left", "bottom");
      });
      if (last && last[1] < 1) {
        const share = height(last[1]);
        across(u, share, colour("bad"), 1, [5, 3]);
        const [, at] = place(u, u.scales.x.min, share);
        words(u, percent(1 - last[1]) + " % failed: never done", u.bbox.left + 4 * ratio, at - 2 * ratio, colour("bad"), "left", "bottom");
      }
    };
    const marks = [[0, "0"], [height(0.5), "50"], [1, "90"], [2, "99"], [3, "99.9"], [4, "99.99"], [5, "99.999"], [6, "99.9999"]];
    return plot(box, {
      series: [
        { label: "within ms", value: (u, raw) => number(raw) },
        line("done %", "one", (raw, at) => percent(points[at][1]), { width: 2 }),
      ],
      scales: { x: Object.assign({ time: false }, logarithmic(everyX)), y: { range: () => [0, top * 1.08] } },
      axes: [logAxis({ size: 28 }), axis((value) => marks.find((each) => each[0] === value)[1], { size: 58, splits: (u, index, min, max) => marks.map((each) => each[0]).filter((each) => each <= max) })],
      hooks: { drawClear: [under] },
    }, [points.map((point) => point[0] / 1000), heights(trial)]);
  }

  function seconds(box, index, trial, series, y, extra) {
    const begin = trial.warm_up_s, end = begin + trial.measure_s;
    const under = (u) => {
      const { left, top, width, height } = u.bbox;
      const edge = (value) => Math.max(left, Math.min(left + width, u.valToPos(value, "x", true)));
      inside(u, (ctx) => {
        ctx.fillStyle = colour("wash");
        ctx.fillRect(left, top, edge(begin) - left, height);
        ctx.fillRect(edge(end), top, left + width - edge(end), height);
      });
    };
    /* A second's value stands in its middle. */
    const x = trial.series.map((second) => second.second + 0.5);
    return plot(box, Object.assign({
      series: [{ label: "second", value: (u, raw) => (raw === null ? "" : Math.floor(raw) + "") }].concat(series.map((each) => each[0])),
      scales: { x: { time: false, range: (u, min, max) => [0, Math.ceil((max || 0) + 0.5)] }, y: y.scale },
      axes: [axis(tick, { size: 28 }), y.axis], hooks: { drawClear: [under] },
      cursor: { sync: { key: "subject" + index } },
    }, extra || {}), [x].concat(series.map((each) => trial.series.map(each[1]))));
  }

  const ofServer = (pick) => (second) => (second.server ? pick(second.server) : null);
  const known = (value) => (value === undefined ? null : value);

  const TRIAL_PLOTS = {
    cdf: (box, subject, index, trial) => distribution(box, subject, trial),
    operations: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("offered", "faint", number, { width: 3 }), (second) => second.offered],
      [line("succeeded", "one", number), (second) => second.succeeded],
      [line("failed", "two", number), (second) => second.failed],
      [line("open", "four", number, { dash: [4, 3] }), (second) => second.open],
    ], linear(1)),
    times: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("p50", "one", number), (second) => second.p50_ms],
      [line("p99", "two", number), (second) => second.p99_ms],
    ], { scale: logarithmic(), axis: logAxis() }),
    server: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("all", "one", number), ofServer((server) => server.cpu_cores)],
      [line("in user mode", "three", number), ofServer((server) => known(server.cpu_user_cores))],
    ], linear(0.1)),
    resident: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("resident MiB", "one", number), ofServer((server) => server.resident_bytes / MIB)],
    ], linear(1)),
    losses: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("sent again", "one", number), (second) => second.retransmissions],
      [line("lost by the server’s sockets", "two", number), ofServer((server) => known(server.udp_drops))],
    ], linear(1)),
    generator: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("busy %", "one", number), (second) => second.generator * 100],
    ], { scale: { range: () => [0, 100] }, axis: axis(tick) }),
    lag: (box, subject, index, trial) => seconds(box, index, trial, [
      [line("p99", "one", number), (second) => known(second.send_lag_p99_ms)],
    ], { scale: fromZero(0.01), axis: axis(tick, { size: 52 }) }),
  };

  const RATE_PLOTS = {
    throughput, success, latency, search,
    cpu: (box, subject) => overRates(box, subject, (trial) => trial.cpu_us_per_op, "µs per operation", number, linear(1)),
    cores: (box, subject) => overRates(box, subject, (trial) => trial.cpu_cores, "cores", number, linear(0.1)),
    memory: (box, subject) => overRates(box, subject, residentMax, "MiB", number, linear(1)),
  };

  /* ---- the page ---- */

  const drawn = new Map();

  function draw(section, box, trialToo) {
    const index = Number(section.dataset.subject), subject = report.subjects[index], name = box.dataset.chart;
    const trial = subject.trials[Number(section.querySelector("[data-choose]").value)];
    const make = TRIAL_PLOTS[name] || RATE_PLOTS[name];
    if (!make || !trial || (trialToo === "trial" && !TRIAL_PLOTS[name])) return;
    if (drawn.has(box)) drawn.get(box).destroy();
    drawn.delete(box);
    try {
      drawn.set(box, make(box, subject, index, trial));
    } catch (error) {
      box.textContent = "This plot could not be drawn: " + error.message;
    }
  }

  const sections = Array.from(document.querySelectorAll("section[data-subject]"));

  function all(what) {
    sections.forEach((section) => section.querySelectorAll("[data-chart]").forEach((box) => draw(section, box, what)));
  }

  /* Notes which trial is shown, in the chooser and in the table. */
  function note(section, value) {
    const select = section.querySelector("[data-choose]");
    const to = Math.max(0, Math.min(select.options.length - 1, value));
    select.value = String(to);
    section.querySelectorAll("tr[data-trial]").forEach((row) => {
      if (Number(row.dataset.trial) === to) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    });
  }

  function choose(section, value) {
    note(section, value);
    section.querySelectorAll("[data-chart]").forEach((box) => draw(section, box, "trial"));
  }

  sections.forEach((section) => {
    const select = section.querySelector("[data-choose]");
    if (!select.options.length) return;
    select.addEventListener("change", () => choose(section, Number(select.value)));
    section.querySelectorAll("[data-step]").forEach((button) =>
      button.addEventListener("click", () => choose(section, Number(select.value) + Number(button.dataset.step))));
    section.querySelectorAll("tr[data-trial] a").forEach((link) =>
      link.addEventListener("click", () => choose(section, Number(link.closest("tr").dataset.trial))));
    note(section, Number(select.value));
  });
  all();

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all());
  /* Paper is white: the plots are drawn anew for it. */
  addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; all(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.print; all(); });
})();
