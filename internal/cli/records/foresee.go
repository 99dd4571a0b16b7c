package records

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"sexton/internal/cli"
	"sexton/internal/operator"
	"sexton/internal/render"
)

// printForeseen prints the plan of `sexton group delete --plan` or `sexton user delete
// --plan`.
func printForeseen(env *cli.Env, p *operator.Foreseen, err error) error {
	if err != nil {
		return err
	}
	return env.Print(p, func(w io.Writer) {
		type counted struct {
			table, change string
			rows          int64
		}
		var changes []counted
		for _, part := range []struct {
			change string
			rows   map[string]int64
		}{
			{"moved to the ghost user", p.Moved},
			{"deleted", p.Deleted},
			{"set to NULL", p.Nullified},
			{"deleted or changed later, by loose foreign keys", p.Loose},
		} {
			for _, table := range slices.Sorted(maps.Keys(part.rows)) {
				changes = append(changes, counted{table, part.change, part.rows[table]})
			}
		}
		render.Table(w, "TABLE\tCHANGE\tROWS", changes, func(c counted) []any { return []any{c.table, c.change, c.rows} })
		more, speed := "", "at an assumed "
		if p.Capped {
			more = "at least "
		}
		if p.Measured {
			speed = "at the last runs' "
		}
		_, _ = fmt.Fprintf(w, "\n%s%s, about %s %s%.0f rows a second\n", more, render.Counted(p.Rows, "row"),
			render.Span(time.Duration(p.AboutSeconds*float64(time.Second))), speed, p.RowsPerSecond)
		if p.Remote > 0 {
			_, _ = fmt.Fprintf(w, "not counted: children in other databases (%s)\n",
				render.Counted(p.Remote, "definition"))
		}
		for _, reason := range p.Forbidden {
			_, _ = fmt.Fprintf(w, "forbidden: %s\n", reason)
		}
		for _, key := range p.Blocking {
			_, _ = fmt.Fprintf(w, "blocks the deletion until its rows are deleted: %s\n", key)
		}
	})
}
