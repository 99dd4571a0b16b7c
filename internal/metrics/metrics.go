package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sexton/internal/jobrun"
	"sexton/internal/pgcatalog"
)

// Options are the options of New.
type Options struct {
	// Kinds and Databases are the configured kinds and databases. Their counters start at
	// 0, so that the first run counts as an increase.
	Kinds     []string
	Databases []string
	// CleanUp is the kind of the loose foreign keys, which has service-level indicators.
	CleanUp string
	// DiffSkips are the reasons for which a diff may be left in the database. The list is
	// empty if diffs are not moved. The counters of these reasons start at 0.
	DiffSkips []string
	// Version, Go and River are the versions of this program, of Go and of River.
	Version, Go, River string
	// Read reads the gauges. It is called at most once in 5 s, and its context ends after
	// 2 s.
	Read   Reader
	Logger *slog.Logger
}

// Metrics holds the metrics of one process. As an observer of a jobrun.Runner it counts
// the ended runs.
type Metrics struct {
	cleanUp    string
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
	logger     *slog.Logger
}

var _ jobrun.Observer = (*Metrics)(nil)

// New returns metrics with a collector for each metric of Table.
func New(o Options) (*Metrics, error) {
	m := &Metrics{
		cleanUp: o.CleanUp, registry: prometheus.NewRegistry(),
		counters: map[string]*prometheus.CounterVec{}, histograms: map[string]*prometheus.HistogramVec{},
		logger: o.Logger,
	}
	all := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newGauges(o.Read),
	}
	for _, metric := range Table() {
		switch {
		case metric.Type == Counter:
			counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric.Name, Help: metric.Help},
				metric.Labels)
			m.counters[metric.Name] = counter
			all = append(all, counter)
		case metric.Type == Histogram:
			// A run without work takes some milliseconds, and few runs take more than a
			// minute.
			buckets := []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60}
			if metric.Name == cleanUpLatency {
				buckets = jobrun.HistogramBounds()
			}
			histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: metric.Name, Help: metric.Help,
				Buckets: buckets,
			}, metric.Labels)
			m.histograms[metric.Name] = histogram
			all = append(all, histogram)
		case metric.Name == buildInfo:
			info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metric.Name, Help: metric.Help}, metric.Labels)
			info.WithLabelValues(o.Version, o.Go, o.River).Set(1)
			all = append(all, info)
		}
	}
	for _, collector := range all {
		if err := m.registry.Register(collector); err != nil {
			return nil, err
		}
	}
	m.setZero(o)
	return m, nil
}

// setZero creates the series of all configured kinds and databases with the value 0.
func (m *Metrics) setZero(o Options) {
	for _, database := range o.Databases {
		for _, kind := range o.Kinds {
			for _, outcome := range []jobrun.Outcome{jobrun.Done, jobrun.OverLimit, jobrun.Skipped, jobrun.Failed} {
				m.add(runs, 0, kind, database, string(outcome))
			}
			m.add(leaseSkips, 0, kind, database)
			m.histograms[runDuration].WithLabelValues(kind, database)
		}
		m.histograms[cleanUpLatency].WithLabelValues(o.CleanUp, database)
		for _, name := range []string{
			apdex, apdexSuccess, sliTotal, sliError, ConfirmedRecords, LateChildren,
			GhostUsersDestroyed, GhostUsersFailed, GhostBacklogAlerts, GhostErrorAlerts,
		} {
			m.add(name, 0, database)
		}
		for _, reason := range o.DiffSkips {
			m.add(DiffsSkipped, 0, database, reason)
		}
	}
}

// add adds n to a counter. The label values are in the order of the metric's labels in
// Table.
func (m *Metrics) add(name string, n int64, labels ...string) {
	m.counters[name].WithLabelValues(labels...).Add(float64(n))
}

// RunEnded counts an ended run.
func (m *Metrics) RunEnded(ended jobrun.Ended) {
	m.add(runs, 1, ended.Kind, ended.Database, string(ended.Outcome))
	if ended.LeaseTaken {
		m.add(leaseSkips, 1, ended.Kind, ended.Database)
	}
	if ended.Outcome != jobrun.Skipped {
		m.histograms[runDuration].WithLabelValues(ended.Kind, ended.Database).Observe(ended.Duration.Seconds())
		m.indicate(ended)
	}
	m.observeLatency(ended)
	for _, fault := range ended.Faults {
		m.add(runErrors, fault.Count, ended.Kind, ended.Database, fault.Table, fault.SQLState)
	}
	// The error of a pass that was stopped before it began is not counted.
	if ended.Err != nil && ended.Outcome != jobrun.Skipped {
		m.add(runErrors, 1, ended.Kind, ended.Database, "", pgcatalog.SQLState(ended.Err))
	}
	for metric, counts := range ended.Counts {
		for label, n := range counts {
			if n > 0 {
				m.count(ended, metric, label, n)
			}
		}
	}
}

// count adds n to the counter of a statistic. If the counter or its labels do not exist,
// count only logs an error.
func (m *Metrics) count(ended jobrun.Ended, metric, label string, n int64) {
	counter, ok := m.counters[metric]
	if !ok {
		m.logger.Error("statistic_without_metric", "kind", ended.Kind, "metric", metric)
		return
	}
	labels := []string{ended.Database}
	if label != "" {
		labels = append(labels, label)
	}
	series, err := counter.GetMetricWithLabelValues(labels...)
	if err != nil {
		m.logger.Error("statistic_without_labels", "kind", ended.Kind, "metric", metric, "error", err)
		return
	}
	series.Add(float64(n))
}

// observeLatency adds the latencies of the rows that a run has finished. Each latency
// counts as the upper bound of its bin, so the sum is slightly too high.
func (m *Metrics) observeLatency(ended jobrun.Ended) {
	if len(ended.Latency) == 0 {
		return // Most kinds have no latencies.
	}
	series := m.histograms[cleanUpLatency].WithLabelValues(ended.Kind, ended.Database)
	for bin, n := range ended.Latency {
		bound, err := strconv.ParseFloat(bin, 64)
		if last := jobrun.HistogramBounds()[len(jobrun.HistogramBounds())-1]; err != nil || bound > last {
			bound = 2 * last // An infinite value would make the sum infinite.
		}
		for range n {
			series.Observe(bound)
		}
	}
}

// indicate updates the service-level indicators. A failed run counts as an error, but not
// for the apdex.
func (m *Metrics) indicate(ended jobrun.Ended) {
	if ended.Kind != m.cleanUp {
		return
	}
	m.add(sliTotal, 1, ended.Database)
	switch ended.Outcome {
	case jobrun.Failed:
		m.add(sliError, 1, ended.Database)
	case jobrun.Done:
		m.add(apdex, 1, ended.Database)
		if ended.Held == "" {
			m.add(apdexSuccess, 1, ended.Database)
		}
	default:
		m.add(apdex, 1, ended.Database)
	}
}

// Gatherer returns the registry of all metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler returns an HTTP handler that serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// One invalid series must not hide the other series.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      errorLog{m.logger},
		// More concurrent requests would only wait for the same cached values.
		MaxRequestsInFlight: 8,
		EnableOpenMetrics:   true,
	})
}

// errorLog is the promhttp.Logger that writes the handler's errors to the log.
type errorLog struct{ logger *slog.Logger }

func (l errorLog) Println(v ...any) {
	var found error
	for _, one := range v {
		if err, ok := one.(error); ok {
			found = errors.Join(found, err)
		}
	}
	l.logger.Warn("metrics_incomplete", "error", found)
}
