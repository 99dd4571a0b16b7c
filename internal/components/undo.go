package components

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/component"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/metrics"
	"sexton/internal/problem"
	"sexton/internal/undo"
	"sexton/internal/words"
)

// keptRows is how much of deletions one database keeps.
type keptRows struct {
	Undo struct {
		Bytes            int64   `json:"bytes"`
		OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	} `json:"undo"`
}

func (k keptRows) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%.1f MB of deleted rows are kept, the oldest for %s; see sexton undo list\n", float64(k.Undo.Bytes)/1e6,
		words.Span(time.Duration(k.Undo.OldestAgeSeconds*float64(time.Second))))
}

func readKept(ctx context.Context, db database.Database) (component.Details, error) {
	var kept keptRows
	bytes, age, err := undo.Size(ctx, db)
	kept.Undo.Bytes, kept.Undo.OldestAgeSeconds = bytes, age.Seconds()
	return kept, err
}

// keptGauges are the metrics of what is kept.
func keptGauges(b component.Backlog) []metrics.Sample {
	kept, on := b.Details.(keptRows)
	if !on {
		return nil
	}
	return []metrics.Sample{
		{Metric: metrics.UndoBytes, Value: float64(kept.Undo.Bytes), Labels: []string{b.Database}},
		{Metric: metrics.UndoAge, Value: kept.Undo.OldestAgeSeconds, Labels: []string{b.Database}},
	}
}

//go:embed queries/cascades.sql
var cascadesSQL string

// uncovered names tables whose rows native keys take along, or change, with rows that are kept: those do not come back.
func uncovered(ctx context.Context, x *component.Exam) (found []doctor.Finding, _ error) {
	kept, tracked := []uint32{}, []uint32{}
	for home, parents := range x.Parents {
		for _, parent := range parents {
			if home == x.DB.Name {
				kept, tracked = append(kept, parent.OID), append(tracked, parent.OID)
			}
			for _, reference := range parent.References {
				if reference.Database == x.DB.Name {
					kept = append(kept, reference.Child.OID)
				}
			}
		}
	}
	rows, _ := x.DB.Pool.Query(ctx, cascadesSQL, kept, tracked)
	var table, key, above string
	_, err := pgx.ForEachRow(rows, []any{&table, &key, &above}, func() error {
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: "table " + table,
			Message: fmt.Sprintf("sexton undo does not bring back what foreign key %s deletes or changes with rows of %s", key, above),
			Fix:     "make it a loose foreign key, or go without",
		})
		return nil
	})
	return found, problem.Doing(err, "look for native cascades")
}
