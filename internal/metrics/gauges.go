package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sexton/internal/web"
)

const (
	// readTimeout limits the reading of the gauges. Prometheus ends a scrape after ten
	// seconds, and a database that does not respond must not hide the gauges of the
	// others.
	readTimeout = 2 * time.Second
	// keepReading is the time for which gauges are cached. It is shorter than usual
	// scrape intervals, so that each scrape of one Prometheus reads new values. If there
	// are several, the cache limits the queries.
	keepReading = 5 * time.Second
)

// Sample is the value of one gauge.
type Sample struct {
	Metric string
	Value  float64
	// Labels are the label values in the order of the metric's labels in Table.
	Labels []string
}

// Reader reads all gauges. It omits the gauges that it cannot read before ctx ends.
type Reader func(ctx context.Context) []Sample

// gauges is a collector that reads the gauges during a scrape.
type gauges struct {
	descs  map[string]*prometheus.Desc
	recent *web.Cached[[]Sample]
}

func newGauges(read Reader) *gauges {
	g := &gauges{
		descs:  map[string]*prometheus.Desc{},
		recent: &web.Cached[[]Sample]{Read: read, Timeout: readTimeout, Keep: keepReading},
	}
	for _, metric := range Table() {
		if metric.Type == Gauge && metric.Name != buildInfo {
			g.descs[metric.Name] = prometheus.NewDesc(metric.Name, metric.Help, metric.Labels, nil)
		}
	}
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range g.descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	for _, sample := range worst(g.recent.Get(context.Background())) {
		desc := g.descs[sample.Metric]
		if desc == nil {
			desc = prometheus.NewDesc(sample.Metric, "Not in the table of metrics.", nil, nil)
		}
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, sample.Value, sample.Labels...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}

// worst returns one sample per metric and label values, with the highest value. Two
// standbys can have the same name, and a Prometheus registry refuses duplicates.
func worst(samples []Sample) []Sample {
	index := map[string]int{}
	var kept []Sample
	for _, sample := range samples {
		key := sample.Metric + "\xff" + strings.Join(sample.Labels, "\xff")
		i, found := index[key]
		if !found {
			index[key] = len(kept)
			kept = append(kept, sample)
			continue
		}
		kept[i].Value = max(kept[i].Value, sample.Value)
	}
	return kept
}
