package dml

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

// Reader runs read-only statements.
type Reader func(ctx context.Context, statements ...batch.Statement) error

// Select runs a read-only statement and collects its rows.
func Select[T any](ctx context.Context, read Reader, to func(pgx.CollectableRow) (T, error), sql string,
	args ...any,
) (found []T, err error) {
	err = read(ctx, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, to)})
	return found, err
}

// LiveRefs returns the keys among refs by which rows refer to rows of the window.
func (w *Window) LiveRefs(ctx context.Context, read Reader, refs []*Ref) (live []*Ref, _ error) {
	found, err := Select(ctx, read, pgx.RowTo[[]bool], liveRefsStatement(w.Leaf, refs), w.Rows.Args()...)
	if err != nil {
		return nil, err
	}
	for i, f := range refs {
		if found[0][i] {
			live = append(live, f)
		}
	}
	return live, nil
}

// Children reads at most limit rows that refer to the window's rows by a foreign key, in
// one of the key's leaves. It leaves out the rows at the tuples except.
func (w *Window) Children(ctx context.Context, read Reader, f *Ref, leaf pgcatalog.Table, except []Tuple,
	limit int,
) (Rows, error) {
	return Select(ctx, read, ScanRow, childrenStatement(w.Leaf, f, leaf), w.Rows.childrenArgs(except, limit)...)
}

func (r Rows) childrenArgs(except []Tuple, limit int) []any {
	return r.Args(append([]Tuple{}, except...), limit)
}

// RequireCascades returns statements that fail with batch.Unmet if a row outside the
// closure refers to one of its rows by a loose reference. The action of a foreign key
// would not delete such a row.
func (c Closure) RequireCascades() (all []batch.Statement) {
	for _, w := range c.Windows {
		for _, f := range w.Table.RefsOf(w.Leaf) {
			if f.Constraint != "" {
				continue
			}
			for _, leaf := range f.Leaves {
				all = append(all, batch.Statement{
					SQL: fmt.Sprintf("SELECT \"sexton\".require(NOT EXISTS (\n%s\n))",
						childrenStatement(w.Leaf, f, leaf)),
					Args: w.Rows.childrenArgs(c.Tuples[leaf.OID], 1),
				})
			}
		}
	}
	return all
}

// Closure holds the rows of a window and all rows below them that are deleted with them.
type Closure struct {
	Windows []*Window
	// Tuples holds the positions of the windows' rows, by OID of their leaf.
	Tuples map[uint32][]Tuple
	// Rows is the number of deleted and changed rows. Changed holds the number of changed
	// rows by key.
	Rows    int
	Changed map[string]int64
	// Incomplete reports that Expand stopped at its limit, so that windows are missing.
	Incomplete bool
}

// Expand finds all rows that are deleted or changed with a window's rows. It stops when
// it has found more than most rows.
func (w *Window) Expand(ctx context.Context, read Reader, most int) (Closure, error) {
	c := Closure{
		Windows: []*Window{w}, Tuples: map[uint32][]Tuple{w.Leaf.OID: w.Rows.Tuples()}, Rows: len(w.Rows),
		Changed: map[string]int64{},
	}
	for i := 0; i < len(c.Windows) && c.Rows <= most; i++ {
		from := c.Windows[i]
		refs := slices.DeleteFunc(from.Table.RefsOf(from.Leaf), func(f *Ref) bool { return f.Action == Forbid })
		if len(refs) == 0 {
			continue
		}
		live, err := from.LiveRefs(ctx, read, refs)
		if err != nil {
			return c, err
		}
		for _, f := range live {
			for _, leaf := range f.Leaves {
				found, err := from.Children(ctx, read, f, leaf, c.Tuples[leaf.OID], most+1-c.Rows)
				if err != nil {
					return c, err
				}
				if len(found) == 0 {
					continue
				}
				c.Rows += len(found)
				if f.Action == Remove {
					c.Tuples[leaf.OID] = append(c.Tuples[leaf.OID], found.Tuples()...)
					c.Windows = append(c.Windows, &Window{Table: f.Table, Leaf: leaf, Rows: found})
				} else {
					c.Changed[f.Label()] += int64(len(found))
				}
				if c.Rows > most {
					c.Incomplete = true
					return c, nil
				}
			}
		}
	}
	return c, nil
}

// Has reports whether the closure contains at least one row of w.
func (c Closure) Has(w *Window) bool {
	return slices.ContainsFunc(c.Windows, func(of *Window) bool {
		return of.Leaf.OID == w.Leaf.OID && len(of.Rows.Without(w.Rows.Tuples())) < len(of.Rows)
	})
}
