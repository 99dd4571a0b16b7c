package operator

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/component"
	"sexton/internal/fault"
	"sexton/internal/installation"
	"sexton/internal/problem"
)

// nameHolders says of each failure that only waits for a lock which session holds one on its table now: the one that was in the way may have ended.
func nameHolders(ctx context.Context, all *installation.Connections, failures []component.Failure) error {
	known := holders{all: all}
	for i := range failures {
		if f := &failures[i]; f.Locked() {
			f.LockedBy = known.of(ctx, f.Database, f.Error)
		}
	}
	return known.err
}

// nameDeferring says the same of the reasons for which rows were put off.
func nameDeferring(ctx context.Context, all *installation.Connections, tables []component.Backlog) error {
	known := holders{all: all}
	for i := range tables {
		tables[i].LockedBy = known.of(ctx, tables[i].Database, tables[i].DeferredReason)
	}
	return known.err
}

// mostHolders bounds how many tables are asked for.
const mostHolders = 20

// holders are the sessions that hold locks on tables. Each table of a database is asked for once.
type holders struct {
	all   *installation.Connections
	found map[[2]string]string
	err   error
}

// of names the sessions that hold locks on the tables that recorded errors say to be locked, or says that none does; "" if they name no table.
func (h *holders) of(ctx context.Context, name, errors string) string {
	tables, _ := fault.LockIn(errors)
	db := h.all.Jobs()
	if name != "" {
		db = h.all.Database(name)
	}
	if len(tables) == 0 || db.Pool == nil || h.all.Down[db.Name] != nil {
		return ""
	}
	var said []string
	for _, table := range tables {
		at := [2]string{db.Name, table}
		text, asked := h.found[at]
		if !asked && h.err == nil && len(h.found) < mostHolders {
			rows, err := db.Pool.Query(ctx, sqlText("table_holders"), table)
			if err == nil {
				text, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			}
			h.err = problem.Doing(err, "look which session has locked %s", table)
			if h.found == nil {
				h.found = map[[2]string]string{}
			}
			h.found[at] = text
		}
		if text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}
