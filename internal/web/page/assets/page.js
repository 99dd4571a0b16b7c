// Draws the backlog over time, and keeps what a reader is in the middle of when fragments are exchanged.
(function () {
  "use strict";

  // Fragments. A form that somebody fills in, and text that somebody has marked, stay until that is over.
  let answersButton = false;
  let opened = [];
  let focused = "";
  let told = 0;

  function busy(target) {
    const active = document.activeElement;
    const typing = active && target.contains(active) && active.matches("input:not([type=hidden])");
    const marked = document.getSelection();
    const marking = marked && !marked.isCollapsed && target.contains(marked.anchorNode);
    return typing || marking || target.querySelector("details.act[open]") !== null;
  }

  document.addEventListener("htmx:beforeRequest", function (event) {
    const polls = event.detail.elt.id === "poll";
    if (polls && document.hidden) {
      event.preventDefault();
    }
  });

  document.addEventListener("htmx:beforeOnLoad", function (event) {
    answersButton = event.detail.elt.id !== "poll";
    offline(false);
  });

  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    const target = event.detail.target;
    if (!answersButton && busy(target)) {
      event.detail.shouldSwap = false;
      return;
    }
    opened = Array.from(target.querySelectorAll("details[open]"), (each) => each.id);
    const active = document.activeElement;
    focused = active && target.contains(active) ? active.id : "";
  });

  // Times are written for the reader's clock; the title has them in UTC.
  function localTimes(within) {
    within.querySelectorAll("time:not([data-local])").forEach(function (each) {
      const at = new Date(each.dateTime);
      each.dataset.local = "";
      const near = Math.abs(Date.now() - at) < 43200000;
      if (Math.abs(Date.now() - at) >= 60000) {
        each.textContent += ", " + local(at, near);
      }
    });
  }

  // The chart has 24 hours a day, too.
  function local(at, near) {
    const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return at.toLocaleString([], near ? clock : { month: "short", day: "numeric", ...clock });
  }

  localTimes(document);

  document.addEventListener("htmx:oobAfterSwap", function (event) {
    localTimes(document.getElementById(event.detail.target.id) || document.createElement("p"));
    if (!answersButton) {
      opened.forEach(function (id) {
        const each = document.getElementById(id);
        if (each) each.open = true;
      });
    }
    const again = focused && document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
  });

  // What came of a button has been read after a while.
  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.elt.id === "poll") return;
    clearTimeout(told);
    told = setTimeout(function () { document.getElementById("notice").hidden = true; }, 10000);
  });

  function offline(is) {
    document.getElementById("offline").hidden = !is;
  }

  ["htmx:sendError", "htmx:responseError", "htmx:timeout"].forEach(function (name) {
    document.addEventListener(name, function () { offline(true); });
  });

  document.addEventListener("keydown", function (event) {
    const open = event.key === "Escape" && document.querySelector("details.act[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  });

  document.addEventListener("toggle", function (event) {
    if (event.target.matches("details.act") && event.target.open) {
      event.target.querySelector("input, form button").focus();
    }
  }, true);

  // The chart, which the whole page has.
  const section = document.getElementById("history");
  if (!section) return;
  const place = document.getElementById("chart");
  const legend = document.getElementById("chart-legend");
  const every = 10000;
  let drawn = null;
  let known = null;
  const left = new Set(); // The labels of series that the reader has switched off.

  function chosen(name) {
    return document.querySelector("input[name=" + name + "]:checked").value;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function seriesColor(index) {
    return color("--series-" + (index % 6 + 1));
  }

  function age(seconds) {
    if (seconds < 60) return Math.round(seconds) + " s";
    if (seconds < 3600) return Math.round(seconds / 60) + " min";
    if (seconds < 86400) return Math.round(seconds / 360) / 10 + " h";
    return Math.round(seconds / 8640) / 10 + " d";
  }

  // Counting stops at 10,000, as on the cards.
  function rows(count) {
    return count >= 10000 ? "10,000+" : Math.round(count).toLocaleString("en");
  }

  function perSecond(rate) {
    return (rate >= 10 ? Math.round(rate) : Math.round(rate * 100) / 100).toLocaleString("en") + "/s";
  }

  function written(value) {
    if (value === null || value === undefined) return "–";
    return { oldest: age, rate: perSecond, pending: rows }[chosen("measure")](value);
  }

  // The last value of a series is that of now; no run has ended in this very moment, so that a rate has none.
  function last(values) {
    return values.findLastIndex((value) => value !== null && value !== undefined);
  }

  function showLegend(index) {
    const focused = document.activeElement && legend.contains(document.activeElement) ? document.activeElement.value : "";
    legend.replaceChildren.apply(legend, known.series.map(function (series, i) {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.className = "series";
      button.value = series.label;
      button.setAttribute("aria-pressed", String(!left.has(series.label)));
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("width", "12");
      svg.setAttribute("height", "12");
      svg.setAttribute("aria-hidden", "true");
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      dot.setAttribute("cx", "6");
      dot.setAttribute("cy", "6");
      dot.setAttribute("r", "5");
      dot.setAttribute("fill", seriesColor(i));
      svg.append(dot);
      const values = series[chosen("measure")];
      const value = document.createElement("b");
      value.textContent = written(values[index === null ? (chosen("measure") === "rate" ? last(values) : values.length - 1) : index]);
      const label = document.createElement("code");
      label.textContent = series.label;
      button.append(svg, label, value);
      item.append(button);
      return item;
    }));
    const again = focused && legend.querySelector('button[value="' + CSS.escape(focused) + '"]');
    if (again) again.focus({ preventScroll: true });
  }

  legend.addEventListener("click", function (event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (!left.delete(button.value)) left.add(button.value);
    draw();
  });

  // A dozen moments in words, for readers who do not see the drawing.
  function showTable() {
    const measure = chosen("measure");
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    const step = Math.max(1, Math.ceil(known.at.length / 12));
    ["Time"].concat(known.series.map((series) => series.label)).forEach(function (text) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    });
    const body = table.createTBody();
    for (let i = known.at.length - 1; i >= 0; i -= step) {
      const row = body.insertRow();
      const time = document.createElement("th");
      time.scope = "row";
      time.textContent = local(new Date(known.at[i] * 1000), false);
      row.append(time);
      known.series.forEach(function (series) { row.insertCell().textContent = written(series[measure][i]); });
    }
    document.querySelector("#chart-table div").replaceChildren(table);
  }

  function axis(more) {
    return Object.assign({
      stroke: color("--soft"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    }, more);
  }

  // What the drawing was made for: as long as it stays, only the data is exchanged, and the cursor stays where it is.
  let shape = "";

  function draw() {
    if (!known) return;
    const measure = chosen("measure");
    const data = [known.at].concat(known.series.map((series) => series[measure]));
    const log = document.querySelector("input[name=log]").checked;
    const needed = [measure, log, known.span, color("--ink")].concat(known.series.map((series) => series.label + left.has(series.label))).join("\n");
    if (drawn && shape === needed) {
      drawn.setData(data);
    } else {
      if (drawn) drawn.destroy();
      shape = needed;
      drawn = new uPlot(options(measure, log), data, place);
    }
    place.setAttribute("aria-label", { pending: "Rows that wait", oldest: "Age of the oldest row that waits", rate: "Rows finished per second" }[measure] +
      " in each deletion table, over time; the table below has the values");
    showTable();
    showLegend(drawn.cursor.idx === undefined ? null : drawn.cursor.idx);
    section.dataset.drawn = String(known.at.length);
  }

  function options(measure, log) {
    return {
      width: place.clientWidth,
      height: place.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      scales: {
        // A young history has the whole width, from five minutes on.
        x: { range: () => [Math.max(known.now - known.span, Math.min(known.at[0], known.now - 300)), known.now] },
        // Zero lies on a scale of arcsines, which is logarithmic above 1.
        y: { distr: log ? 4 : 1, range: (self, low, high) => [0, Math.max({ oldest: 10, rate: 1, pending: 5 }[measure], (high || 0) * (log ? 1.5 : 1.1))] },
      },
      axes: [
        axis({ space: 74, values: [ // A time with seconds is some 55 pixels wide.
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] }),
        axis({ size: 62, values: (self, ticks) => ticks.map((tick) => tick === null ? "" : measure === "oldest" ? age(tick) : tick.toLocaleString("en")) }),
      ],
      series: [{}].concat(known.series.map((series, i) => ({
        label: series.label,
        show: !left.has(series.label),
        stroke: seriesColor(i),
        width: 2,
        fill: known.series.length === 1 ? seriesColor(0) + "1f" : undefined,
        points: { show: false },
      }))),
      hooks: { setCursor: [(self) => showLegend(self.cursor.idx === undefined ? null : self.cursor.idx)] },
    };
  }

  let asked = 0;
  function refresh() {
    if (document.hidden) return;
    const mine = ++asked;
    fetch("/history?span=" + encodeURIComponent(chosen("span")), { headers: { Accept: "application/json" } })
      .then((answer) => answer.ok ? answer.json() : Promise.reject(new Error(answer.statusText)))
      .then(function (read) {
        if (mine !== asked) return; // Another stretch has been chosen meanwhile.
        known = read;
        section.hidden = known.series.length === 0;
        draw();
      })
      .catch(() => {}); // The poll beside it says that no worker answers.
  }

  section.addEventListener("change", function (event) {
    if (event.target.name === "span") refresh(); else draw();
  });
  new ResizeObserver(function () {
    if (drawn && place.clientWidth > 0) drawn.setSize({ width: place.clientWidth, height: place.clientHeight });
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, every);
  refresh();
})();
