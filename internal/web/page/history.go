package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/jobrun"
	"sexton/internal/web"
)

// stretch is a time span that the chart can show. Workers take a sample every 15 s, so
// each bin has at least two. A chart has about 300 bins.
type stretch struct {
	Name, Title string
	span, bin   time.Duration
}

func stretches() []stretch {
	return []stretch{
		{"1h", "1 hour", time.Hour, 30 * time.Second},
		{"24h", "24 hours", 24 * time.Hour, 5 * time.Minute},
		{"7d", "7 days", 7 * 24 * time.Hour, 30 * time.Minute},
	}
}

const (
	historyTimeout = 5 * time.Second
	historyFor     = 10 * time.Second
	// gap is a number of bins. If that many consecutive bins have no sample, no worker
	// was running.
	gap = 3
)

// histories cache the last reading of each stretch for all requests.
type histories map[string]*web.Cached[reading[[]jobrun.Series]]

func newHistory(source Source) histories {
	all := histories{}
	for _, s := range stretches() {
		read := func(ctx context.Context) ([]jobrun.Series, error) { return source.History(ctx, s.span, s.bin) }
		all[s.Name] = &web.Cached[reading[[]jobrun.Series]]{
			Timeout: historyTimeout, Keep: historyFor,
			Read: lasting(read),
		}
	}
	return all
}

// chart is the JSON document with the data of the chart. It has one column of times and,
// per series, columns of the same length, with null if a series has no value.
type chart struct {
	// Span is in seconds. Times are in Unix seconds.
	Span   int64         `json:"span"`
	Now    int64         `json:"now"`
	At     []int64       `json:"at"`
	Series []chartSeries `json:"series"`
}

type chartSeries struct {
	Label   string     `json:"label"`
	Pending []*int64   `json:"pending"`
	Oldest  []*float64 `json:"oldest"`
	// Rate is the number of rows finished per second. It is null for the present moment.
	Rate []*float64 `json:"rate"`
}

// newChart aligns the series by time, and appends the present values, which no sample has
// yet.
func newChart(s stretch, series []jobrun.Series, tables []components.Backlog, now time.Time) chart {
	c := chart{Span: int64(s.span.Seconds()), Now: now.Unix(), At: []int64{}, Series: []chartSeries{}}
	series = withPresent(series, tables, now)
	for _, one := range series {
		for _, point := range one.Points {
			c.At = append(c.At, point.At)
		}
	}
	slices.Sort(c.At)
	c.At = withGaps(slices.Compact(c.At), gap*int64(s.bin.Seconds()))
	several := slices.ContainsFunc(series, func(one jobrun.Series) bool { return one.Database != series[0].Database })
	for _, one := range series {
		column := chartSeries{
			Label: one.Table, Pending: make([]*int64, len(c.At)), Oldest: make([]*float64, len(c.At)),
			Rate: make([]*float64, len(c.At)),
		}
		if several {
			column.Label += " in " + one.Database
		}
		for _, point := range one.Points {
			if i, found := slices.BinarySearch(c.At, point.At); found {
				column.Pending[i], column.Oldest[i] = &point.Pending, &point.OldestAgeSeconds
				if point.At < c.Now {
					column.Rate[i] = new(float64(point.Finished) / s.bin.Seconds())
				}
			}
		}
		c.Series = append(c.Series, column)
	}
	return c
}

// withPresent appends the current values of the tables to the series.
func withPresent(series []jobrun.Series, tables []components.Backlog, now time.Time) []jobrun.Series {
	out := make([]jobrun.Series, 0, len(series)+len(tables))
	for _, one := range series {
		one.Points = slices.Clone(one.Points)
		out = append(out, one)
	}
	for _, table := range tables {
		if table.Unreachable != "" {
			continue
		}
		at := slices.IndexFunc(out, func(s jobrun.Series) bool {
			return s.Table == table.Table &&
				s.Database == table.Database
		})
		if at < 0 {
			out = append(out, jobrun.Series{Table: table.Table, Database: table.Database})
			at = len(out) - 1
		}
		out[at].Points = append(out[at].Points, jobrun.Point{
			At: now.Unix(), Pending: table.Pending,
			OldestAgeSeconds: table.OldestAgeSeconds,
		})
	}
	return out
}

// withGaps inserts a time without values between times that are too far apart, so that
// the chart draws no line between them.
func withGaps(times []int64, most int64) []int64 {
	out := make([]int64, 0, len(times))
	for i, at := range times {
		if i > 0 && at-times[i-1] > most {
			out = append(out, times[i-1]+1)
		}
		out = append(out, at)
	}
	return out
}

// serveHistory sends the chart's document.
func (p *Page) serveHistory(w http.ResponseWriter, r *http.Request) {
	at := max(0, slices.IndexFunc(stretches(), func(s stretch) bool { return s.Name == r.URL.Query().Get("span") }))
	s := stretches()[at]
	kept := p.history[s.Name].Get(r.Context())
	if kept.err != nil && kept.at.IsZero() {
		http.Error(w, "the history cannot be read", http.StatusServiceUnavailable)
		return
	}
	var tables []components.Backlog
	if present := p.overview.Get(r.Context()); present.err == nil {
		// After an error, value is the last reading from before the outage. Do not draw
		// it as the present.
		tables = present.value.DeletionTables
	}
	document, err := json.Marshal(newChart(s, kept.value, tables, time.Now()))
	if err != nil {
		p.options.Logger.ErrorContext(r.Context(), "history_failed", "error", err)
		http.Error(w, "the history cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document)
}

const (
	sparkWidth  = 120
	sparkHeight = 28
)

// spark returns the points of an SVG polyline for one table's last hour. It is empty if
// there are too few points to draw.
func spark(series []jobrun.Series, table components.Backlog, now time.Time) string {
	at := slices.IndexFunc(series, func(s jobrun.Series) bool {
		return s.Table == table.Table &&
			s.Database == table.Database
	})
	if at < 0 {
		return ""
	}
	points := append(slices.Clone(series[at].Points), jobrun.Point{At: now.Unix(), Pending: table.Pending})
	if len(points) < 3 {
		return ""
	}
	// A history shorter than an hour uses the whole width, unless it is shorter than five
	// minutes.
	begin := max(now.Add(-stretches()[0].span).Unix(), min(points[0].At, now.Add(-5*time.Minute).Unix()))
	highest := int64(1)
	for _, point := range points {
		highest = max(highest, point.Pending)
	}
	var line strings.Builder
	for _, point := range points {
		x := float64(point.At-begin) / float64(now.Unix()-begin) * sparkWidth
		y := (1 - float64(point.Pending)/float64(highest)) * sparkHeight
		_, _ = fmt.Fprintf(&line, "%.1f,%.1f ", max(0, x), y+1)
	}
	return strings.TrimSpace(line.String())
}
