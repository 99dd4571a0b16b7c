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
    const typing = active && target.contains(active) && active.matches("input[name=reason]");
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

  document.addEventListener("htmx:oobAfterSwap", function () {
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
      event.target.querySelector("input").focus();
    }
  }, true);

  // The chart.
  const section = document.getElementById("history");
  const place = document.getElementById("chart");
  const legend = document.getElementById("chart-legend");
  const every = 10000;
  let drawn = null;
  let known = null;

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

  function rows(count) {
    return count >= 10000 ? "10,000+" : Math.round(count).toLocaleString("en");
  }

  function written(value) {
    if (value === null || value === undefined) return "–";
    return chosen("measure") === "oldest" ? age(value) : rows(value);
  }

  function showLegend(index) {
    legend.replaceChildren.apply(legend, known.series.map(function (series, i) {
      const item = document.createElement("li");
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("width", "12");
      svg.setAttribute("height", "12");
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      dot.setAttribute("cx", "6");
      dot.setAttribute("cy", "6");
      dot.setAttribute("r", "5");
      dot.setAttribute("fill", seriesColor(i));
      svg.append(dot);
      const values = series[chosen("measure")];
      const value = document.createElement("b");
      value.textContent = written(values[index === null ? values.length - 1 : index]);
      const label = document.createElement("code");
      label.textContent = series.label;
      item.append(svg, label, value);
      return item;
    }));
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
    const needed = [measure, known.span, color("--ink")].concat(known.series.map((series) => series.label)).join("\n");
    if (drawn && shape === needed) {
      drawn.setData(data);
    } else {
      if (drawn) drawn.destroy();
      shape = needed;
      drawn = new uPlot(options(measure), data, place);
    }
    showLegend(drawn.cursor.idx === undefined ? null : drawn.cursor.idx);
    section.dataset.drawn = String(known.at.length);
  }

  function options(measure) {
    return {
      width: place.clientWidth,
      height: place.clientHeight,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      scales: {
        // A young history has the whole width, from five minutes on.
        x: { range: () => [Math.max(known.now - known.span, Math.min(known.at[0], known.now - 300)), known.now] },
        y: { range: (self, low, high) => [0, Math.max(measure === "oldest" ? 10 : 5, (high || 0) * 1.1)] },
      },
      axes: [
        axis({ space: 74, values: [ // A time with seconds is some 55 pixels wide.
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] }),
        axis({ size: 62, values: (self, ticks) => ticks.map((tick) => measure === "oldest" ? age(tick) : tick.toLocaleString("en")) }),
      ],
      series: [{}].concat(known.series.map((series, i) => ({
        label: series.label,
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
