package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sexton/internal/web"
)

const (
	// readTimeout limits a scrape: Prometheus gives up after ten seconds, and a database
	// that does not answer must not hide the others.
	readTimeout = 2 * time.Second
	// keepReading is how long gauges are cached. It is shorter than usual scrape
	// intervals, so that each scrape of one Prometheus reads new values, and limits the
	// queries if there are several.
	keepReading = 5 * time.Second
)

// Sample is the value of one gauge.
type Sample struct {
	Metric string
	Value  float64
	// Labels are the values in the order of the table.
	Labels []string
}

// Reader reads all gauges. It omits those that cannot be read within the context.
type Reader func(ctx context.Context) []Sample

// gauges is a collector that reads the gauges when they are gathered.
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

// worst returns the highest of all values with the same labels. Two standbys can have the
// same name, and a registry refuses duplicates.
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
