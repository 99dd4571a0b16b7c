package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sexton/internal/web"
)

const (
	// readTimeout bounds a scrape: Prometheus gives up after ten seconds, and a database
	// that does not answer must not hide the others.
	readTimeout = 2 * time.Second
	// keepReading is shorter than usual scrape intervals, so that every scrape of one
	// server is fresh, and several servers, or a reader who reloads a page, ask the
	// databases no more often.
	keepReading = 5 * time.Second
)

// Sample is the value of one gauge.
type Sample struct {
	Metric string
	Value  float64
	// Labels are the values in the order of the table.
	Labels []string
}

// Reader reads all gauges. What cannot be read within the context is left out.
type Reader func(ctx context.Context) []Sample

// gauges are read when they are gathered.
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
			desc = prometheus.NewDesc(sample.Metric, "Unknown to the table of metrics.", nil, nil)
		}
		metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, sample.Value, sample.Labels...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		out <- metric
	}
}

// worst keeps the highest of values with the same labels. Two standbys can have one name,
// and a registry refuses duplicates.
func worst(samples []Sample) []Sample {
	at := map[string]int{}
	var kept []Sample
	for _, sample := range samples {
		key := sample.Metric + "\xff" + strings.Join(sample.Labels, "\xff")
		i, there := at[key]
		if !there {
			at[key] = len(kept)
			kept = append(kept, sample)
			continue
		}
		kept[i].Value = max(kept[i].Value, sample.Value)
	}
	return kept
}
