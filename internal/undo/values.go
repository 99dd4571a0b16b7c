package undo

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// settled is the engine with the values of definitions as workers read them: in a session as it begins. Where kept values are read, other settings decide
// what a date or a time is.
func (e *Engine) settled(ctx context.Context) (*Engine, error) {
	own := *e
	own.Parents = map[string][]*loosefk.Parent{}
	for _, db := range e.Databases {
		var read pgx.Batch
		own.Parents[db.Name] = each.Of(e.Parents[db.Name], func(p *loosefk.Parent) *loosefk.Parent {
			parent := *p
			parent.References = each.Of(p.References, func(of *loosefk.Reference) *loosefk.Reference {
				reference := *of
				if of.Usable() && !of.Remote {
					settle(&read, db.Names, &reference)
				}
				return &reference
			})
			return &parent
		})
		if read.Len() == 0 {
			continue
		}
		if err := db.Pool.SendBatch(ctx, &read).Close(); err != nil {
			return nil, fmt.Errorf("database %s: read the values of definitions: %w", db.Name, err)
		}
	}
	return &own, nil
}

// settle queues what reads the values of a reference.
func settle(read *pgx.Batch, names pgcatalog.Names, reference *loosefk.Reference) {
	reference.Conditions, reference.Except = slices.Clone(reference.Conditions), slices.Clone(reference.Except)
	values := []*drain.Value{&reference.Target}
	if reference.Action != drain.Assign {
		values = nil
	}
	for _, conditions := range [][]drain.Value{reference.Conditions, reference.Except} {
		for i := range conditions {
			values = append(values, &conditions[i])
		}
	}
	for _, value := range values {
		args := &drain.Args{}
		sql := "SELECT " + value.Kept(names, args)
		read.Queue(sql, args.Values...).QueryRow(func(row pgx.Row) error { return row.Scan(&value.Value) })
	}
}
