// Draws the backlog over time. When htmx replaces fragments of the page, it keeps input, selected text, focus and
// open elements.
(function () {
  "use strict";

  // A fragment is not replaced by a poll while the user fills in a form or selects text in it.
  let isButtonResponse = false;
  let openDetails = [];
  let focused = "";
  let noticeTimer = 0;

  function isInUse(target) {
    const active = document.activeElement;
    const typing = active && target.contains(active) && active.matches("input:not([type=hidden])");
    const selection = document.getSelection();
    const selecting = selection && !selection.isCollapsed && target.contains(selection.anchorNode);
    return typing || selecting || target.querySelector("details.act[open]") !== null;
  }

  document.addEventListener("htmx:beforeRequest", function (event) {
    const polls = event.detail.elt.id === "poll";
    if (polls && document.hidden) {
      event.preventDefault();
    }
  });

  document.addEventListener("htmx:beforeOnLoad", function (event) {
    isButtonResponse = event.detail.elt.id !== "poll";
    showOffline(false);
  });

  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    const target = event.detail.target;
    if (!isButtonResponse && isInUse(target)) {
      event.detail.shouldSwap = false;
      return;
    }
    openDetails = Array.from(target.querySelectorAll("details[open]"), (each) => each.id);
    const active = document.activeElement;
    focused = active && target.contains(active) ? active.id : "";
  });

  // Appends the local time to each relative time that is at least a minute away. The tooltip has the time in UTC.
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

  // Formats a local time with a 24-hour clock, as the chart does.
  function local(at, near) {
    const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return at.toLocaleString([], near ? clock : { month: "short", day: "numeric", ...clock });
  }

  localTimes(document);

  document.addEventListener("htmx:oobAfterSwap", function (event) {
    localTimes(document.getElementById(event.detail.target.id) || document.createElement("p"));
    if (!isButtonResponse) {
      openDetails.forEach(function (id) {
        const each = document.getElementById(id);
        if (each) each.open = true;
      });
    }
    const element = focused && document.getElementById(focused);
    if (element) element.focus({ preventScroll: true });
  });

  // Hide the message about the result of a button after 10 seconds.
  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.elt.id === "poll") return;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(function () { document.getElementById("notice").hidden = true; }, 10000);
  });

  function showOffline(offline) {
    document.getElementById("offline").hidden = !offline;
  }

  ["htmx:sendError", "htmx:responseError", "htmx:timeout"].forEach(function (name) {
    document.addEventListener(name, function () { showOffline(true); });
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

  // Only the whole page has the chart. A page of one job or of failures ends here.
  const section = document.getElementById("history");
  if (!section) return;
  const container = document.getElementById("chart");
  const legend = document.getElementById("chart-legend");
  const refreshEvery = 10000;
  let plot = null;
  let chartData = null;
  const hidden = new Set(); // The labels of series that the user has hidden.

  function selected(name) {
    return document.querySelector("input[name=" + name + "]:checked").value;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function seriesColor(index) {
    return color("--series-" + (index % 6 + 1));
  }

  function formatAge(seconds) {
    if (seconds < 60) return Math.round(seconds) + " s";
    if (seconds < 3600) return Math.round(seconds / 60) + " min";
    if (seconds < 86400) return Math.round(seconds / 360) / 10 + " h";
    return Math.round(seconds / 8640) / 10 + " d";
  }

  // Formats a number of rows. Workers stop counting at 10,000.
  function formatRows(count) {
    return count >= 10000 ? "10,000+" : Math.round(count).toLocaleString("en");
  }

  function formatRate(rate) {
    return (rate >= 10 ? Math.round(rate) : Math.round(rate * 100) / 100).toLocaleString("en") + "/s";
  }

  function formatValue(value) {
    if (value === null || value === undefined) return "–";
    return { oldest: formatAge, rate: formatRate, pending: formatRows }[selected("measure")](value);
  }

  // Returns the index of the last value that is not null. A rate has no value for the present moment.
  function lastIndex(values) {
    return values.findLastIndex((value) => value !== null && value !== undefined);
  }

  function showLegend(index) {
    const focused = document.activeElement && legend.contains(document.activeElement) ? document.activeElement.value : "";
    legend.replaceChildren.apply(legend, chartData.series.map(function (series, i) {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.className = "series";
      button.value = series.label;
      button.setAttribute("aria-pressed", String(!hidden.has(series.label)));
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
      const values = series[selected("measure")];
      const value = document.createElement("b");
      value.textContent = formatValue(values[index === null ? (selected("measure") === "rate" ? lastIndex(values) : values.length - 1) : index]);
      const label = document.createElement("code");
      label.textContent = series.label;
      button.append(svg, label, value);
      item.append(button);
      return item;
    }));
    const element = focused && legend.querySelector('button[value="' + CSS.escape(focused) + '"]');
    if (element) element.focus({ preventScroll: true });
  }

  legend.addEventListener("click", function (event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (!hidden.delete(button.value)) hidden.add(button.value);
    draw();
  });

  // Writes about 12 points in time to a table, for users who cannot see the chart.
  function showTable() {
    const measure = selected("measure");
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    const step = Math.max(1, Math.ceil(chartData.at.length / 12));
    ["Time"].concat(chartData.series.map((series) => series.label)).forEach(function (text) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    });
    const body = table.createTBody();
    for (let i = chartData.at.length - 1; i >= 0; i -= step) {
      const row = body.insertRow();
      const time = document.createElement("th");
      time.scope = "row";
      time.textContent = local(new Date(chartData.at[i] * 1000), false);
      row.append(time);
      chartData.series.forEach(function (series) { row.insertCell().textContent = formatValue(series[measure][i]); });
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

  // The settings for which the chart was created. If they are the same, draw only replaces the data, so that the
  // cursor keeps its position.
  let plotSettings = "";

  function draw() {
    if (!chartData) return;
    const measure = selected("measure");
    const data = [chartData.at].concat(chartData.series.map((series) => series[measure]));
    const log = document.querySelector("input[name=log]").checked;
    const settings = [measure, log, chartData.span, color("--ink")]
      .concat(chartData.series.map((series) => series.label + hidden.has(series.label))).join("\n");
    if (plot && plotSettings === settings) {
      plot.setData(data);
    } else {
      if (plot) plot.destroy();
      plotSettings = settings;
      plot = new uPlot(options(measure, log), data, container);
    }
    const titles = {
      pending: "Pending rows", oldest: "Age of the oldest pending row", rate: "Rows finished per second",
    };
    container.setAttribute("aria-label",
      titles[measure] + " in each deletion table, over time; the table below has the values");
    showTable();
    showLegend(plot.cursor.idx === undefined ? null : plot.cursor.idx);
    section.dataset.drawn = String(chartData.at.length);
  }

  function options(measure, log) {
    return {
      width: container.clientWidth,
      height: container.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      scales: {
        // A history that is shorter than the time span has the whole width, unless it is shorter than five minutes.
        x: {
          range: () => [
            Math.max(chartData.now - chartData.span, Math.min(chartData.at[0], chartData.now - 300)),
            chartData.now,
          ],
        },
        // Distribution 4 is an inverse hyperbolic sine. It is logarithmic above 1 and defined for 0.
        y: { distr: log ? 4 : 1, range: (self, low, high) => [0, Math.max({ oldest: 10, rate: 1, pending: 5 }[measure], (high || 0) * (log ? 1.5 : 1.1))] },
      },
      axes: [
        axis({ space: 74, values: [ // A time with seconds is about 55 pixels wide.
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] }),
        axis({ size: 62, values: (self, ticks) => ticks.map((tick) => tick === null ? "" : measure === "oldest" ? formatAge(tick) : tick.toLocaleString("en")) }),
      ],
      series: [{}].concat(chartData.series.map((series, i) => ({
        label: series.label,
        show: !hidden.has(series.label),
        stroke: seriesColor(i),
        width: 2,
        fill: chartData.series.length === 1 ? seriesColor(0) + "1f" : undefined,
        points: { show: false },
      }))),
      hooks: { setCursor: [(self) => showLegend(self.cursor.idx === undefined ? null : self.cursor.idx)] },
    };
  }

  let requests = 0;
  function refresh() {
    if (document.hidden) return;
    const request = ++requests;
    fetch("/history?span=" + encodeURIComponent(selected("span")), { headers: { Accept: "application/json" } })
      .then((answer) => answer.ok ? answer.json() : Promise.reject(new Error(answer.statusText)))
      .then(function (data) {
        if (request !== requests) return; // A later request has been sent, for example for another time span.
        chartData = data;
        section.hidden = chartData.series.length === 0;
        draw();
      })
      .catch(() => {}); // The poll of the page shows that the worker does not answer.
  }

  section.addEventListener("change", function (event) {
    if (event.target.name === "span") refresh(); else draw();
  });
  new ResizeObserver(function () {
    if (plot && container.clientWidth > 0) plot.setSize({ width: container.clientWidth, height: container.clientHeight });
  }).observe(container);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, refreshEvery);
  refresh();
})();
