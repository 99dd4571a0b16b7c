package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

const (
	// shownParents bounds what is counted by parent table, parentCap the count of each: every scrape of the metrics counts anew.
	shownParents = 100
	parentCap    = 1000
)

// parentBacklog is the backlog of one parent table.
type parentBacklog struct {
	Parent string `json:"parent"`
	// Pending stops counting at parentCap; Capped tells that there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
}

func readParents(ctx context.Context, db database.Database, parents []string) ([]parentBacklog, error) {
	if len(parents) == 0 {
		return nil, nil
	}
	rows, err := db.Queries().TombstoneBacklogs(ctx, dbsqlc.TombstoneBacklogsParams{
		Parents: parents[:min(len(parents), shownParents)], Cap: parentCap + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("read backlog by parent table in database %s: %w", db.Name, err)
	}
	out := make([]parentBacklog, len(rows))
	for i, row := range rows {
		out[i] = parentBacklog{
			Parent: row.Name, Pending: min(row.Pending, parentCap), Capped: row.Pending > parentCap, OldestAgeSeconds: row.OldestAgeSeconds,
		}
	}
	slices.SortStableFunc(out, func(a, b parentBacklog) int { return cmp.Compare(b.OldestAgeSeconds, a.OldestAgeSeconds) })
	return out, nil
}

func printParents(w io.Writer, tables []deletionTable) {
	if !slices.ContainsFunc(tables, func(t deletionTable) bool { return len(t.Parents) > 0 }) {
		return
	}
	_, _ = fmt.Fprintln(w, "\nPARENT\tDATABASE\tPENDING\tOLDEST")
	for _, t := range tables {
		for _, p := range t.Parents {
			pending := fmt.Sprint(p.Pending)
			if p.Capped {
				pending += "+"
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Parent, t.Database, pending, p.oldest().Round(time.Second))
		}
	}
}

func (p parentBacklog) oldest() time.Duration {
	return time.Duration(p.OldestAgeSeconds * float64(time.Second))
}
