package bench

import (
	"cmp"
	"slices"

	"sexton/internal/each"
	"sexton/internal/jobrun"
)

// contest describes the comparison of a benchmark of whole drains, and its report.
type contest struct {
	name string
	// targets is the noun for the deleted rows: parents, users or projects.
	targets string
	// head has further figures of the document; begun adds how long the application waits for its DELETE.
	head  Row
	begun bool
	// single reports that there is one data set, whose figures are the document's own.
	single bool
	ratios []contestRatio
	// how and note tell people how the figures were taken, work what the variants did beside the foreground; empty for a benchmark
	// without one.
	how, note, work string
}

// contestRatio compares two variants. Head and format are those of its column; without a format it has two digits.
type contestRatio struct {
	key, head string
	of        func(comparison) float64
	format    string
}

// speeds compares rows per second: more is better.
func speeds(one, other string) func(comparison) float64 {
	return func(c comparison) float64 { return ratio(c.of(one).rowsPerSecond, c.of(other).rowsPerSecond) }
}

func wals(one, other string) func(comparison) float64 {
	return func(c comparison) float64 { return ratio(float64(c.of(one).wal), float64(c.of(other).wal)) }
}

// outcome are the figures of a variant.
func (c contest) outcome(v outcome, in comparison) Row {
	row := append(variantFigure("contender", v.name),
		Figure{"seconds", "seconds", "%.2f", v.seconds}, Figure{"rows_per_second", "rows/s", "%.0f", v.rowsPerSecond})
	if c.begun {
		waited := jobrun.Milliseconds(v.begun)
		row = append(row, Figure{"parent_delete_ms", "parents ms", "%.1f", waited})
	}
	row = append(row, Figure{"wal_bytes", "", "", v.wal}, Figure{"", "WAL MB", "%.1f", float64(v.wal) / 1e6})
	if v.restored > 0 {
		restored := round(float64(in.targets+in.rows)/v.restored.Seconds(), 0)
		row = append(row, Figure{"restored_rows_per_second", "restored rows/s", "%.0f", restored})
	}
	return append(append(row, Figure{"statements", "statements", "%d", v.statements}), statementFigures(v.statementMS)...)
}

// report sums up the comparisons on all data sets.
func (c contest) report(g *Cluster, o Options, sets ...comparison) *Report {
	r := &Report{Row: append(g.head(c.name, o), c.head...)}
	var documents, variants, ratios, foreground []Row
	for _, found := range sets {
		set := Figure{"set", "set", "%s", found.set}
		outcomes := each.Of(found.variants, func(v outcome) Row { return c.outcome(v, found) })
		row := Row{set}
		for _, one := range c.ratios {
			row = append(row, Figure{one.key, one.head, cmp.Or(one.format, "%.2f"), one.of(found)})
		}
		row = append(row, Figure{c.targets, c.targets, "%d", found.targets}, Figure{"rows", "rows", "%d", found.rows})
		var disturbed []Row // Null where it was not asked for.
		if o.Foreground {
			disturbed = each.Of(found.foreground, disturbance.figures)
		}
		variants, ratios, foreground = append(variants, set.with(outcomes)...), append(ratios, row), append(foreground, set.with(disturbed)...)
		document := slices.Concat(row, Row{{"contenders", "", "", outcomes}})
		if c.work != "" {
			document = append(document, Figure{"foreground", "", "", disturbed})
		}
		documents = append(documents, document)
	}
	if c.single {
		r.Row = append(r.Row, documents[0]...)
	} else {
		r.Row = append(r.Row, Figure{"sets", "", "", documents})
	}
	r.show(variants...)
	r.show(ratios...)
	if o.Foreground {
		r.show(foreground...)
	}
	r.notef("median of %d interleaved rounds, each on a fresh copy of the data; scale %g%s; %s", o.Rounds, o.Scale, c.how, g.Server)
	if c.note != "" {
		r.notef("%s", c.note)
	}
	if o.Foreground {
		r.foregroundNotes(c.work, o.Duty, sets)
	}
	return r
}
